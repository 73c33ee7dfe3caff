"""Bodies with several byte ranges (`multipart/byteranges`, RFC 9110)."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING

from ._errors import ResponseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._transport import Response

_HEAD_BYTES_MAX = 8 << 10
_PIECE_BYTES = 1 << 20
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(?:\d{1,19}|\*)", re.IGNORECASE)
_BOUNDARY = re.compile(
    r'multipart/byteranges\s*;.*\bboundary=(?:"([^"]+)"|([^\s;]+))', re.IGNORECASE
)


def parts(response: Response) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of a response with their offsets, in the order in which they are sent."""
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        yield from _run(response, 0, None)
        return
    boundary = _BOUNDARY.match(response.content_type)
    if boundary is None:
        begin, end = _content_range(response.headers.get("content-range") or "")
        yield from _run(response, begin, end - begin)
        response.finish()
        return
    delimiter = b"--" + (boundary[1] or boundary[2]).encode()
    lines = _Lines(response)
    while not lines.is_last_delimiter(delimiter):
        begin, end = _content_range(lines.part_head())
        yield from _run(response, begin, end - begin)
    response.finish()


def _run(response: Response, begin: int, length: int | None) -> Iterator[tuple[int, bytes]]:
    at, left = begin, length
    while left is None or left > 0:
        piece = response.read(_PIECE_BYTES if left is None else min(left, _PIECE_BYTES))
        if not piece:
            if left is None:
                return
            message = f"{left} bytes of a range are missing"
            raise ResponseError(message)
        yield at, piece
        at += len(piece)
        left = None if left is None else left - len(piece)


class _Lines:
    """Delimiters and heads of parts, which are short lines."""

    def __init__(self, response: Response) -> None:
        self._response = response

    def is_last_delimiter(self, delimiter: bytes) -> bool:
        """Read up to the next delimiter; whether it is that of the end."""
        line = b""
        while line not in {delimiter, delimiter + b"--"}:
            line = self._line()
        return line.endswith(b"--") and line != delimiter

    def part_head(self) -> str:
        """Read the head of a part and return its `Content-Range`."""
        found = ""
        while line := self._line():
            name, _, value = line.decode("latin-1").partition(":")
            if name.strip().lower() == "content-range":
                found = value.strip()
        return found

    def _line(self) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n"):
            byte = self._response.read(1)
            if line and not byte:
                # The last delimiter need not end its line.
                break
            if not byte or len(line) > _HEAD_BYTES_MAX:
                message = "a response with several ranges ends in a head, or a head is too long"
                raise ResponseError(message)
            line += byte
        return bytes(line).rstrip(b"\r\n")


def _content_range(value: str) -> tuple[int, int]:
    """Read a `Content-Range` as a half-open range."""
    match = _CONTENT_RANGE.fullmatch(value)
    if match is None or int(match[2]) < int(match[1]):
        message = f"the response names an invalid range of bytes: {value[:100]!r}"
        raise ResponseError(message)
    return int(match[1]), int(match[2]) + 1
