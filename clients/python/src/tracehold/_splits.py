"""Parts of a query, for several workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ._errors import ResponseError

if TYPE_CHECKING:
    from ._query import Query

_SELECTING = ("query", "from", "to", "derived")
"""What of a query decides which events are meant."""


@dataclass(frozen=True)
class Split:
    """A part of the events of a query, as the server cut it."""

    value: str
    """What the server calls it: ranges of its streams, in bytes."""
    bytes: int
    """Bytes that are read for it, as stored."""
    events: int
    """Events among these bytes, as far as their number is known; not all of them match."""


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
    if query.split is not None:
        message = "a part has no parts: split the whole query"
        raise ValueError(message)
    body = {name: value for name, value in options.request().items() if name in _SELECTING}
    with query.send("splits", body | {"count": count}) as response:
        answer = response.json()
    try:
        return [replace(query, split=_split(entry)) for entry in answer["splits"]]
    except (KeyError, TypeError):
        message = f"a response without splits: {answer!r}"
        raise ResponseError(message) from None


def _split(entry: dict[str, Any]) -> Split:
    return Split(str(entry["split"]), int(entry["bytes"]), int(entry["events"]))
