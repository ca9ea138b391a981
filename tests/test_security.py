"""What may come in from outside: certificates, SQL that would reach files, plans that would be code."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import hybridq as hq
from hybridq.errors import ClusterUnreachable, ConfigurationError, HybridqError
from hybridq.security import tls_files
from hybridq.testing.in_process import connect_in_process
from hybridq.topology import load_topology

CPU = {"kind": "cpu", "processes": 1, "threads": 1, "memory": "1GiB"}

# --- certificates --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("ours", "theirs"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=hybridq test",
             "-keyout", f"{name}.key", "-out", f"{name}.pem"],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
    return folder


def files_of(folder, name="ours"):
    return {"ca": f"{name}.pem", "certificate": f"{name}.pem", "key": f"{name}.key"} | (
        {} if folder is None else {key: str(folder / f"{name}.{'key' if key == 'key' else 'pem'}") for key in
                                   ("ca", "certificate", "key")}
    )  # fmt: skip


def test_a_cluster_with_tls_answers_only_to_those_who_have_its_certificates(certificates, tmp_path):
    mine = files_of(certificates)
    with hq.connect({"workers": [CPU], "security": mine}) as session:
        assert session.address.startswith("tls://")
        session.register("t", pa.table({"x": range(10)}))
        assert session.sql("select sum(x) as s from t").collect().to_arrow()["s"].to_pylist() == [45]
        with hq.connect(session.address, security=mine) as second:
            assert [each.worker for each in second.devices()] == ["cpu-0"]
        described = tmp_path / "there.yaml"
        described.write_text(f"scheduler: {{address: {session.address}}}\nsecurity: {mine}\n")
        with hq.connect(described) as third:
            assert third.address == session.address
        with pytest.raises(ConfigurationError, match="needs certificates: give security="):
            hq.connect(session.address)
        with pytest.raises(ClusterUnreachable):
            hq.connect(session.address, security=files_of(certificates, "theirs"), connect_timeout=2)
        with pytest.raises(ClusterUnreachable):
            hq.connect(session.address.replace("tls://", "tcp://"), connect_timeout=2)


def test_paths_of_certificates_start_from_the_cluster_file(certificates):
    path = certificates / "cluster.yaml"
    path.write_text(f"workers: [{{kind: cpu}}]\nsecurity: {files_of(None)}\n")
    assert load_topology(path).security.key == str(certificates / "ours.key")


@pytest.mark.parametrize(
    ("change", "message"),
    [({"ca": None}, "ca must be the path"), ({"ca": "nowhere.pem"}, "cannot read ca .*nowhere.pem: No such file"),
     ({"key": "text.txt"}, "text.txt is no PEM file"), ({"extra": 1}, "expected the keys ca, certificate, key"),
     ({"key": "a\0b"}, "must be the path")],
)  # fmt: skip
def test_wrong_descriptions_of_certificates(tmp_path, change, message):
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "a.pem").write_text("-----BEGIN CERTIFICATE-----")
    data = {"ca": "a.pem", "certificate": "a.pem", "key": "a.pem"}
    assert tls_files(data, "here", tmp_path).key == str(tmp_path / "a.pem")
    with pytest.raises(ConfigurationError, match=f"here.*{message}"):
        tls_files(data | change, "here", tmp_path)


def test_what_contradicts_itself(certificates):
    with pytest.raises(ConfigurationError, match="use tls:// in place of tcp://"):
        hq.connect("tcp://127.0.0.1:8786", security=files_of(certificates))
    with pytest.raises(ConfigurationError, match="runs already"):
        load_topology({"scheduler": {"address": "tls://a:1"}, "workers": [CPU]})
    with pytest.raises(ConfigurationError, match="address must be like"):
        load_topology({"scheduler": {"address": "a:1"}})


# --- SQL that would reach further than the registered tables -------------------------------------------------------


@pytest.fixture
def outside(tmp_path):
    """A file that exists and that no query may read."""
    import pyarrow.parquet as pq

    path = tmp_path / "secret.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    return path


READS = [
    "select * from '{path}'",
    'select * from "{path}"',
    "select * from `{path}`",
    "select * from {stem}",
    'select * from "{folder}"',
    'select * from "file://{path}"',
    "select * from 'file://{path}'",
    "select * from read_parquet('{path}')",
    "select * from parquet_scan('{path}')",
    "select * from parquet('{path}')",
    "select * from read_csv('{path}')",
    "select * from csv_scan('{path}')",
    "select * from read_json('{path}')",
    "select * from glob('{folder}/*')",
    "select * from parquet_metadata('{path}')",
    "select read_text('{path}')",
    "select pg_read_file('{path}')",
    "select * from avro_scan('{path}')",
    "select * from table('{path}')",
    "select * from t where x in (select x from '{path}')",
    'select (select max(x) from "{path}") from t',
    "with a as (select * from '{path}') select * from a",
    "select * from t join '{path}' p on t.x = p.x",
    "select * from t union all select * from '{path}'",
    "select * from lateral (select * from '{path}') s",
    "select * from 's3://bucket/x.parquet'",
    'select * from "https://example.com/x.parquet"',
    "select * from 'http://169.254.169.254/latest/meta-data'",
    'select * from "hdfs://a/b.parquet"',
    "select * from information_schema.tables",
    "select * from datafusion.information_schema.tables",
    "select * from information_schema.df_settings",
    "select * from pg_catalog.pg_tables",
    'select * from datafusion.public."{path}"',
    "select * from metadata_cache()",
    "select * from statistics_cache()",
    "select * from list_files_cache()",
    "select * from generate_series(1, 1000000000000)",
    "select * from range(1, 1000000000000)",
    "select getenv('HOME')",
]

STATEMENTS = [
    "copy t to '{new}'",
    "copy (select 1) to '{new}' stored as csv",
    "copy t from '{path}'",
    "COPY\n t TO '{new}'",
    "create external table y stored as parquet location '{path}'",
    "create table y as select 1",
    "create view y as select 1",
    "create unbounded external table y stored as csv location '{path}'",
    "create or replace table t as select 1",
    "insert into t values (1)",
    "insert overwrite t select 1",
    "delete from t",
    "update t set x = 1",
    "drop table t",
    "truncate table t",
    "alter table t rename to u",
    "merge into t using t on true when matched then delete",
    "set datafusion.execution.batch_size = 1",
    "set time zone = 'UTC'",
    "reset all",
    "show all",
    "show tables",
    "show functions",
    "describe t",
    "explain select * from t",
    "explain analyze select * from t",
    "prepare p as select 1",
    "execute p",
    "deallocate p",
    "begin",
    "commit",
    "rollback",
    "use u",
    "call f()",
    "load 'x.so'",
    "install httpfs",
    "attach '{path}'",
    "pragma version",
    "create function f() returns int return 1",
    "drop function f",
    "grant all on t to u",
    "kill 1",
    "select 1; copy t to '{new}'",
    "select 1; select 2",
    ";copy t to '{new}'",
    "/* */ copy t to '{new}'",
    "-- a\ncopy t to '{new}'",
    "with a as (copy t to '{new}') select * from a",
    "select * from (copy t to '{new}')",
    "select * into '{new}' from t",
    "select * from t into outfile '{new}'",
    "(copy t to '{new}')",
    "do $$ copy t to '{new}' $$",
    "vacuum",
    "analyze t",
    "lock table t",
]


@pytest.fixture(scope="module")
def session():
    with connect_in_process() as opened:
        opened.register("t", pa.table({"x": [1, 2]}))
        yield opened


@pytest.mark.parametrize("text", [*READS, *STATEMENTS])
def test_sql_reaches_registered_tables_and_nothing_else(session, outside, monkeypatch, text):
    monkeypatch.chdir(outside.parent)
    new = outside.with_name("new.parquet")
    before = sorted(outside.parent.rglob("*"))
    filled = text.format(path=outside, folder=outside.parent, stem=outside.name, new=new)
    with pytest.raises(HybridqError) as caught:
        session.sql(filled).collect()
    assert caught.value.exit_code == 2
    assert sorted(outside.parent.rglob("*")) == before
    assert sorted(session._catalog.schemas()) == ["t"]


def test_a_comment_or_a_text_that_looks_like_a_statement_is_none(session):
    text = "select x, '; copy t to ''y''' as s from t /* ; drop table t */ where x = 1 -- ; delete from t"
    assert session.sql(text).collect().to_arrow().to_pylist() == [{"x": 1, "s": "; copy t to 'y'"}]


# --- data that is never code ---------------------------------------------------------------------------------------


def test_only_dispatch_unpickles_and_nothing_is_evaluated():
    """Plans, reports and profiles are JSON or protobuf; what is pickled goes from the client to its own workers."""
    package = Path(hq.__file__).parent
    for path in package.rglob("*.py"):
        here = path.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                risky = name.split(".")[0] in ("pickle", "cloudpickle", "marshal", "shelve", "dill")
                assert not risky or here.startswith("dispatch/"), f"{here} imports {name}"
            called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            assert called not in ("eval", "exec"), f"{here} calls {called}"
            if isinstance(node, ast.Attribute) and node.attr in ("load", "full_load", "unsafe_load"):
                assert getattr(node.value, "id", "") != "yaml", f"{here}: only yaml.safe_load"
