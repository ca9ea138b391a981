"""Finding and opening data files: local paths first, fsspec URLs where fsspec is installed."""

from __future__ import annotations

import datetime
import glob
import itertools
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybridq.errors import DataError

PARQUET_SUFFIX = ".parquet"
_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
_CONTENT_NAMES = ("ETag", "etag", "VersionId", "version_id", "generation", "sha")
"""What object stores say of a file that is another for another content, by fsspec's names."""


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file as it was when its footer was read.

    Attributes
    ----------
    path : str
        Absolute local path, or URL.
    size : int
        Bytes.
    mtime_ns : int
        Time of the last change in nanoseconds since 1970 (0 where the file system does not say).
    etag : str
        What an object store calls this content, and its version; empty where there is no such thing.
    inode : int
        Number of the file on its file system (0 where that does not say): a file in its place has another.
    ctime_ns : int
        Time of the last change of the file or of what is said of it, in nanoseconds since 1970. Unlike ``mtime_ns`` no
        program can set it (0 where the file system does not say).
    footer : str
        Digest of its footer, once that was read and checked; of no account where stamps are compared.
    """

    path: str
    size: int
    mtime_ns: int
    etag: str = ""
    inode: int = 0
    ctime_ns: int = 0
    footer: str = field(default="", compare=False)

    def is_same(self, now: FileStamp, footer_of: Callable[[FileStamp], str]) -> bool:
        """Tell whether a file is still what it was, as far as one can tell without reading it.

        Inodes and times of change are no more than hints: both are others where another system looks, of a copy or
        through another mount, and a permission or a hard link changes the latter. Where a hint speaks against it, the
        footers decide.

        Parameters
        ----------
        now : FileStamp
            The file of the same path, looked at now.
        footer_of : callable
            Gives the digest of the footer that a file has now.
        """
        if (self.size, self.mtime_ns, self.etag) != (now.size, now.mtime_ns, now.etag):
            return False
        if (self.inode, self.ctime_ns) == (now.inode, now.ctime_ns):
            return True
        return bool(self.footer) and footer_of(now) == self.footer


def is_url(path: str) -> bool:
    """Tell whether a path is an fsspec URL and not a local path.

    >>> is_url("s3://bucket/orders.parquet"), is_url("/data/orders.parquet")
    (True, False)
    """
    return bool(_URL.match(path)) and not path.startswith("file://")


def open_source(path: str) -> Any:
    """Return what ``pyarrow.parquet`` readers take for a path: the path itself if local, an open file for a URL.

    Raises
    ------
    DataError
        The URL needs fsspec, or a file system of it, that is not installed, or the file cannot be opened.
    """
    if not is_url(path):
        return path
    filesystem, inner = _remote(path)
    try:
        return filesystem.open(inner, "rb")
    except OSError as error:
        raise DataError(f"cannot open {path}: {error}") from error


def stamp(path: str) -> FileStamp:
    """Look at a file.

    Raises
    ------
    DataError
        It does not exist or cannot be read.
    """
    try:
        if is_url(path):
            filesystem, inner = _remote(path)
            filesystem.invalidate_cache(inner)  # listings are kept, and would hide a change
            return _remote_stamp(path, filesystem.info(inner))
        status = os.stat(path)  # noqa: PTH116 (often: each file of each chunk, twice)
    except FileNotFoundError as error:
        raise DataError(f"cannot read {path}: it does not exist") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    return FileStamp(path, status.st_size, status.st_mtime_ns, "", status.st_ino, status.st_ctime_ns)


def check_unchanged(seen: FileStamp, footer_of: Callable[[FileStamp], str]) -> None:
    """Check that a file is the one whose footer was read.

    Parameters
    ----------
    seen : FileStamp
    footer_of : callable
        See ``FileStamp.is_same``.

    Raises
    ------
    DataError
        It is gone, or another.
    """
    try:
        now = stamp(seen.path)
    except DataError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            gone = f"{seen.path} has been removed since it was registered: restore it, or register the table again"
            raise DataError(gone) from error
        raise
    if not seen.is_same(now, footer_of):
        what = f"{seen.size} bytes then, {now.size} now" if now.size != seen.size else "written again since"
        raise DataError(f"{seen.path} has changed since it was registered ({what}): register the table again")


def find_parquet(source: str | os.PathLike[str]) -> list[str]:
    """Return the Parquet files that a file name, folder, glob or URL stands for, in natural order.

    A folder stands for the ``*.parquet`` files in it and in its ``key=value`` subfolders. Names that start with ``_``
    or ``.`` are left out. A file given by name may be called anything.

    Raises
    ------
    DataError
        Nothing is there.
    """
    text = os.fspath(source)
    if is_url(text):
        return _find_remote(text)
    path = Path(text.removeprefix("file://")).expanduser()
    if path.is_dir():
        try:
            found = sorted(_in_folder(path), key=_natural)
        except OSError as error:
            raise DataError(f"cannot read the folder {error.filename or path}: {error.strerror}") from error
        if not found:
            raise DataError(f"no {PARQUET_SUFFIX} file in the folder {path}")
        return found
    if path.exists():
        return [str(path.absolute())]
    if glob.has_magic(str(path)):
        matches = [Path(match) for match in glob.glob(str(path), recursive=True)]  # noqa: PTH207 (absolute patterns)
        found = []
        for match in matches:
            if _hidden(match.name):
                continue
            found += _in_folder(match) if match.is_dir() else [str(match.absolute())]
        if not found:
            raise DataError(f"no file matches {path}")
        return sorted(dict.fromkeys(found), key=_natural)
    raise DataError(f"no such file or folder: {path}")


def searched_folders(source: str | os.PathLike[str], files: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return for each file the folders that it was found in below the place that ``source`` names.

    That place is all of a folder's path, and a glob's up to the first part with a ``*`` or the like. A file that is
    named has no such folders.

    Parameters
    ----------
    source : str or os.PathLike
        What the files were looked for by.
    files : iterable of str
        What ``find_parquet`` has found.

    >>> searched_folders("/data/sales/y*", ["/data/sales/year=2020/month=1/1.parquet"])
    {'/data/sales/year=2020/month=1/1.parquet': ('year=2020', 'month=1')}
    """
    text = os.fspath(source)
    if is_url(text):
        named = _parts(_remote(text)[1])
        may_be_glob = True
    else:
        path = Path(text.removeprefix("file://")).expanduser()
        named = _parts(str(path.absolute()))
        may_be_glob = not path.exists()
    if may_be_glob:
        named = list(itertools.takewhile(lambda part: not glob.has_magic(part), named))
    return {file: tuple(_parts(file)[len(named) : -1]) for file in files}


def _parts(path: str) -> list[str]:
    """Return the names in a path, or in a URL without its protocol."""
    inner = path.partition("://")[2] if is_url(path) else path
    return [part for part in inner.split("/") if part]


@dataclass(frozen=True, slots=True)
class FolderTables:
    """The tables of a folder.

    Attributes
    ----------
    paths : dict of str to Path
        Each ``NAME.parquet`` and each subfolder that holds Parquet files, by name.
    refused : dict of str to DataError
        What is wrong with a link that is not followed, by the name that its table would have.
    """

    paths: dict[str, Path]
    refused: dict[str, DataError]


def tables_in(directory: str | os.PathLike[str], follow_links: bool = False) -> FolderTables:
    """Look for the tables of a folder: each ``NAME.parquet`` and each subfolder that holds Parquet files.

    Parameters
    ----------
    directory : str or os.PathLike
    follow_links : bool
        Links may lead out of the folder.

    Raises
    ------
    DataError
        The folder does not exist or has nothing that could be a table.
    """
    folder = Path(directory).expanduser()
    if not folder.exists():
        raise DataError(f"no such folder: {folder}")
    if not folder.is_dir():
        raise DataError(f"not a folder: {folder}")
    found: dict[str, Path] = {}
    refused: dict[str, DataError] = {}
    try:
        entries = sorted(folder.iterdir(), key=lambda item: _natural(item.name))
    except OSError as error:
        raise DataError(f"cannot read the folder {folder}: {error.strerror}") from error
    for entry in entries:
        if _leads_nowhere(entry):
            refused[_table_name(entry)] = DataError(
                f"{entry} is a link to {entry.readlink()}, where nothing can be found: mend or remove it"
            )
            continue
        is_file = entry.is_file() and entry.name.lower().endswith(PARQUET_SUFFIX)
        if _hidden(entry.name) or not (is_file or (entry.is_dir() and _may_hold_data(entry))):
            continue
        name = _table_name(entry)
        if not follow_links:
            try:
                _check_links(entry, folder)
            except DataError as error:
                refused[name] = error
                continue
        if name in found:
            raise DataError(f"both {found[name]} and {entry} would be table {name!r}: rename one")
        found[name] = entry
    if not found and not refused:
        raise DataError(f"no Parquet file and no folder of Parquet files in {folder}")
    # Of two of one name it is the file that is there.
    return FolderTables(found, {name: error for name, error in refused.items() if name not in found})


def _table_name(entry: Path) -> str:
    return entry.name[: -len(PARQUET_SUFFIX)] if entry.name.lower().endswith(PARQUET_SUFFIX) else entry.name


def _leads_nowhere(entry: Path) -> bool:
    """Tell whether an entry of a folder is a link that may have been a table, to what is not there."""
    may_be_table = entry.name.lower().endswith(PARQUET_SUFFIX) or not entry.suffix
    return may_be_table and not _hidden(entry.name) and entry.is_symlink() and not entry.exists()


def _check_links(entry: Path, folder: Path) -> None:
    """Check that no link leads out of a folder, of those that would be followed.

    Raises
    ------
    DataError
        One does.
    """
    if entry.is_symlink():
        target = entry.resolve()
        if not target.is_relative_to(folder.resolve()):
            raise DataError(
                f"{entry} is a link that leads out of {folder}, to {target}: register that under a name of its own, or"
                " allow such links (--follow-links, follow_links=True)"
            )
    if entry.is_dir() and os.access(entry, os.R_OK | os.X_OK):
        for inner in entry.iterdir():
            followed = "=" in inner.name if inner.is_dir() else inner.name.lower().endswith(PARQUET_SUFFIX)
            if followed and not _hidden(inner.name):
                _check_links(inner, folder)


def _may_hold_data(folder: Path) -> bool:
    try:
        return bool(_in_folder(folder))
    except OSError:
        return True  # it cannot be looked into, and whoever asks for it shall hear that


def _in_folder(folder: Path) -> list[str]:
    found: list[str] = []
    for entry in folder.iterdir():
        if _hidden(entry.name):
            continue
        if entry.is_dir():
            # Other subfolders may hold anything; key=value is how partitioned data sets are written.
            if "=" in entry.name:
                found += _in_folder(entry)
        elif entry.name.lower().endswith(PARQUET_SUFFIX):
            found.append(str(entry.absolute()))
    return found


def _hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _natural(path: str) -> list[tuple[int, int | str]]:
    """Sort key by which ``part-2`` comes before ``part-10``."""
    return [(0, int(piece)) if piece.isdecimal() else (1, piece) for piece in re.split(r"(\d+)", path)]


def _remote(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise DataError(f"reading {url} needs the package fsspec, which is not installed") from None
    try:
        filesystem, inner = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise DataError(f"cannot open {url}: {error}") from error
    return filesystem, inner


def _remote_stamp(url: str, info: dict[str, Any]) -> FileStamp:
    mtime_ns = _nanoseconds(info.get("mtime") or info.get("LastModified") or info.get("last_modified"))
    created_ns = _nanoseconds(info.get("created"))
    content = " ".join(str(info[name]) for name in _CONTENT_NAMES if info.get(name))
    # A local file system calls the last change "created".
    inode = info.get("ino") if isinstance(info.get("ino"), int) else 0
    return FileStamp(url, int(info.get("size") or 0), mtime_ns or created_ns, content, inode or 0, created_ns)


def _nanoseconds(moment: object) -> int:
    seconds = moment.timestamp() if isinstance(moment, datetime.datetime) else moment
    return int(seconds * 1_000_000_000) if isinstance(seconds, int | float) else 0


def _find_remote(url: str) -> list[str]:
    filesystem, inner = _remote(url)
    try:
        if glob.has_magic(inner):
            names: Iterable[str] = filesystem.glob(inner)
        elif filesystem.isdir(inner):
            names = [name for name in filesystem.find(inner) if name.lower().endswith(PARQUET_SUFFIX)]
        elif filesystem.exists(inner):
            names = [inner]
        else:
            names = []
    except OSError as error:
        raise DataError(f"cannot read {url}: {error}") from error
    # Only what is below the given place counts as hidden, not the place itself.
    base = inner.rstrip("/").count("/")
    found = [name for name in names if not any(map(_hidden, name.split("/")[base + 1 :]))]
    if not found:
        raise DataError(f"no Parquet file at {url}")
    return sorted((filesystem.unstrip_protocol(name) for name in found), key=_natural)
