"""Parts of a query: every event is in exactly one of them."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import tracehold
from conftest import BASE, NewStorage, event, lines
from scripted import scripted


def events_of(*queries: tracehold.Query) -> Counter[int]:
    return Counter(row["id"] for query in queries for row in query.rows())


def at(times: list[int]) -> list[str]:
    """Return events at these times in microseconds."""
    return lines([event(index, ts=BASE // 1000 + time) for index, time in enumerate(times)])


SPREADS: dict[str, list[int]] = {
    "even": list(range(0, 5000, 10)),
    "one time": [7] * 300,
    "far away": [-BASE // 1000, *range(300), 10**12],
    "one event": [3],
    "none": [],
}


@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize("finalize", [True, False], ids=["finalized", "open"])
def test_parts_together_are_the_whole(
    new_storage: NewStorage, name: str, *, finalize: bool
) -> None:
    times = SPREADS[name]
    storage = new_storage(at(times), finalize=finalize)
    whole = events_of(storage.query())
    assert sum(whole.values()) == len(times)
    for count in (1, 2, 8):
        parts = storage.splits(count)
        assert 1 <= len(parts) <= count
        assert events_of(*parts) == whole
        assert sum(part.count() for part in parts) == len(times)


def test_parts_have_about_the_same_size(new_storage: NewStorage) -> None:
    # Events of one nanosecond are divided like any others.
    for name in ("even", "one time"):
        storage = new_storage(at(SPREADS[name]), finalize=False)
        parts = storage.splits(4)
        splits = [part.split for part in parts if part.split is not None]
        assert len(splits) == len(parts) == 4
        sizes = [split.bytes for split in splits]
        assert max(sizes) <= 2 * min(sizes), (name, sizes)
        assert sum(split.events for split in splits) == len(SPREADS[name])


def test_parts_are_of_the_selected_events(thousand: tracehold.Storage) -> None:
    start, end = BASE + 1_000_000, BASE + 5_000_000
    query = thousand.query('name == "write"', start=start, end=end, fields="ts,id")
    parts = query.splits(5)
    assert {part.options for part in parts} == {query.options}
    assert events_of(*parts) == events_of(query)
    for part in parts:
        times = [row["ts"] for row in part.rows()]
        assert times == sorted(times)


def test_events_without_a_time_are_in_parts(new_storage: NewStorage) -> None:
    events = [event(index) for index in range(400)]
    for number in (5, 6, 7):
        del events[number]["ts"]
    storage = new_storage(lines(events), finalize=False)
    parts = storage.splits(3)
    assert events_of(*parts) == events_of(storage.query())
    assert sorted(events_of(*storage.splits(3, "ts is null"))) == [5, 6, 7]


def test_a_part_is_of_the_storage_as_it_was_split(new_storage: NewStorage) -> None:
    storage = new_storage(lines([event(index) for index in range(300)]), finalize=False)
    parts = storage.splits(3)
    with storage.producer("later", "trace", kind="dft") as producer:
        producer.push_lines(lines([event(index) for index in range(300, 400)]), 4096)
    assert sum(part.count() for part in parts) == 300
    storage.finalize()
    assert sum(part.count() for part in parts) == 300
    with pytest.raises(tracehold.RefusedError, match="split") as caught:
        parts[0].replace(expression="pid == 7").count()
    assert caught.value.code == "split_malformed"
    storage.delete()
    with pytest.raises(tracehold.TraceholdError):
        parts[0].count()


def test_what_is_of_the_whole_result_has_no_parts(thousand: tracehold.Storage) -> None:
    for options in ({"limit": 3}, {"offset": 3}, {"order_by": "dur"}, {"group_by": "name"}):
        with pytest.raises(ValueError, match="only a query for all matching events"):
            thousand.query(**options).splits(2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one"):
        thousand.splits(0)
    with pytest.raises(ValueError, match="a part has no parts"):
        thousand.splits(2)[0].splits(2)


def test_an_answer_without_splits_is_an_error() -> None:
    body = b'{"parts": []}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with scripted(head % len(body) + body) as answers, tracehold.connect(answers.url) as server:
        with pytest.raises(tracehold.ResponseError, match="without splits"):
            server.query().splits(2)


def test_parts_can_be_pickled(thousand: tracehold.Storage) -> None:
    copies = pickle.loads(pickle.dumps(thousand.splits(3)))
    assert events_of(*copies) == events_of(thousand.query())


def test_errors_of_workers_can_be_pickled(thousand: tracehold.Storage) -> None:
    with pytest.raises(tracehold.ExpressionError) as caught:
        thousand.query("dur > 5MS").count()
    # Ray Data adds to the arguments of what its workers raise.
    caught.value.args = (*caught.value.args, "more")
    # As pickle does, unless a package has other ways for errors, such as distributed.
    build, arguments, *_ = caught.value.__reduce__()
    copy = build(*arguments)
    assert isinstance(copy, tracehold.ExpressionError)
    assert str(copy) == str(caught.value)


def test_dask_in_other_processes_gives_the_same_answer(
    new_storage: NewStorage, tmp_path: Path
) -> None:
    # Without an index, it is cut at packets, of which one chunk has many.
    storage = new_storage(lines([event(index) for index in range(1000)]), finalize=False)
    fields = ["id", "ts", "name", "ret"]
    whole = storage.query(fields=fields).pandas()
    parts = storage.splits(4, fields=fields)
    assert len(parts) == 4
    with (
        dask.config.set({"temporary_directory": str(tmp_path)}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        assert len(client.scheduler_info()["workers"]) == 2
        counts = client.gather(client.map(tracehold.Query.count, parts, pure=False))
        assert sum(counts) == len(whole) == 1000
        frame = dd.from_map(tracehold.Query.pandas, parts)
        assert frame.npartitions == 4
        found = frame.groupby("name")["ret"].agg(["count", "sum"]).compute()
        rows = frame.compute()
    expected = whole.groupby("name")["ret"].agg(["count", "sum"])
    pd.testing.assert_frame_equal(found.sort_index(), expected.sort_index(), check_dtype=False)
    in_order = rows.sort_values("id").reset_index(drop=True)
    wanted = whole.sort_values("id").reset_index(drop=True)
    pd.testing.assert_frame_equal(in_order, wanted, check_dtype=False)
