"""Reads files on a worker: only those that are still what the plan was made for, and once more after an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from hybridq.engines.footer import digest_at
from hybridq.engines.footer_check import trust
from hybridq.errors import DataError
from hybridq.storage import FileStamp, check_unchanged

READ_PAUSES = (0.1, 0.5)
"""Seconds before files that gave an input/output error are read again; after the last one the error stands."""

_LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
"""Errors that another attempt would only repeat."""

Read = TypeVar("Read")


def read_unchanged(read: Callable[[], Read], stamps: Sequence[FileStamp]) -> tuple[Read, int]:
    """Read files that have to be what they were when the query was planned.

    They are looked at before and after: a file that is written while it is read may give anything, also errors that do
    not name it.

    Parameters
    ----------
    read : callable
        Reads them.
    stamps : sequence of FileStamp
        The files as the plan saw them.

    Returns
    -------
    tuple of (what ``read`` returned, int)
        The number says how often it was tried again.

    Raises
    ------
    DataError
        A file has changed or is gone, or gave an error at every attempt; the message names it.
    """
    for again, pause in enumerate((*READ_PAUSES, None)):
        try:
            return _read_once(read, stamps), again
        except (DataError, OSError) as error:
            if pause is None or not _may_pass(error):
                raise
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def _read_once(read: Callable[[], Read], stamps: Sequence[FileStamp]) -> Read:
    _check(stamps)
    for stamp in stamps:
        if stamp.footer:
            trust(stamp.path, stamp.footer)
    try:
        result = read()
    except Exception:
        _check(stamps)  # if it has changed meanwhile, that is what went wrong
        raise
    _check(stamps)
    return result


def _check(stamps: Sequence[FileStamp]) -> None:
    for stamp in stamps:
        check_unchanged(stamp, digest_at)


def _may_pass(error: BaseException) -> bool:
    """Tell whether an error comes from input or output, and need not come again."""
    chain = list(_causes(error))
    return any(isinstance(each, OSError) for each in chain) and not any(isinstance(each, _LASTING) for each in chain)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
