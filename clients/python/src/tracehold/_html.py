"""HTML for notebooks. Everything that comes from a trace or a server is escaped."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ._summary import Summary

_CELL_CHARS_MAX = 200
_COLUMNS_MAX = 40
_SECOND = 1_000_000_000
_COMMON = ("ts", "dur", "name", "cat", "pid", "tid")


def message(text: str) -> str:
    """Return a text as it is, with its lines."""
    return f"<pre>{escape(text)}</pre>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return a table; missing cells are empty."""
    head = "".join(f"<th>{escape(_shortened(column))}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def preview(rows: Sequence[Mapping[str, Any]], summary: Summary | None, *, is_cut: bool) -> str:
    """Return the first rows of a result, and what must be known about it."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = [name for name in _COMMON if name in names]
    columns += [name for name in names if name not in columns]
    notes = []
    if len(columns) > _COLUMNS_MAX:
        notes.append(f"{len(columns) - _COLUMNS_MAX} more columns are not shown")
        columns = columns[:_COLUMNS_MAX]
    cells = [[_shown(column, row.get(column)) for column in columns] for row in rows]
    caption = f"the first {len(rows)} rows" if is_cut else f"{len(rows)} rows"
    if summary is not None:
        notes += [summary.describe(), *summary.notes]
    return table(columns, cells, caption) + "".join(
        f"<p>{escape(note)}</p>" for note in notes if note
    )


def _shown(column: str, value: object) -> object:
    """Return a time as a date; the number is what programs get."""
    if column == "ts" and isinstance(value, int):
        seconds, nanoseconds = divmod(value, _SECOND)
        try:
            begin = datetime.fromtimestamp(seconds, timezone.utc)
        except (OverflowError, OSError, ValueError):
            return value
        return f"{begin:%Y-%m-%d %H:%M:%S}.{nanoseconds:09}"
    return value


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _shortened(value)
    if isinstance(value, (dict, list)):
        return _shortened(json.dumps(value, ensure_ascii=False))
    return _shortened(str(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _CELL_CHARS_MAX else text[: _CELL_CHARS_MAX - 1] + "…"
