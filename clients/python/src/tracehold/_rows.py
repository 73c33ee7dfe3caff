"""Rows of a result as they arrive: one JSON document a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._errors import ResponseError
from ._summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from typing_extensions import Self

    from ._transport import Response

_PIECE_BYTES = 64 << 10
_LINE_BYTES_MAX = 256 << 20


class Rows:
    """An iterator over the rows of a result. Only a piece of the result is in memory.

    The rows of a result that breaks in the middle end with an error, never early. `summary` is
    known after the last row. Use it in a `with` statement, or call `close`, to stop before the end.
    """

    def __init__(self, response: Response, finish: Callable[[Summary], Summary]) -> None:
        self._end = _End()
        # It does not refer to this object, so that dropping this closes the response at once.
        self._rows = _read(response, self._end, finish)
        self._response = response

    @property
    def summary(self) -> Summary | None:
        """What the result says about itself, once all rows were read."""
        return self._end.summary

    @property
    def explanation(self) -> dict[str, Any] | None:
        """What was ruled out and read, if that was asked for, once all rows were read."""
        return self._end.explanation

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        return next(self._rows)

    def close(self) -> None:
        """Stop the query on the server, unless all rows were read."""
        self._rows.close()
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class _End:
    """What is known after the last row."""

    summary: Summary | None = None
    explanation: dict[str, Any] | None = None


def _read(
    response: Response, end: _End, finish: Callable[[Summary], Summary]
) -> Generator[dict[str, Any], None, None]:
    """Yield rows. A line is held back until another one or the trailer says what it is."""
    held: dict[str, Any] | None = None
    count = 0
    with response:
        for line in lines(response):
            if held is not None:
                count += 1
                yield held
            held = _document(line)
        summary = Summary.of(response)
        if held is not None and _is_row(held, count, summary):
            count += 1
            yield held
        elif held is not None and "explain" in held:
            end.explanation = held
        if summary.rows is not None and count != summary.rows:
            message = f"{count} rows arrived, and the server says that it sent {summary.rows}"
            raise ResponseError(message)
    end.summary = finish(summary)


def _is_row(line: dict[str, Any], rows_before: int, summary: Summary) -> bool:
    """Whether the last line is a row, and not about the result: rows may look like that, too."""
    if summary.rows is not None:
        return rows_before < summary.rows
    return line.keys() != {"summary"} and not {"explain", "notes", "skipped"} <= line.keys()


def lines(response: Response) -> Iterator[bytes]:
    """Yield the lines of a body."""
    rest = bytearray()
    while piece := response.read(_PIECE_BYTES):
        *complete, last = piece.split(b"\n")
        for line in complete:
            rest += line
            if rest:
                yield bytes(rest)
            rest.clear()
        rest += last
        if len(rest) > _LINE_BYTES_MAX:
            message = f"the response has a line of more than {_LINE_BYTES_MAX} bytes"
            raise ResponseError(message)
    if rest:
        yield bytes(rest)


def _document(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        message = f"a line of the response is not a JSON object: {line[:100]!r}"
        raise ResponseError(message)
    return row
