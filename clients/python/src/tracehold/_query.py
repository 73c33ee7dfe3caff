"""Queries: what is asked, and the forms in which the result can be had."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from . import _html, _splits, _tables
from ._errors import ResponseError, TraceholdError
from ._replacing import replacing
from ._rows import Rows
from ._summary import Summary
from ._times import Duration, Time, duration_of, time_of
from ._transport import Call, api

if TYPE_CHECKING:
    import os

    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from ._server import Server
    from ._transport import Response

Fields = str | Sequence[str]
"""Fields separated by commas, or a sequence of them."""
FileFormat = Literal["ndjson", "csv", "text", "arrow", "parquet", "perfetto", "chrome"]

_PREVIEW_ROWS = 20
_PIECE_BYTES = 1 << 20
_ARROW: FileFormat = "arrow"


class QueryOptions(TypedDict, total=False):
    """The options of a query beside its expression and times: those of `Options`."""

    fields: Fields | None
    group_by: Fields | None
    aggregate: Fields | None
    every: Duration | None
    histogram: str | None
    estimate: bool
    order_by: Fields | None
    limit: int | None
    offset: int
    derived: bool
    strict: bool | None


@dataclass(frozen=True)
class Options:
    """The options of a query; `docs/query.md` describes them."""

    expression: str | None = None
    start: Time | None = None
    """Only events that start at or after this time."""
    end: Time | None = None
    """Only events that start before this time."""
    fields: Fields | None = None
    group_by: Fields | None = None
    aggregate: Fields | None = None
    every: Duration | None = None
    histogram: str | None = None
    estimate: bool = False
    order_by: Fields | None = None
    limit: int | None = None
    offset: int = 0
    derived: bool = False
    strict: bool | None = None
    """Refuse a result that lacks something; by default as the connection says."""

    @property
    def is_grouped(self) -> bool:
        """Whether the result has groups instead of events."""
        return any((self.group_by, self.aggregate, self.every, self.histogram))

    def request(self, **more: object) -> dict[str, Any]:
        """Return the body of a request."""
        body: dict[str, Any] = {
            "query": self.expression,
            "from": None if self.start is None else time_of(self.start),
            "to": None if self.end is None else time_of(self.end),
            "fields": _list(self.fields),
            "group_by": _text(self.group_by),
            "aggregate": _text(self.aggregate),
            "every": None if self.every is None else duration_of(self.every),
            "histogram": self.histogram,
            "estimate": self.estimate,
            "order_by": _text(self.order_by),
            "limit": self.limit,
            "offset": self.offset or None,
            "derived": self.derived,
            "strict": bool(self.strict),
            **more,
        }
        # What is not given is omitted, so that servers of earlier versions accept it.
        return {
            name: value for name, value in body.items() if value is not None and value is not False
        }


@dataclass(repr=False)
class Query:
    """A query. It runs whenever its result is asked for.

    It can be pickled, and then runs where it was unpickled.
    """

    server: Server
    storages: tuple[str, ...] | None
    """The ids or names of the storages, or `None` for all of them."""
    options: Options
    split: _splits.Split | None = None
    """The part of the events that is meant; `splits` makes such queries."""
    summary: Summary | None = field(default=None, init=False, compare=False)
    """What the last result that was received to its end says about itself."""

    def replace(self, **changes: Any) -> Query:
        """Return the same query with other options, such as `limit=10`."""
        return Query(self.server, self.storages, replace(self.options, **changes), self.split)

    def rows(self) -> Rows:
        """Return an iterator over events, or groups, as dictionaries; times are nanoseconds."""
        return Rows(self._send(format="ndjson"), self._finish)

    def count(self) -> int:
        """Return the number of matching events, if possible without reading them."""
        with self._send(count=True) as response:
            answer = response.json()
            self._finish(Summary.of(response))
        count = answer.get("count") if isinstance(answer, dict) else None
        if not isinstance(count, int):
            message = f"a response without a count: {answer!r}"
            raise ResponseError(message)
        return count

    def event_fields(self) -> list[dict[str, Any]]:
        """Return the fields of the matching events by kind, with types and numbers of events."""
        with Rows(self._send(list_fields=True, format="ndjson"), self._finish) as rows:
            return list(rows)

    def explain(self) -> dict[str, Any]:
        """Run the query and return what was ruled out and what was read, without the result."""
        with Rows(self._send(explain=True, format="ndjson"), self._finish) as rows:
            for _ in rows:
                pass
        if rows.explanation is None:
            message = "a response without the explanation that was asked for"
            raise ResponseError(message)
        return rows.explanation

    def reader(self) -> pa.RecordBatchReader:
        """Return the result as Arrow record batches as they arrive, with one batch in memory."""
        return _tables.reader(lambda: self._send(format=_ARROW), self._finish)

    def arrow(self) -> pa.Table:
        """Return the result as a table of pyarrow."""
        return _tables.table(lambda: self._send(format=_ARROW), self._finish)

    def pandas(self, *, categories: bool = False) -> pd.DataFrame:
        """Return the result as a data frame of pandas, whose integers stay exact beside nulls.

        Texts are categorical with `categories=True`, which takes less memory; the categories of
        two results are not the same.
        """
        return _tables.to_pandas(self.arrow(), categories=categories)

    def polars(self, *, categories: bool = False) -> pl.DataFrame:
        """Return the result as a data frame of Polars."""
        return _tables.to_polars(self.arrow(), categories=categories)

    def duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Return the result as a relation of DuckDB, by default of its default connection."""
        return _tables.to_duckdb(self.arrow(), connection)

    def write(self, path: str | os.PathLike[str], format: FileFormat | None = None) -> Path:  # noqa: A002
        """Write the result to a file, which gets its name once it is complete.

        Without a format, the ending decides: `.parquet`, `.arrow`, `.csv`, `.ndjson`, `.txt` or
        `.pftrace`.
        """
        target = Path(path)
        chosen = format or _format_of(target)
        with replacing(target) as out:
            with self._send(format=chosen) as response:
                while piece := response.read(_PIECE_BYTES):
                    out.write(piece)
            self._finish(Summary.of(response))
        return target

    def splits(self, count: int) -> list[Query]:
        """Return about `count` queries, each of a part of the events, for several workers.

        Every event is in exactly one part, so that the results together are that of this query; of
        a storage that is still written, as it was when it was split. Parts have about the same
        number of bytes to read, and may be of one stream or of many. Each is in order of time.
        `part.split` has its size.
        """
        return _splits.splits(self, count)

    def _send(self, **more: object) -> Response:
        options = self.options
        if options.strict is None:
            options = replace(options, strict=self.server.settings.strict)
        if self.split is not None:
            more["split"] = self.split.value
        return self.send("", options.request(**more))

    def send(self, part: str, body: dict[str, Any]) -> Response:
        """Send a request to a path below that of the query."""
        below = [part] if part else []
        if self.storages is not None and len(self.storages) == 1 and is_id(self.storages[0]):
            path = api("storages", self.storages[0], "query", *below)
        else:
            path = api("query", *below)
            if self.storages is not None:
                body = body | {"storages": list(self.storages)}
        return self.server.transport.send(Call.with_json("POST", path, body))

    def _finish(self, summary: Summary) -> Summary:
        self.summary = summary
        strict = self.options.strict
        return summary.report(strict=self.server.settings.strict if strict is None else strict)

    def __repr__(self) -> str:
        options = [repr(self.options.expression)] if self.options.expression else []
        options += [
            f"{option.name}={getattr(self.options, option.name)!r}"
            for option in fields(self.options)
            if option.name != "expression" and getattr(self.options, option.name) != option.default
        ]
        return f"<Query {', '.join(options)}>" if options else "<Query for all events>"

    def _repr_html_(self) -> str:
        options = self.options
        shown = min(options.limit or _PREVIEW_ROWS, _PREVIEW_ROWS)
        preview = self.replace(limit=shown)
        try:
            with preview.rows_without_warnings() as rows:
                found = list(rows)
        except TraceholdError as error:
            return _html.message(str(error))
        return _html.preview(found, rows.summary, is_cut=len(found) == _PREVIEW_ROWS)

    def rows_without_warnings(self) -> Rows:
        """As `rows`, for a caller who reads the summary of the rows."""
        return Rows(self._send(format="ndjson"), lambda summary: summary)


def is_id(text: str) -> bool:
    """Whether a text is the id of a storage, and not its name."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _text(names: Fields | None) -> str | None:
    return names if names is None or isinstance(names, str) else ",".join(names)


def _list(names: Fields | None) -> list[str] | None:
    """Return fields as a list, which a comma in brackets or backquotes does not separate."""
    if names is None or not isinstance(names, str):
        return None if names is None else list(names)
    found, depth, quoted = [""], 0, False
    for character in names:
        quoted ^= character == "`"
        depth += 0 if quoted else (character == "(") - (character == ")")
        if character == "," and depth == 0 and not quoted:
            found.append("")
        else:
            found[-1] += character
    return [name.strip() for name in found]


def _format_of(path: Path) -> FileFormat:
    formats: dict[str, FileFormat] = {
        ".parquet": "parquet",
        ".arrow": "arrow",
        ".arrows": "arrow",
        ".csv": "csv",
        ".json": "chrome",
        ".ndjson": "ndjson",
        ".jsonl": "ndjson",
        ".txt": "text",
        ".pftrace": "perfetto",
        ".perfetto-trace": "perfetto",
    }
    found = formats.get(path.suffix)
    if found is None:
        endings = ", ".join(formats)
        message = f"{path}: no format has this ending; write one of {endings}, or name the format"
        raise ValueError(message)
    return found
