"""Every error that hybridq raises on purpose.

The first line of each message says what is wrong and what to do about it, and names the table, column, file or node at
fault. ``exit_code`` is what the command line returns: 2 when the request itself is wrong, 1 when it failed while
running.
"""

from __future__ import annotations


class HybridqError(Exception):
    """Base class of all errors of hybridq."""

    exit_code = 1


class RequestError(HybridqError):
    """The request cannot be carried out as it was given."""

    exit_code = 2


class SqlError(RequestError):
    """The SQL text cannot be parsed or planned.

    Attributes
    ----------
    line, column : int or None
        Position in the text, counted from 1, where it is known.
    """

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column

    def __reduce__(self) -> tuple[type[SqlError], tuple[str, int | None, int | None]]:
        return type(self), (str(self), self.line, self.column)


class UnknownTable(RequestError):
    """A query names a table that is not registered.

    Attributes
    ----------
    table : str
        The name, as the query has it.
    """

    def __init__(self, message: str, table: str = "") -> None:
        super().__init__(message)
        self.table = table

    def __reduce__(self) -> tuple[type[UnknownTable], tuple[str, str]]:
        return type(self), (str(self), self.table)


class UnknownColumn(RequestError):
    """A query names a column that no table in scope has."""


class AmbiguousColumn(RequestError):
    """A column name matches several tables in scope."""


class Unsupported(RequestError):
    """The plan needs something that hybridq does not do yet; the message names the node or function."""


class PlanFormatError(RequestError):
    """A plan file is not what its name says (for example, not Substrait)."""


class DataError(RequestError):
    """Files or tables given as data cannot be used: missing, empty, truncated, not Parquet, or of differing schemas."""


class ConfigurationError(RequestError):
    """An option, a cluster file or an environment variable has a value that makes no sense."""


class DeviceUnavailable(RequestError):
    """A device kind was asked for (``mode="gpu"``) that the cluster does not have."""


class ClusterUnreachable(HybridqError):
    """No scheduler answered at the address, or it answered too late."""


class ExecutionError(HybridqError):
    """The query failed while it ran."""


class NumericOverflow(ExecutionError):
    """An integer or decimal result does not fit the type that the plan declares."""


class DivisionByZero(ExecutionError):
    """A division of integers or decimals by zero."""


class CastFailed(ExecutionError):
    """A value cannot be converted to the type asked for."""


class DeviceOutOfMemory(ExecutionError):
    """A chunk does not fit the device's memory budget.

    Attributes
    ----------
    wanted, free : int
        Bytes the chunk needed and bytes that were free.
    """

    def __init__(self, message: str, wanted: int = 0, free: int = 0) -> None:
        super().__init__(message)
        self.wanted = wanted
        self.free = free

    def __reduce__(self) -> tuple[type[DeviceOutOfMemory], tuple[str, int, int]]:
        return type(self), (str(self), self.wanted, self.free)


class ResultTooLarge(ExecutionError):
    """The client cannot hold the answer.

    Attributes
    ----------
    wanted, free : int
        Bytes of the answer, and bytes that it may have.
    """

    def __init__(self, message: str, wanted: int = 0, free: int = 0) -> None:
        super().__init__(message)
        self.wanted = wanted
        self.free = free

    def __reduce__(self) -> tuple[type[ResultTooLarge], tuple[str, int, int]]:
        return type(self), (str(self), self.wanted, self.free)


class FallbackForbidden(ExecutionError):
    """A chunk would have moved to another device although ``strict`` was asked for."""


class WorkersLost(ExecutionError):
    """The cluster lost the workers that the query still needs."""


class PiecesLost(ExecutionError):
    """Pieces of a split are gone: their worker died, or does not answer. They can be made again from their chunks.

    Attributes
    ----------
    stage : int
        The stage that was split.
    serials : tuple of int
        Serial numbers of the tasks that made them.
    cause : str
    """

    def __init__(self, stage: int, serials: tuple[int, ...], cause: str) -> None:
        super().__init__(f"pieces of stage {stage} were lost: {cause}")
        self.stage = stage
        self.serials = serials
        self.cause = cause

    def __reduce__(self) -> tuple[type[PiecesLost], tuple[int, tuple[int, ...], str]]:
        return type(self), (self.stage, self.serials, self.cause)


class QueryCancelled(HybridqError):
    """The query was cancelled."""

    exit_code = 130
