"""Footers that contradict themselves are refused, where pyarrow would end the process; all others are taken."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.engines import footer_check, thrift
from hybridq.engines.footer import FileFooter
from hybridq.engines.footer_check import check, read_footer

TABLE = pa.table(
    {
        "i": pa.array([1, None, 3], pa.int64()),
        "s": ["a", "b", None],
        "l": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
        "d": pa.array([1, 2, 3], pa.int32()).cast(pa.decimal128(12, 2)),
        "p": pa.array([{"x": 1.5, "y": [True]}, None, {"x": None, "y": None}]),
    }
)

ACCESSORS = """
import sys
import pyarrow as pa, pyarrow.parquet as pq
from hybridq.engines.footer_check import check
footer = open(sys.argv[1], "rb").read()
step, values = int(sys.argv[2]), [int(text) for text in sys.argv[3:]]
taken = 0
for place in range(0, len(footer), step):
    for value in values:
        changed = bytearray(footer)
        changed[place] ^= value
        content = bytes(changed)
        try:
            check(content)
            file = b"".join((b"PAR1", content, len(content).to_bytes(4, "little"), b"PAR1"))
            metadata = pq.read_metadata(pa.BufferReader(file))
            metadata.schema.to_arrow_schema()
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            continue
        taken += 1
        for group in range(metadata.num_row_groups):
            for leaf in range(metadata.num_columns):
                try:
                    chunk = metadata.row_group(group).column(leaf)
                    chunk.compression, chunk.encodings, chunk.total_uncompressed_size, chunk.has_dictionary_page
                    if chunk.statistics is not None and chunk.statistics.has_min_max:
                        chunk.statistics.min, chunk.statistics.max, chunk.statistics.null_count
                except Exception:
                    pass
print(taken)
"""


def footer_of(path):
    content = path.read_bytes()
    return content[-8 - int.from_bytes(content[-8:-4], "little") : -8]


@pytest.mark.parametrize("options", [{}, {"version": "1.0"}, {"compression": "zstd", "write_statistics": False}])
def test_files_that_are_whole_are_taken(tmp_path, options):
    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=2, **options)
    found = read_footer(str(tmp_path / "t.parquet"))
    assert found.metadata.equals(pq.read_metadata(tmp_path / "t.parquet"))


def test_no_changed_byte_ends_the_process(tmp_path):
    """In a process of its own, which would be gone."""
    pq.write_table(TABLE.select(["i", "s", "l"]), tmp_path / "t.parquet", store_schema=False)
    (tmp_path / "footer").write_bytes(footer_of(tmp_path / "t.parquet"))
    done = subprocess.run(
        [sys.executable, "-c", ACCESSORS, str(tmp_path / "footer"), "1", "1", "4", "16"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 100


def changed(footer, path, value):
    """Return a footer with another value of a field, given the numbers of the fields, and elements, down to it."""

    def struct(data, rest):
        fields = []
        for number, kind, start, end in thrift.fields(data):
            content = data[start:end]
            if number == rest[0]:
                content = value if len(rest) == 1 else below(kind, content, rest[1:])
            fields.append((number, kind, content))
        return thrift.write_struct(fields)

    def below(kind, content, rest):
        if kind != thrift.LIST:
            return struct(content, rest)
        count, of, place = thrift.items(content, 0)
        elements = []
        for _ in range(count):
            end = thrift.skip(content, place, of)
            elements.append(content[place:end])
            place = end
        elements[rest[0]] = struct(elements[rest[0]], rest[1:])
        return thrift.write_list(of, elements)

    return struct(footer, path)


CHUNK = (4, 0, 1, 0, 3)
"""Row groups, the first, its columns, the first, what it says of it."""


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ((*CHUNK, 1), thrift.write_integer(6), "column 0 of row group 0 is of physical type 6, and in the schema of 2"),
        ((*CHUNK, 4), thrift.write_integer(-3), "an unknown codec, -3"),
        ((*CHUNK, 16, 3), thrift.write_list(thrift.I64, [b"\0"] * 3), "a histogram of 3 levels, and 2 levels"),
        ((2, 1, 3), thrift.write_integer(7), "neither required, optional nor repeated"),
        ((2, 0, 5), thrift.write_integer(9), "ends too early"),
        ((2, 0, 5), thrift.write_integer(1), "no tree"),
        ((4, 0, 1), thrift.write_list(thrift.STRUCT, []), "row group 0 has 0 columns, and the schema 3"),
    ],
)
def test_what_is_said_of_it(tmp_path, path, value, said):
    pq.write_table(TABLE.select(["i", "s", "d"]), tmp_path / "t.parquet")
    footer = footer_of(tmp_path / "t.parquet")
    check(footer)
    with pytest.raises(pa.ArrowInvalid, match=said):
        check(changed(footer, path, value))


def test_workers_check_what_the_planner_has_not(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE.select(["i", "s", "d"]), path)
    content = path.read_bytes()
    digest = read_footer(str(path)).digest
    checked = []
    monkeypatch.setattr(footer_check, "check", lambda footer: checked.append(footer) or check(footer))
    FileFooter(str(path))
    assert len(checked) == 1
    footer_check.trust(str(path), digest)
    FileFooter(str(path))
    assert len(checked) == 1
    footer = footer_of(path)
    hostile = changed(footer, (*CHUNK, 1), thrift.write_integer(6))
    path.write_bytes(content[: -8 - len(footer)] + hostile + len(hostile).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(pa.ArrowInvalid, match="column 0 of row group 0 is of physical type 6"):
        FileFooter(str(path))


@pytest.mark.parametrize(
    "content", [b"", b"\x28" + b"\x80" * 100_000, b"\x1c" * 100_000, b"\x29\xfc" + b"\xff" * 8, b"\x15"]
)
def test_nonsense(content):
    with pytest.raises(pa.ArrowInvalid, match="damaged"):
        check(content)


@pytest.mark.parametrize("column", ["i", "f"])
def test_bounds_of_too_few_bytes_are_refused(tmp_path, column):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"i": pa.array([7], pa.int64()), "f": [7.0]}).select([column]), path)
    value = pa.array([7], pa.int64() if column == "i" else pa.float64()).buffers()[1].to_pybytes()
    content = path.read_bytes()
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") : -8]
    check(footer)
    whole, short = b"\x08" + value, b"\x07" + value[:7]
    assert footer.count(whole) == 4
    with pytest.raises(pa.ArrowInvalid, match="a bound of 7 bytes, and values of 8"):
        check(footer.replace(whole, short, 1))
    with pytest.raises(pa.ArrowInvalid, match="a bound of 0 bytes, and values of 8"):
        check(footer.replace(whole, b"\x00"))
