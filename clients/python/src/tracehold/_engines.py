"""What readers in several processes share: parts of a query, and batches of plain columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._query import Query

_BYTES_PER_PART = 8 << 20
"""Bytes of a part, as stored, where nobody says how many parts there are."""
_PARTS_MAX = 1024


def prepared(query: Query) -> Query:
    """Return the query as workers run it: a warning in the log of a worker is seen by nobody."""
    return query.replace(strict=True) if query.options.strict is None else query


def parts(query: Query, count: int | None) -> list[Query]:
    """Return about `count` parts of a query, or as many as its size calls for."""
    if count is not None:
        return query.splits(count)
    whole = query.splits(1)
    size = sum(part.split.bytes for part in whole if part.split is not None)
    wanted = min(-(-size // _BYTES_PER_PART), _PARTS_MAX)
    return query.splits(wanted) if wanted > 1 else whole


def schema(query: Query, *, exact_times: bool) -> pa.Schema:
    """Return the columns of the result, which its rows do not decide."""
    # No event is in a window without length, so none is read.
    with query.replace(start=0, end=0).reader() as reader:
        return pa.schema(
            [field.with_type(_plain_type(field.type, exact_times)) for field in reader.schema]
        )


def batches(query: Query, *, exact_times: bool) -> Iterator[pa.RecordBatch]:
    """Yield batches without dictionaries, of which every batch has its own."""
    with query.reader() as reader:
        for batch in reader:
            columns = [
                column.cast(_plain_type(column.type, exact_times)) for column in batch.columns
            ]
            yield pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _plain_type(of: pa.DataType, exact_times: bool) -> pa.DataType:  # noqa: FBT001
    if pa.types.is_dictionary(of):
        return of.value_type
    if exact_times and pa.types.is_timestamp(of):
        return pa.int64()
    return of
