"""A data source of Spark 4: `spark.dataSource.register(TraceholdDataSource)`.

It needs `pip install 'tracehold[spark]'`, here and on every executor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from . import _engines
from ._query import Options, Query
from ._server import connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["TraceholdDataSource"]

_CONNECTION = ("url", "token", "token_file", "ca_file", "client_certificate", "client_key")
_SELECTION = ("storage", "query", "from", "to", "fields", "derived", "strict", "splits")
_TYPES: dict[pa.DataType, type[DataType]] = {
    pa.int64(): LongType,
    pa.float64(): DoubleType,
    pa.bool_(): BooleanType,
    pa.string(): StringType,
}


class TraceholdDataSource(DataSource):
    """The events of a storage, or of all storages, as a table of Spark.

    Options: `storage` (name or id), `query`, `from`, `to`, `fields`, `derived`, `strict` (true
    unless it says `false`), `splits` (about how many partitions), and those of
    `tracehold.connect`. Times are nanoseconds, as numbers: Spark's own have microseconds only.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tracehold"

    def schema(self) -> StructType:
        """Return the columns of the query."""
        columns = _engines.schema(_query(self.options), exact_times=True)
        return StructType([StructField(one.name, _TYPES[one.type]()) for one in columns])

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return what reads the query."""
        splits = self.options.get("splits")
        return _Reader(_query(self.options), None if splits is None else int(splits))


@dataclass
class _Reader(DataSourceReader):
    """What reads a query. It takes no filters from Spark.

    Spark keeps the parts with the data frame. A reader that took the filter of one question (in
    4.3, with `spark.sql.python.filterPushdown.enabled`) gives the same few rows to the next one.
    """

    query: Query
    splits: int | None

    def partitions(self) -> list[InputPartition]:
        """Return the parts of the query."""
        return [InputPartition(part) for part in _engines.parts(self.query, self.splits)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a part."""
        part: Query = partition.value
        return _engines.batches(part, exact_times=True)


def _query(options: Mapping[str, str]) -> Query:
    unknown = sorted(set(options) - {*_CONNECTION, *_SELECTION})
    if unknown:
        known = ", ".join((*_SELECTION, *_CONNECTION))
        message = f"unknown option {unknown[0]!r}; options are {known}"
        raise ValueError(message)
    server = connect(
        options.get("url"),
        token=options.get("token"),
        token_file=options.get("token_file"),
        ca_file=options.get("ca_file"),
        client_certificate=options.get("client_certificate"),
        client_key=options.get("client_key"),
    )
    storage = options.get("storage")
    asked = Options(
        expression=options.get("query"),
        start=options.get("from"),
        end=options.get("to"),
        fields=options.get("fields"),
        derived=_flag(options, "derived", default=False),
        strict=_flag(options, "strict", default=True),
    )
    return Query(server, None if storage is None else (storage,), asked)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        message = f"option {name!r} is {text!r}; expected true or false"
        raise ValueError(message)
    return text == "true"
