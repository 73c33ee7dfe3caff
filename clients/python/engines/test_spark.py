"""Spark reads what the server answers: from the server in parts, and from files of a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlretrieve

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import tracehold
from conftest import BASE, event, lines, running
from real import groups, real_storage, run_examples
from tracehold.spark import TraceholdDataSource

# Connections between Python and Java are closed with the session.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tracehold.Server]:
    with running(tmp_path_factory.mktemp("server")) as process:
        with tracehold.connect(process.url) as server:
            yield server


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.warehouse.dir", str(folder))
    builder = builder.config("spark.local.dir", str(folder))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(TraceholdDataSource)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def real(server: tracehold.Server, tmp_path_factory: pytest.TempPathFactory) -> tracehold.Storage:
    return real_storage(server, tmp_path_factory.mktemp("real"))


def read(spark: SparkSession, storage: tracehold.Storage, /, **options: str) -> DataFrame:
    settings = {"url": storage.server.settings.url, "storage": storage.id} | options
    return spark.read.format("tracehold").options(**settings).load()


def grouped(frame: DataFrame) -> list[tuple[Any, ...]]:
    frame.createOrReplaceTempView("events")
    question = "select name, kind, count(*), sum(dur), min(ts), max(tid) from events group by 1, 2"
    assert frame.sparkSession is not None
    return sorted(tuple(row) for row in frame.sparkSession.sql(question).collect())


def test_groups_are_those_of_the_server(spark: SparkSession, real: tracehold.Storage) -> None:
    fields = "ts,dur,name,tid,kind"
    whole = read(spark, real, fields=fields, splits="5")
    assert whole.rdd.getNumPartitions() == len(real.splits(5)) > 1
    assert whole.count() == real.query().count() == 9729 + 118 + 800
    assert grouped(whole) == groups(real.query())
    asked = 'kind == "dft" and dur > 5us'
    some = read(spark, real, fields=fields, query=asked)
    assert 0 < some.count() == real.query(asked).count() < whole.count()
    assert grouped(some) == groups(real.query(asked))


@pytest.mark.parametrize("part", ["trace.pfw", "chrome_viztracer.json"])
def test_rows_are_those_of_the_server(
    spark: SparkSession, real: tracehold.Storage, part: str
) -> None:
    asked = f"stream == {part!r}"
    frame = read(spark, real, query=asked, splits="3")
    table = real.query(asked).arrow()
    assert frame.columns == table.column_names
    times = table["ts"].cast(pa.int64())
    rows = zip(times, *(column for column in table.columns[1:]), strict=True)
    wanted = sorted(repr(tuple(value.as_py() for value in row)) for row in rows)
    assert sorted(repr(tuple(row)) for row in frame.collect()) == wanted


@pytest.mark.parametrize("pushes", ["false", "true"])
def test_a_frame_is_asked_again(spark: SparkSession, real: tracehold.Storage, pushes: str) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushes)
    events = read(spark, real, query='kind == "dft"', fields="name,dur,ret,fname")
    for condition, expression in [
        ("name = 'read'", 'name == "read"'),
        ("dur > 20000", "dur > 20us"),
        ("fname like '%npz'", 'fname ~ "npz$"'),
        ("ret is null or name = 'write'", 'not exists(ret) or name == "write"'),
    ]:
        wanted = real.query(f'kind == "dft" and ({expression})').count()
        assert 0 < events.where(condition).count() == wanted < events.count() == 9729, condition


def test_columns_have_the_types_of_tables(spark: SparkSession, real: tracehold.Storage) -> None:
    frame = read(spark, real, fields="ts,dur,name,found,ret,(dur / 1000),(ts + dur),fname")
    assert frame.dtypes == [
        ("ts", "bigint"),
        ("dur", "bigint"),
        ("name", "string"),
        ("found", "boolean"),
        ("ret", "bigint"),
        ("(dur / 1000)", "double"),
        ("(ts + dur)", "bigint"),
        ("fname", "string"),
        ("rest", "string"),
    ]
    row = frame.where("name = 'read' and dur > 0").first()
    assert row is not None
    assert row["(ts + dur)"] == row["ts"] + row["dur"]
    assert row["(dur / 1000)"] == row["dur"] / 1000


def test_what_is_missing_is_an_error(spark: SparkSession, server: tracehold.Server) -> None:
    storage = server.create_storage("broken")
    texts = [*lines([event(index) for index in range(50)]), '{"name":"cut","ts":17']
    with storage.producer("broken", "trace", kind="dft") as producer:
        producer.push_lines(texts)
    with pytest.raises(PySparkException, match="IncompleteResultError"):
        read(spark, storage).count()
    assert read(spark, storage, strict="false").count() == 50
    assert read(spark, storage, to=str(BASE + 10_001), strict="false").count() == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"storages": "x"}, "unknown option 'storages'"),
        ({"strict": "maybe"}, "expected true or false"),
        ({"query": "dur > 5MS"}, "unknown unit"),
        ({"storage": "nosuch"}, "nosuch"),
    ],
)
def test_wrong_options_are_told(
    spark: SparkSession, real: tracehold.Storage, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        read(spark, real, **options)


def test_files_of_results_are_read(
    spark: SparkSession, real: tracehold.Storage, tmp_path: Path
) -> None:
    path = real.query(fields="ts,dur,name,tid,kind").write(tmp_path / "events.parquet")
    with pytest.raises(PySparkException, match=r"TIMESTAMP\(NANOS"):
        spark.read.parquet(str(path)).count()
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    assert grouped(spark.read.parquet(str(path))) == groups(real.query())


def test_a_file_of_events_is_read_from_its_url(
    spark: SparkSession, real: tracehold.Storage, tmp_path: Path
) -> None:
    url = f"{real.server.settings.url}/storage/{real.id}/events/dft.parquet"
    # If this ends, the documents need no copy any more.
    with pytest.raises(PySparkException, match="HttpFileSystem hasn't implemented listStatus"):
        spark.read.parquet(url)
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    frame = spark.read.parquet(urlretrieve(url, str(tmp_path / "dft.parquet"))[0])
    found = grouped(frame.selectExpr("*", "'dft' as kind"))
    assert found == groups(real.query('kind == "dft"'))


def test_a_frame_is_the_storage_as_it_was(spark: SparkSession, server: tracehold.Server) -> None:
    storage = server.create_storage("growing")
    with storage.producer("growing", "trace", kind="dft") as producer:
        producer.push_lines(lines([event(index) for index in range(50)]))
        producer.flush()
        before = read(spark, storage)
        assert before.count() == 50
        producer.push_lines(lines([event(index) for index in range(50, 80)]))
        producer.flush()
        assert (before.count(), read(spark, storage).count()) == (50, 80)


def test_the_examples_of_the_document(
    server: tracehold.Server, real: tracehold.Storage, tmp_path: Path
) -> None:
    printed = run_examples("spark", server, tmp_path)
    first = real.query('name == "read"', group_by="name", aggregate="count,sum:dur")
    [found] = first.rows()
    assert f"|   read|    {found['count']}|{found['sum:dur']}|" in printed, printed
