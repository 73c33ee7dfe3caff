"""A data source of Ray: `ray.data.read_datasource(TraceholdDatasource(query))`.

It needs `pip install 'tracehold[ray]'`, here and on every worker.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from . import _engines

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from ray.data import DataContext

    from ._query import Query

__all__ = ["TraceholdDatasource"]


class TraceholdDatasource(Datasource):
    """The events of a query, which the workers of Ray read in parts.

    A result that lacks something is an error, unless the query says `strict=False`.
    """

    def __init__(self, query: Query) -> None:
        super().__init__()
        self._query = _engines.prepared(query)

    def get_name(self) -> str:
        """Return the name that Ray shows."""
        return "Tracehold"

    def estimate_inmemory_data_size(self) -> int | None:
        """Return `None`: what is stored is compressed, and filters are not decided yet."""
        return None

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,  # noqa: ARG002
    ) -> list[ReadTask]:
        """Return a task for each part of the query, of which there are about `parallelism`."""
        schema = _engines.schema(self._query, exact_times=False)
        return [
            ReadTask(
                partial(_read, part),
                # The number of matching events is known when they were read.
                BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None),
                schema=schema,
                per_task_row_limit=per_task_row_limit,
            )
            for part in _engines.parts(self._query, max(parallelism, 1))
        ]


def _read(part: Query) -> Iterable[pa.Table]:
    import pyarrow  # noqa: PLC0415, ICN001  (this runs in a worker)

    for batch in _engines.batches(part, exact_times=False):
        yield pyarrow.Table.from_batches([batch])
