"""Changes bytes and texts a little, so that parsers get further into them than with noise."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

INTERESTING = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFE, 0xFF)

_TOKEN = re.compile(r"\s+|\w+|\"[^\"]*\"|'[^']*'|.", re.DOTALL)

TOKENS = (
    *[
        "null",
        "true",
        "-1",
        "0",
        "1e999",
        "nan",
        "''",
        "'",
        '"',
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "*",
        ";",
        "é",
        "0.1",
        "--",
        "/*",
        "&a",
        "*a",
        "<<",
        "|",
        "%",
        "\\",
        "$1",
        "?",
    ],
    *("\0", "\u2028", "99999999999999999999999999", "!!python/object/apply:os.system"),
)


def mutated_bytes(
    data: bytes, chosen: random.Random, others: Sequence[bytes], low: int = 0, high: int | None = None
) -> bytes:
    """Return data with a few changes between two places."""
    content = bytearray(data)
    for _ in range(chosen.choice([1, 1, 2, 3, 6])):
        end = len(content) if high is None else min(high, len(content))
        if end <= low:
            break
        place = chosen.randrange(low, end)
        kind = chosen.randrange(6)
        if kind == 0:
            content[place] = chosen.choice(INTERESTING)
        elif kind == 1:
            content[place] ^= 1 << chosen.randrange(8)
        elif kind == 2 and high is None:
            del content[place : place + chosen.choice([1, 2, 8, 64])]
        elif kind == 3 and high is None:
            content[place:place] = bytes(chosen.choices(range(256), k=chosen.choice([1, 2, 9])))
        elif kind == 4:
            other = chosen.choice(others)
            start = chosen.randrange(max(len(other), 1))
            piece = other[start : start + chosen.choice([1, 4, 16])]
            content[place : place + len(piece)] = piece
        else:
            content[place : place + 4] = chosen.choice([b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f"])[: end - place]
    return bytes(content)


def mutated_text(text: str, chosen: random.Random, others: Sequence[str]) -> str:
    """Return a text with some of its words changed, doubled, moved or left out."""
    words = _TOKEN.findall(text)
    for _ in range(chosen.choice([1, 1, 2, 3, 8])):
        if not words:
            return chosen.choice(others)
        place = chosen.randrange(len(words))
        kind = chosen.randrange(7)
        if kind == 0:
            del words[place : place + chosen.choice([1, 1, 3])]
        elif kind == 1:
            words.insert(place, chosen.choice(TOKENS))
        elif kind == 2:
            words[place] = chosen.choice(TOKENS)
        elif kind == 3:
            words[place] = chosen.choice(_TOKEN.findall(chosen.choice(others)) or [""])
        elif kind == 4:
            start = chosen.randrange(len(words))
            words[place:place] = words[start : start + chosen.choice([1, 3, 10])]
        elif kind == 5:
            words[place] = words[place] * chosen.choice([2, 3, 300])
        else:
            start = chosen.randrange(len(words))
            words[place], words[start] = words[start], words[place]
    return "".join(words)
