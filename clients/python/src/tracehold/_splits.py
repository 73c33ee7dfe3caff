"""Parts of a query, for several workers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ._query import Query

_INTERVALS_PER_PART = 32
_INTERVALS_MIN = 1024
_INTERVALS_MAX = 8192
_ROUNDS_MAX = 5
"""Each one looks into intervals that have too many events: bursts, and times far from the rest."""

_EXACT_EVENTS_MAX = 1_000_000
"""So many events may be read to count them; numbers of more are estimated from summaries."""

_TIME_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class Interval:
    """An interval of time and its number of events."""

    begin: int
    length: int
    events: int


def splits(query: Query, count: int) -> list[Query]:
    """Return the parts of a query; every one of its events is in exactly one of them."""
    options = query.options
    if count < 1:
        message = f"{count} parts: at least one is needed"
        raise ValueError(message)
    if options.is_grouped or options.limit is not None or options.offset or options.order_by:
        message = (
            "only a query for all matching events has parts: groups, order_by, limit and offset "
            "are of the whole result"
        )
        raise ValueError(message)
    [whole] = _ask(query, aggregate="min:ts,max:ts,count,count:ts")
    begin, end, timed = whole["min:ts"], whole["max:ts"], whole["count:ts"]
    if count == 1 or timed == 0:
        return [query]
    intervals = _intervals(query, Interval(begin, end + 1 - begin, timed), count)
    limits = [options.start, *boundaries(intervals, count), options.end]
    parts = [query.replace(start=start, end=stop) for start, stop in pairwise(limits)]
    if len(parts) > 1 and timed < whole["count"]:
        # An event without a time is in no interval.
        expression = "ts is null"
        if options.expression:
            expression = f"({options.expression}) and {expression}"
        parts.append(query.replace(expression=expression))
    return parts


def boundaries(intervals: Sequence[Interval], count: int) -> list[int]:
    """Return the times, at most `count - 1`, between parts with about the same number of events."""
    total = sum(interval.events for interval in intervals)
    found: list[int] = []
    before, part = 0, 1
    for interval in intervals:
        while part < count and part * total <= (before + interval.events) * count:
            inside = (part * total - before * count) / (interval.events * count)
            time = interval.begin + round(interval.length * inside)
            if time > intervals[0].begin and (not found or time > found[-1]):
                found.append(time)
            part += 1
        before += interval.events
    last = intervals[-1].begin + intervals[-1].length
    return [time for time in found if time < last]


def _intervals(query: Query, whole: Interval, count: int) -> list[Interval]:
    """Return intervals in order of time of which none has much more than the share of a part."""
    share = max(1, whole.events // (count * 2))
    intervals = [whole]
    for _ in range(_ROUNDS_MAX):
        crowded = [item for item in intervals if item.events > share and item.length > 1]
        if not crowded:
            break
        # Each round costs at most as many requests as there are parts.
        crowded = sorted(crowded, key=lambda item: item.events, reverse=True)[:count]
        per_request = min(max(_INTERVALS_PER_PART * count, _INTERVALS_MIN), _INTERVALS_MAX)
        replaced = {item: list(_inside(query, item, per_request)) for item in crowded}
        intervals = [part for item in intervals for part in (replaced.get(item) or [item])]
    return intervals


def _inside(query: Query, whole: Interval, intervals_max: int) -> Iterator[Interval]:
    """Yield the events of an interval by shorter ones."""
    length = max(1, -(-whole.length // intervals_max))
    end = min(whole.begin + whole.length, _TIME_MAX)
    inner = query.replace(start=whole.begin, end=end)
    estimate = whole.events > _EXACT_EVENTS_MAX
    groups = {"aggregate": "count", "every": f"{length}ns", "order_by": "ts"}
    for row in _ask(inner, estimate=estimate, **groups):
        begin = max(row["ts"], whole.begin)
        if row["count"]:
            yield Interval(begin, min(row["ts"] + length, end) - begin, row["count"])


def _ask(query: Query, **changes: Any) -> list[dict[str, Any]]:
    """Return groups. What they lack only makes parts uneven, and the parts report it."""
    with query.replace(fields=None, strict=False, **changes).rows_without_warnings() as rows:
        return list(rows)
