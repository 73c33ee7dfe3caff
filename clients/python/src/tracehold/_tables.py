"""Results as tables of pyarrow, pandas, Polars and DuckDB, which need not be installed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from ._transport import Response


def _load(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        message = f"this needs the package {name}: pip install 'tracehold[{extra}]'"
        raise ModuleNotFoundError(message, name=name) from None


def reader(
    send: Callable[[], Response], finish: Callable[[Summary], Summary]
) -> pa.RecordBatchReader:
    """Return batches as they arrive; after the last one the summary of the result is reported."""
    pyarrow, ipc = _load("pyarrow", "arrow"), _load("pyarrow.ipc", "arrow")
    response = send()
    try:
        stream = ipc.open_stream(response)
    except BaseException:
        response.close()
        raise

    def batches() -> Iterator[pa.RecordBatch]:
        with response:
            yield from stream
            response.finish()
        finish(Summary.of(response))

    return pyarrow.RecordBatchReader.from_batches(stream.schema, batches())


def table(send: Callable[[], Response], finish: Callable[[Summary], Summary]) -> pa.Table:
    """Return the complete result."""
    _load("pyarrow", "arrow")
    ipc = _load("pyarrow.ipc", "arrow")
    with send() as response:
        found = ipc.open_stream(response).read_all()
        response.finish()
    finish(Summary.of(response))
    return found


def plain_texts(found: pa.Table) -> pa.Table:
    """Return the table with texts instead of indexes into dictionaries."""
    pyarrow = _load("pyarrow", "arrow")
    fields = [
        field.with_type(field.type.value_type) if pyarrow.types.is_dictionary(field.type) else field
        for field in found.schema
    ]
    return found.cast(pyarrow.schema(fields, metadata=found.schema.metadata))


def to_pandas(found: pa.Table, *, categories: bool) -> pd.DataFrame:
    """Return a data frame with types that have nulls, so that integers are not rounded."""
    pyarrow = _load("pyarrow", "arrow")
    pandas = _load("pandas", "pandas")
    types = {pyarrow.int64(): pandas.Int64Dtype(), pyarrow.bool_(): pandas.BooleanDtype()}
    shown = found if categories else plain_texts(found)
    if not categories:
        types[pyarrow.string()] = pandas.StringDtype()
    frame: pd.DataFrame = shown.to_pandas(types_mapper=types.get)
    return frame


def to_polars(found: pa.Table, *, categories: bool) -> pl.DataFrame:
    """Return a data frame of Polars."""
    polars = _load("polars", "polars")
    frame: pl.DataFrame = polars.from_arrow(found if categories else plain_texts(found))
    return frame


def to_duckdb(
    found: pa.Table, connection: duckdb.DuckDBPyConnection | None
) -> duckdb.DuckDBPyRelation:
    """Return a relation that holds the table."""
    duckdb = _load("duckdb", "duckdb")
    return (connection or duckdb).from_arrow(found)
