"""Parts of a query: every event is in exactly one of them."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from itertools import pairwise
from typing import Any

import dask.dataframe as dd
import pytest

import tracehold
from conftest import BASE, NewStorage, event, lines
from tracehold._splits import Interval, boundaries


def events_of(*queries: tracehold.Query) -> Counter[int]:
    return Counter(row["id"] for query in queries for row in query.rows())


def at(times: list[int]) -> list[str]:
    """Return events at these times in microseconds."""
    return lines([event(index, ts=BASE // 1000 + time) for index, time in enumerate(times)])


SPREADS: dict[str, list[int]] = {
    "even": list(range(0, 5000, 10)),
    "one time": [7] * 300,
    "a burst": sorted([*range(1_000_000, 1_000_400), 0, 90_000_000]),
    "far away": [-BASE // 1000, *range(300), 10**12],
    "two events": [1, 2],
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
    for count in (1, 2, 3, 8):
        parts = storage.splits(count)
        assert 1 <= len(parts) <= count
        assert events_of(*parts) == whole
        ends = [part.options.end for part in parts[:-1]]
        assert [part.options.start for part in parts[1:]] == ends


def test_an_event_at_a_limit_is_in_one_part(new_storage: NewStorage) -> None:
    random.seed(11)
    times = [random.choice([10, 20, 30, 40]) for _ in range(400)]
    storage = new_storage(at(times))
    # Limits between parts are moved onto times that events have.
    parts = storage.splits(4)
    limits: list[Any] = [None, *(BASE + time * 1000 for time in (20, 30, 40)), None]
    moved = [parts[0].replace(start=start, end=end) for start, end in pairwise(limits)]
    assert events_of(*moved) == events_of(*parts) == events_of(storage.query())


def test_parts_have_about_the_same_number_of_events(new_storage: NewStorage) -> None:
    for name in ("even", "a burst", "far away"):
        counts = [part.count() for part in new_storage(at(SPREADS[name])).splits(4)]
        assert len(counts) == 4
        assert max(counts) <= 2 * sum(counts) / 4, (name, counts)


def test_parts_are_of_the_selected_events(thousand: tracehold.Storage) -> None:
    start, end = BASE + 1_000_000, BASE + 5_000_000
    query = thousand.query('name == "write"', start=start, end=end, fields="ts,id")
    parts = query.splits(5)
    assert parts[0].options.start == start
    assert parts[-1].options.end == end
    assert {part.options.fields for part in parts} == {"ts,id"}
    assert events_of(*parts) == events_of(query)


@pytest.mark.parametrize("finalize", [True, False], ids=["finalized", "open"])
def test_events_without_a_time_are_a_part_of_their_own(
    new_storage: NewStorage, *, finalize: bool
) -> None:
    events = [event(index) for index in range(40)]
    for number in (5, 6, 7):
        del events[number]["ts"]
    storage = new_storage(lines(events), finalize=finalize)
    *parts, last = storage.splits(3)
    assert len(parts) == 3
    assert last.options.expression == "ts is null"
    assert sorted(events_of(last)) == [5, 6, 7]
    assert events_of(*parts, last) == events_of(storage.query())
    named = 'name == "read"'
    *parts, last = storage.splits(3, named)
    assert last.options.expression == f"({named}) and ts is null"
    assert events_of(*parts, last) == events_of(storage.query(named))
    untimed = storage.splits(3, "ts is null")
    assert [sorted(events_of(part)) for part in untimed] == [[5, 6, 7]]
    window = storage.splits(3, start=BASE, end=BASE + 10**9)
    assert sum(events_of(*window).values()) == 37


def test_what_is_of_the_whole_result_has_no_parts(thousand: tracehold.Storage) -> None:
    for options in ({"limit": 3}, {"offset": 3}, {"order_by": "dur"}, {"group_by": "name"}):
        with pytest.raises(ValueError, match="only a query for all matching events"):
            thousand.query(**options).splits(2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one"):
        thousand.splits(0)


def test_parts_can_be_pickled(thousand: tracehold.Storage) -> None:
    copies = pickle.loads(pickle.dumps(thousand.splits(3)))
    assert events_of(*copies) == events_of(thousand.query())


def test_dask_reads_the_parts(thousand: tracehold.Storage) -> None:
    parts = thousand.splits(4, fields=["ts", "name", "ret"])
    frame = dd.from_map(tracehold.Query.pandas, parts)
    assert frame.npartitions == 4
    found = frame.groupby("name")["ret"].agg(["count", "sum"]).compute(scheduler="threads")
    expected = thousand.query(fields=["name", "ret"]).pandas().groupby("name")["ret"]
    assert found.sort_index().equals(expected.agg(["count", "sum"]).sort_index())


@pytest.mark.parametrize(
    ("events", "count", "expected"),
    [
        ([(0, 10, 100)], 2, [5]),
        ([(0, 10, 100)], 4, [2, 5, 8]),
        ([(0, 10, 50), (90, 10, 50)], 2, [10]),
        ([(0, 10, 1), (90, 10, 99)], 2, [95]),
        ([(0, 1, 100)], 4, []),
        ([(0, 2, 100)], 9, [1]),
    ],
)
def test_limits_between_parts(
    events: list[tuple[int, int, int]], count: int, expected: list[int]
) -> None:
    assert boundaries([Interval(*item) for item in events], count) == expected
