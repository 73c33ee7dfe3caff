"""Tables of other packages have the events as they are."""

from __future__ import annotations

import sys

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tracehold
from conftest import BASE, NewStorage, event, lines
from scripted import chunked, scripted

FIELDS = ["ts", "dur", "name", "id", "ret", "fname"]
BIG = (1 << 53) + 1


@pytest.fixture
def mixed(new_storage: NewStorage) -> tracehold.Storage:
    """Return events with integers that are no 64-bit fractions, and with missing ones."""
    events = [event(0, args={"ret": BIG}), event(1, args={}), event(2, args={"fname": "x"})]
    return new_storage(lines(events))


def test_arrow(thousand: tracehold.Storage) -> None:
    table = thousand.query(fields=FIELDS).arrow()
    assert table.num_rows == 1000
    assert table.schema.field("ts").type == pa.timestamp("ns", "UTC")
    assert table["ts"].cast(pa.int64()).to_pylist()[:2] == [BASE, BASE + 10_000]
    assert table["ret"].to_pylist() == [4096 + index for index in range(1000)]


def test_batches_arrive_one_after_the_other(thousand: tracehold.Storage) -> None:
    query = thousand.query(fields=FIELDS)
    with query.reader() as reader:
        assert sum(batch.num_rows for batch in reader) == 1000
    assert query.summary == tracehold.Summary(rows=1000, skipped=0)


def test_pandas_keeps_integers_beside_nulls(mixed: tracehold.Storage) -> None:
    frame = mixed.query(fields=FIELDS).pandas()
    assert frame["ret"].tolist() == [BIG, pd.NA, pd.NA]
    assert frame["ret"].dtype == pd.Int64Dtype()
    assert isinstance(frame["name"].dtype, pd.StringDtype)
    assert frame["ts"].iloc[1] == pd.Timestamp(BASE + 10_000, tz="UTC")
    categories = mixed.query(fields=FIELDS).pandas(categories=True)
    assert isinstance(categories["name"].dtype, pd.CategoricalDtype)
    assert categories["name"].astype(str).tolist() == frame["name"].tolist()


def test_pandas_timestamps_are_limits(thousand: tracehold.Storage) -> None:
    end = pd.Timestamp(BASE + 10_001, tz="UTC")
    assert thousand.query(end=end).count() == 2
    assert thousand.query(end=end - pd.Timedelta(1, "ns")).count() == 1


def test_polars(mixed: tracehold.Storage) -> None:
    frame = mixed.query(fields=FIELDS).polars()
    assert frame["ret"].to_list() == [BIG, None, None]
    assert frame.schema["ts"] == pl.Datetime("ns", "UTC")
    assert frame.schema["name"] == pl.String
    categories = mixed.query(fields=FIELDS).polars(categories=True)
    assert categories["name"].cast(pl.String).to_list() == frame["name"].to_list()


def test_duckdb(mixed: tracehold.Storage) -> None:
    connection = duckdb.connect()
    events = mixed.query(fields=FIELDS).duckdb(connection)
    assert events.aggregate('count(*), sum("ret"), min(name)').fetchall() == [(3, BIG, "read")]
    by_default = mixed.query(fields=FIELDS).duckdb()
    assert by_default.filter("dur = 1000").count("*").fetchall() == [(1,)]


def test_groups_are_tables_too(thousand: tracehold.Storage) -> None:
    frame = thousand.query(group_by="tid", aggregate="count").pandas()
    assert frame.set_index("tid")["count"].to_dict() == {0: 250, 1: 250, 2: 250, 3: 250}


def test_a_result_without_rows_has_the_same_columns(thousand: tracehold.Storage) -> None:
    query = thousand.query(fields=FIELDS)
    assert query.replace(expression="dur < 0").arrow().schema == query.arrow().schema


def stream(*, batches: int, end: bool = True) -> bytes:
    """Return an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([("ts", pa.int64())])
    with pa.ipc.new_stream(sink, schema) as writer:
        for _ in range(batches):
            writer.write_batch(pa.record_batch([pa.array(range(100))], schema))
    whole = bytes(sink.getvalue())
    return whole if end else whole[:-8]


@pytest.mark.parametrize(
    "response",
    [
        chunked(stream(batches=3), end=b""),
        chunked(stream(batches=3)[:-200], end=b""),
        chunked(stream(batches=3, end=False), end=b""),
        chunked(stream(batches=0)[:20], end=b""),
    ],
    ids=["after its end", "in a batch", "after a batch", "in its schema"],
)
@pytest.mark.parametrize("form", ["arrow", "reader"])
def test_a_stream_that_breaks_is_never_a_table(response: bytes, form: str) -> None:
    closing = response.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
    with scripted(closing) as script:
        with tracehold.connect(script.url, retry=tracehold.NEVER) as server:
            query = server.query()
            with pytest.raises(tracehold.TransportError):
                query.arrow() if form == "arrow" else query.reader().read_all()
            assert query.summary is None


@pytest.mark.parametrize("form", ["arrow", "pandas", "polars", "duckdb"])
def test_what_is_not_installed_is_named(
    thousand: tracehold.Storage, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "pyarrow" if form == "arrow" else form
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'tracehold\[{form}\]'"):
        getattr(thousand.query(), form)()
