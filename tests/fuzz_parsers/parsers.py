"""The parsers under test: what each is given, and what counts as well-behaved."""

from __future__ import annotations

import contextlib
import io
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import hybridq.session
from hybridq import cli
from hybridq.dispatch import reading
from hybridq.errors import HybridqError
from hybridq.frontend.sql import export_substrait
from hybridq.placement.calibrate import ProfileStore, assumed_profile, identity_of
from hybridq.placement.learned import Learned
from hybridq.placement.placer import Placer
from hybridq.session import Session
from hybridq.shipped import find_plan, plan_names
from hybridq.testing.in_process import connect_in_process, devices_of
from hybridq.topology import load_topology

from .mutate import mutated_bytes, mutated_text


@dataclass
class Parser:
    """One parser: ``make`` gives an input, ``take`` hands it over."""

    name: str
    make: Callable[[random.Random], Any]
    take: Callable[[Any], None]


@dataclass
class Place:
    """A folder to write in, and a session with small tables of many types."""

    folder: Path
    session: Session = field(init=False)
    tables: dict[str, pa.Table] = field(init=False)

    def __post_init__(self) -> None:
        n = 40
        numbers = pa.table(
            {
                "i": pa.array([None if k % 7 == 0 else k for k in range(n)], pa.int64()),
                "s": pa.array([f"text {k % 5}" for k in range(n)]).dictionary_encode().cast(pa.string()),
                "d": pa.array([k * 100 for k in range(n)], pa.int32()).cast(pa.decimal128(12, 2)),
                "t": pa.array(range(n), pa.int32()).cast(pa.date32()),
                "f": pa.array([k / 3 for k in range(n)]),
                "b": pa.array([k % 2 == 0 for k in range(n)]),
            }
        )
        self.tables = {"u": numbers, "v": numbers.select(["i", "s"])}
        for codec in ("snappy", "zstd", "none"):
            pq.write_table(numbers, self.folder / f"{codec}.parquet", row_group_size=16, compression=codec)
        self.session = connect_in_process()
        self.session.register("u", self.folder / "snappy.parquet")
        self.session.register("v", self.tables["v"])


SQL = (
    "select s, sum(d) as x, count(*) from u where i > 3 and t < date '1970-02-01' group by s order by x desc limit 3",
    "select u.i, v.s from u left join v on u.i = v.i and u.s <> v.s where u.f between 0.5 and 7 or u.b is null",
    "with a as (select i, row_number() over (partition by s order by f) as r from u) select * from a where r <= 2",
    "select case when i in (1, 2, null) then 'a' else upper(s) end, cast(d as double), extract(year from t) from u",
    "select i from u except select i from v where not exists (select 1 from u where u.i = v.i)",
    "select s, grouping(s), avg(d) filter (where b) from u group by rollup(s) having max(f) > 1",
    "values (1, 'a', 2.5), (2, null, -1)",
)


def _sql(place: Place) -> Parser:
    texts = [*SQL, *(find_plan(name).read_text() for name in plan_names() if name.endswith(".sql") or "tpch" in name)][
        :29
    ]

    def take(text: str) -> None:
        place.session.sql(text)

    return Parser("sql", lambda chosen: mutated_text(chosen.choice(texts), chosen, texts), take)


def _substrait(place: Place, binary: bool) -> Parser:
    from google.protobuf import json_format
    from substrait.proto import Plan

    schemas = place.session._catalog.schemas()
    texts = []
    for text in SQL:
        with contextlib.suppress(HybridqError):
            texts.append(export_substrait(text, schemas))
    messages = [json_format.Parse(text, Plan()).SerializeToString() for text in texts]
    path = place.folder / ("plan.bin" if binary else "plan.json")

    def make(chosen: random.Random) -> bytes:
        if binary:
            return mutated_bytes(chosen.choice(messages), chosen, messages)
        return mutated_text(chosen.choice(texts), chosen, texts).encode(errors="surrogatepass")

    def take(content: bytes) -> None:
        path.write_bytes(content)
        query = place.session.substrait(path)
        with contextlib.suppress(HybridqError):
            query.collect()

    return Parser("substrait-binary" if binary else "substrait-json", make, take)


def _parquet(place: Place, footer: bool) -> Parser:
    files = [(place.folder / f"{codec}.parquet").read_bytes() for codec in ("snappy", "zstd", "none")]
    path = place.folder / "hostile.parquet"
    reading.READ_PAUSES = (0.0, 0.0)

    def make(chosen: random.Random) -> bytes:
        data = chosen.choice(files)
        start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        if footer:
            return mutated_bytes(data, chosen, files, start, chosen.choice([None, len(data)]))
        return mutated_bytes(data, chosen, files, 4, start)

    def take(content: bytes) -> None:
        path.write_bytes(content)
        with connect_in_process() as session:
            session.register("u", path)
            session.sql("select s, sum(d), min(t), max(f), count(i) from u where b group by s").collect(mode="cpu")

    return Parser("parquet-footer" if footer else "parquet-pages", make, take)


def _yaml(place: Place) -> Parser:
    folder = Path(hybridq.__file__).parent.parent / "cluster"
    texts = [path.read_text() for path in folder.glob("*.yaml")]
    texts.append("scheduler: {address: 'tls://a:1'}\nsecurity: {ca: a.pem, certificate: b.pem, key: c.pem}\n")
    texts.append(
        "workers:\n- {kind: gpu, engine: simulated, memory: 2GiB, device_memory: 1e3MB, speed: 0.5, processes: 2}\n"
    )
    path = place.folder / "cluster.yaml"

    def take(text: str) -> None:
        path.write_bytes(text.encode(errors="surrogatepass"))
        load_topology(path)

    return Parser("cluster-yaml", lambda chosen: mutated_text(chosen.choice(texts), chosen, texts), take)


def _profile(place: Place) -> Parser:
    devices = devices_of({"cpu": place.session._connection._engines["cpu"]})  # type: ignore[attr-defined]
    identity = identity_of(devices)
    store = ProfileStore(place.folder / "profiles")
    store.save(assumed_profile(devices, 2))
    learned = Learned()
    for rows in (1000, 50_000, 1_000_000):
        learned.observe("pipeline", "cpu", rows, rows * 1e-7)
    store.write(identity, "learned", learned.to_dict())
    paths = {what: store.path(identity, what) for what in ("profile", "learned")}
    texts = [path.read_text() for path in paths.values()]

    def make(chosen: random.Random) -> tuple[str, str]:
        what = chosen.choice(list(paths))
        return what, mutated_text(paths_text[what], chosen, texts)

    def take(given: tuple[str, str]) -> None:
        what, text = given
        for name, path in paths.items():
            path.write_bytes((text if name == what else paths_text[name]).encode(errors="surrogatepass"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            placer = Placer(devices, store)
        query = place.session.sql(SQL[0])
        predicted = placer.predict(
            query._physical.stages, place.session._catalog, {"cpu": 1}, place.session.config, lambda size: None
        )
        for prediction in predicted.values():
            for mode in prediction.modes.values():
                assert mode.seconds >= 0, "a profile may be wrong, but time is not negative"
        placer.save()

    paths_text = dict(zip(paths, texts, strict=True))
    return Parser("profile-json", make, take)


WORDS = (
    *[
        "run",
        "explain",
        "devices",
        "calibrate",
        "tpch",
        "generate",
        "ssb",
        "cluster",
        "start",
        "demo",
        "cpu",
        "gpu",
        "auto",
        "table",
        "csv",
        "json",
        "html",
        "parquet",
    ],
    *[
        "--data",
        "--mode",
        "--cluster",
        "--format",
        "-o",
        "--report",
        "--strict",
        "--analyze",
        "--sf",
        "--out",
        "--tables",
        "--quick",
        "--version",
    ],
    *[
        "--help",
        "-",
        "--",
        "tpch/q01",
        "tpch/q99",
        "../../etc/passwd",
        "/",
        "/dev/null",
        ".",
        "-1",
        "nan",
        "--no-progress",
    ],
    *["tcp://", "tls://a:1", "nowhere://x:1", "tcp://127.0.0.1:notaport"],
    *("\0", "é\ud800", "x" * 5000, ""),
)


def _cli(place: Place) -> Parser:
    """The command, run in this process, with sessions in this process too."""
    query = place.folder / "q.sql"
    query.write_text("select count(*) as n from snappy")
    data = place.folder / "tables"
    data.mkdir(exist_ok=True)
    (data / "snappy.parquet").write_bytes((place.folder / "snappy.parquet").read_bytes())
    lines = [
        ["run", str(query), "--data", str(data)],
        ["run", str(query), "--data", str(data), "--format", "csv", "-o", str(place.folder / "out.csv")],
        ["explain", str(query), "--data", str(data), "--format", "json"],
        ["devices"],
        ["run", "tpch/q01", "--data", str(data)],
        ["tpch", "generate", "--sf", "nan", "--out", str(place.folder / "made")],
        ["cluster", "start", str(place.folder / "none.yaml")],
    ]
    more = [*WORDS, str(query), str(data), str(place.folder), str(place.folder / "snappy.parquet")]

    def make(chosen: random.Random) -> list[str]:
        line = list(chosen.choice(lines))
        for _ in range(chosen.choice([0, 1, 1, 2, 3])):
            place_ = chosen.randrange(len(line) + 1)
            if chosen.random() < 0.4 and place_ < len(line):
                line[place_] = chosen.choice(more)
            elif chosen.random() < 0.7:
                line.insert(place_, chosen.choice(more))
            elif place_ < len(line):
                del line[place_]
        return line

    def connect(cluster: Any = None, **options: Any) -> Session:
        if isinstance(cluster, str) and cluster:
            hybridq.session._check_address(cluster, False) if "://" in cluster else load_topology(cluster)
        return connect_in_process(**options)

    def take(line: list[str]) -> None:
        # What takes minutes or starts processes is not for here; that its arguments are checked comes before.
        if any(word in line for word in ("demo", "calibrate")) or (
            "start" in line and any("yaml" not in w for w in line[2:])
        ):
            return
        if "generate" in line and "nan" not in line:
            return
        out, err = io.StringIO(), io.StringIO()
        original = hybridq.session.connect
        hybridq.session.connect = connect  # type: ignore[assignment]
        code: Any = None
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                cli.main(line)
        except SystemExit as end:
            code = end.code
        finally:
            hybridq.session.connect = original
        said = err.getvalue()
        assert code in (0, 1, 2, 130), f"exit code {code!r}"
        assert "Traceback" not in said, said
        assert "please report it" not in said, said
        assert code == 0 or said.startswith("error: ") or "\nerror: " in said, f"exit code {code} and {said!r}"

    return Parser("cli", make, take)


PARSERS: dict[str, Callable[[Place], Parser]] = {
    "sql": _sql,
    "substrait-json": lambda place: _substrait(place, False),
    "substrait-binary": lambda place: _substrait(place, True),
    "parquet-footer": lambda place: _parquet(place, True),
    "parquet-pages": lambda place: _parquet(place, False),
    "cluster-yaml": _yaml,
    "profile-json": _profile,
    "cli": _cli,
}


def try_one(parser: Parser, given: Any) -> str | None:
    """Hand one input over; return what is wrong with how it was taken, if anything is."""
    import traceback

    try:
        parser.take(given)
    except HybridqError as error:
        text = str(error)
        if not text.strip() or "Traceback" in text:
            return f"an unclear error: {error!r}"
    except MemoryError as error:
        return f"MemoryError: {error}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno}: {str(error)[:300]}"
    return None


__all__ = ["PARSERS", "Parser", "Place", "try_one"]
