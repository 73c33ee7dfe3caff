"""Ray reads what the server answers, in its own processes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
import ray.data
from ray.data.aggregate import Count, Max, Min, Sum

import tracehold
from conftest import BASE, event, lines, running
from real import groups, real_storage, run_examples
from tracehold.ray import TraceholdDatasource

# What Ray does with its own files and functions is not ours.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tracehold.Server]:
    with running(tmp_path_factory.mktemp("server")) as process:
        with tracehold.connect(process.url) as server:
            yield server


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    # Sockets have paths of at most 107 bytes, so that Ray keeps its own folder.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=128 << 20, logging_level="ERROR"
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.default_hash_shuffle_parallelism = 4
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def real(server: tracehold.Server, tmp_path_factory: pytest.TempPathFactory) -> tracehold.Storage:
    return real_storage(server, tmp_path_factory.mktemp("real"))


def read(query: tracehold.Query, blocks: int = 5) -> ray.data.Dataset:
    return ray.data.read_datasource(TraceholdDatasource(query), override_num_blocks=blocks)


def grouped(events: ray.data.Dataset) -> list[tuple[Any, ...]]:
    aggregates = [Count(), Sum("dur"), Min("ts"), Max("tid")]
    rows = events.groupby(["name", "kind"]).aggregate(*aggregates).take_all()
    columns = ("name", "kind", "count()", "sum(dur)", "min(ts)", "max(tid)")
    return sorted(tuple(row[column] for column in columns) for row in rows)


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    columns = [table["ts"].cast("int64"), *table.drop(["ts"]).columns]
    return Counter(zip(*(column.to_pylist() for column in columns), strict=True))


def test_groups_are_those_of_the_server(real: tracehold.Storage) -> None:
    query = real.query(fields="ts,dur,name,tid,kind")
    events = read(query)
    assert events.materialize().num_blocks() >= len(real.splits(5)) > 1
    assert events.count() == query.count() == 9729 + 118 + 800

    def exact(batch: pa.Table) -> pa.Table:
        at = batch.schema.get_field_index("ts")
        return batch.set_column(at, "ts", batch["ts"].cast("int64"))

    assert grouped(events.map_batches(exact, batch_format="pyarrow")) == groups(query)


def test_rows_are_those_of_the_server(real: tracehold.Storage) -> None:
    query = real.query('kind == "dft" and dur > 5us', fields="ts,dur,name,fname,ret")
    events = read(query)
    schema = events.schema()
    assert schema is not None
    assert schema.types[:3] == [pa.timestamp("ns", "UTC"), pa.int64(), pa.string()]
    found: Counter[str] = Counter()
    for batch in events.iter_batches(batch_format="pyarrow"):
        found.update(rows(batch))
    assert found == rows(query.arrow())
    assert found.total() == query.count() > 0


def test_what_is_missing_is_an_error(server: tracehold.Server) -> None:
    storage = server.create_storage("broken")
    texts = [*lines([event(index) for index in range(50)]), '{"name":"cut","ts":17']
    with storage.producer("broken", "trace", kind="dft") as producer:
        producer.push_lines(texts)
    # Ray adds its own class to that of the error.
    with pytest.raises(tracehold.IncompleteResultError, match="1 record cannot be read"):
        read(storage.query()).materialize()
    assert read(storage.query(strict=False)).count() == 50
    assert read(storage.query(strict=False, end=BASE + 10_001)).count() == 2


def test_the_examples_of_the_document(
    server: tracehold.Server, real: tracehold.Storage, tmp_path: Path
) -> None:
    assert real.name == "training"
    assert "'name': '" in run_examples("ray", server, tmp_path)
