"""The bookkeeping of cached columns, with Arrow arrays in the place of device columns."""

from __future__ import annotations

import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.engines.cache import ColumnCache

GROUP_ROWS = 10
WIDTH = 8


class Arrays:
    """Operations on Arrow arrays that count their bytes as int64."""

    def __init__(self):
        self.finished = 0

    def rows(self, data):
        return len(data)

    def nbytes(self, data):
        return len(data) * WIDTH

    def slice(self, data, start, stop):
        return data.slice(start, stop - start)

    def concatenate(self, parts):
        return pa.concat_arrays(parts)

    def finish(self):
        self.finished += 1


class Reader:
    """Reads files, and notes what it is asked for."""

    def __init__(self):
        self.calls = []

    def __call__(self, files, columns):
        self.calls.append(([(path[-9], list(groups)) for path, groups in files], list(columns)))
        parts = [pq.ParquetFile(path).read_row_groups(list(groups), columns=list(columns)) for path, groups in files]
        table = pa.concat_tables(parts)
        return {name: table.column(name).combine_chunks() for name in columns}


@pytest.fixture
def paths(tmp_path):
    """Two files of eight row groups of ten rows; a row's number tells file, group and place."""
    found = []
    for number, letter in enumerate("ab"):
        rows = [1000 * number + row for row in range(80)]
        path = tmp_path / f"{letter}.parquet"
        pq.write_table(pa.table({"x": rows, "y": [-row for row in rows], "z": rows}), path, row_group_size=GROUP_ROWS)
        found.append(str(path))
    return found


def expected(files, sign=1):
    return [
        sign * (1000 * (path[-9] == "b") + 10 * group + row)
        for path, groups in files
        for group in groups
        for row in range(GROUP_ROWS)
    ]


def read(cache, reader, files, columns=("x", "y"), keep=("x", "y")):
    reader.calls.clear()
    found = cache.read(files, list(columns), list(keep), reader)
    assert set(found) == set(columns)
    for name, data in found.items():
        assert data.to_pylist() == expected(files, -1 if name == "y" else 1)
    return cache.release()


def test_a_second_read_reads_nothing(paths):
    cache, reader = ColumnCache(Arrays(), 10_000), Reader()
    files = [(paths[0], range(8)), (paths[1], range(3))]
    assert read(cache, reader, files) == 0
    assert len(reader.calls) == 1
    assert cache.nbytes == 2 * 110 * WIDTH
    saved = read(cache, reader, files)
    assert reader.calls == []
    metadata = [(pq.read_metadata(path), groups) for path, groups in files]
    columns = [found.row_group(group).column(i) for found, groups in metadata for group in groups for i in (0, 1)]
    assert saved == sum(column.total_uncompressed_size for column in columns)


def test_only_what_is_missing_is_read_however_chunks_are_cut(paths):
    cache, reader = ColumnCache(Arrays(), 10_000), Reader()
    read(cache, reader, [(paths[0], [1, 2, 3])])
    read(cache, reader, [(paths[1], [0, 1])])
    read(cache, reader, [(paths[0], [0, 1, 2, 3, 4]), (paths[1], [1, 2])])
    assert reader.calls == [([("a", [0, 4]), ("b", [2])], ["x", "y"])]
    read(cache, reader, [(paths[0], [3, 4, 0]), (paths[1], [2, 0])])
    assert reader.calls == []


def test_columns_that_are_not_kept_are_read_every_time(paths):
    cache, reader = ColumnCache(Arrays(), 10_000), Reader()
    files = [(paths[0], [0, 1])]
    read(cache, reader, files, columns=("x", "z"), keep=("x",))
    assert reader.calls == [([("a", [0, 1])], ["x", "z"])]
    read(cache, reader, files, columns=("x", "z"), keep=("x",))
    assert reader.calls == [([("a", [0, 1])], ["z"])]
    assert cache.nbytes == 20 * WIDTH
    # A column that comes later is read alone.
    read(cache, reader, files, columns=("x", "y"))
    assert reader.calls == [([("a", [0, 1])], ["y"])]
    read(cache, reader, files, columns=("x", "y"))
    assert reader.calls == []


def test_a_column_that_is_there_whole_is_not_read_with_one_that_is_there_in_part(paths):
    cache, reader = ColumnCache(Arrays(), 10_000), Reader()
    read(cache, reader, [(paths[0], [0, 1, 2])], columns=("x",))
    read(cache, reader, [(paths[0], [2])], columns=("y",))
    saved = read(cache, reader, [(paths[0], [0, 1, 2])])
    assert reader.calls == [([("a", [0, 1])], ["y"])]
    groups = [pq.read_metadata(paths[0]).row_group(group) for group in (0, 1, 2)]
    assert (
        saved
        == sum(each.column(0).total_uncompressed_size for each in groups) + groups[2].column(1).total_uncompressed_size
    )


def test_a_private_cache_keeps_for_itself(paths):
    shared, reader = ColumnCache(Arrays()), Reader()
    private = shared.private()
    read(private, reader, [(paths[0], [0, 1])], columns=("x",))
    read(private, reader, [(paths[0], [1])], columns=("x", "z"), keep=("x", "z"))
    assert reader.calls == [([("a", [1])], ["z"])]
    assert (shared.nbytes, private.nbytes) == (0, 30 * WIDTH)


def test_the_least_recently_used_goes_first(paths):
    cache, reader = ColumnCache(Arrays(), 30 * WIDTH), Reader()
    for group in (0, 1, 2):
        read(cache, reader, [(paths[0], [group])], ("x",), ("x",))
    read(cache, reader, [(paths[0], [0])], ("x",), ("x",))
    read(cache, reader, [(paths[0], [3])], ("x",), ("x",))
    assert cache.nbytes == 30 * WIDTH
    for group, calls in [(0, 0), (2, 0), (3, 0), (1, 1)]:
        read(cache, reader, [(paths[0], [group])], ("x",), ("x",))
        assert len(reader.calls) == calls


def test_what_is_larger_than_the_limit_is_not_kept(paths):
    cache, reader = ColumnCache(Arrays(), 30 * WIDTH), Reader()
    read(cache, reader, [(paths[0], [0])], ("x",), ("x",))
    read(cache, reader, [(paths[0], range(1, 8))], ("x",), ("x",))
    assert cache.nbytes == 10 * WIDTH


def test_eviction_and_a_lower_limit(paths):
    cache, reader = ColumnCache(Arrays(), 10_000), Reader()
    for group in range(4):
        read(cache, reader, [(paths[0], [group])], ("x",), ("x",))
    assert cache.evict(11 * WIDTH) == 20 * WIDTH
    assert cache.nbytes == 20 * WIDTH
    cache.set_limit(10 * WIDTH)
    assert cache.nbytes == 10 * WIDTH
    cache.set_limit(0)
    assert (cache.nbytes, cache.evict(1)) == (0, 0)
    read(cache, reader, [(paths[0], [0])], ("x",), ("x",))
    assert cache.nbytes == 0


def test_a_file_that_has_changed_is_read_anew(paths, tmp_path):
    cache, reader = ColumnCache(Arrays(), 10_000), Reader()
    read(cache, reader, [(paths[0], [0])], ("x",), ("x",))
    pq.write_table(pa.table({"x": [7] * 10}), paths[0])
    assert cache.read([(paths[0], [0])], ["x"], ["x"], reader)["x"].to_pylist() == [7] * 10


def test_used_columns_are_pinned_until_released(paths):
    cache, reader = ColumnCache(Arrays(), 10_000), Reader()
    read(cache, reader, [(paths[0], [0])], ("x",), ("x",))
    cache.read([(paths[0], [0])], ["x"], ["x"], reader)
    assert cache.evict(1) == 10 * WIDTH
    assert [segment.data.to_pylist() for segment in cache._thread.pinned] == [list(range(10))]
    assert cache.release() > 0
    assert cache._thread.pinned == []


def test_threads_share_it(paths):
    cache, operations = ColumnCache(Arrays(), 40 * WIDTH), Arrays()
    assert operations.finished == 0
    wrong = []

    def work(seed):
        reader = Reader()
        for step in range(60):
            groups = [(seed * 3 + step * 5 + i) % 8 for i in range(1 + step % 3)]
            files = [(paths[step % 2], sorted(set(groups)))]
            found = cache.read(files, ["x"], ["x"], reader)["x"].to_pylist()
            if found != expected(files):
                wrong.append(files)
            cache.release()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert 0 < cache.nbytes <= 40 * WIDTH
