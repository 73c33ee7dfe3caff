"""What can fail, and what must be known about a result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ._retry import is_temporary

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXCERPT_CHARS_MAX = 200


class TraceholdError(Exception):
    """Every error of this package."""


class TransportError(TraceholdError):
    """The connection failed, or ended before the response was complete."""


class UnreachableError(TransportError):
    """No connection could be made, so that nothing of the request reached the server."""


class TLSError(TransportError):
    """No encrypted connection: a certificate is missing or not trusted. Waiting does not help."""


class ResponseError(TraceholdError):
    """The response is not one of a Tracehold server."""


class ChecksumError(TraceholdError):
    """The bytes that arrived do not have the checksum that the server names."""


class RefusedError(TraceholdError):
    """The server refused a request; the attributes are those of its problem document."""

    def __init__(
        self, status: int, document: Mapping[str, Any], retry_after: float | None = None
    ) -> None:
        self.status = status
        self.retry_after = retry_after
        self.document = dict(document)
        self.code = _text(document, "code")
        self.title = _text(document, "title")
        self.detail = _text(document, "detail")
        self.cause = _text(document, "cause")
        self.remedy = _text(document, "remedy")
        self.instance = _text(document, "instance")
        named = {"type", "status", "code", "title", "detail", "cause", "remedy", "instance"}
        self.more = {name: value for name, value in document.items() if name not in named}
        super().__init__(status, dict(document), retry_after)

    def __reduce__(self) -> tuple[type[RefusedError], tuple[object, ...]]:
        """Pickle it without `args`, to which Ray Data adds one of its own."""
        return type(self), (self.status, self.document, self.retry_after)

    def __str__(self) -> str:
        what = self.detail or self.title or "the server refused the request without a reason"
        code = f"{self.code}, " if self.code else ""
        lines = [f"{what} ({code}HTTP {self.status})"]
        if self.cause:
            lines.append(f"cause: {self.cause}")
        if self.remedy:
            lines.append(f"remedy: {self.remedy}")
        if self.instance:
            lines.append(f"request: {self.instance}")
        return "\n".join(lines)


class NotFoundError(RefusedError):
    """What the request names does not exist, or not for this token (404, 410)."""


class AccessError(RefusedError):
    """The token is missing or unknown, or its role or scope does not suffice (401, 403)."""


class ConflictError(RefusedError):
    """The state of the server does not allow the request (409, 412)."""


class IncompleteResultError(ConflictError):
    """The request is strict, and something that it needs cannot be read."""


class ExpressionError(RefusedError):
    """The query is not an expression; the message shows where (400)."""


class BusyError(RefusedError):
    """The server could not accept the request within the time for retries (429, 503, 507)."""


class IncompleteResultWarning(UserWarning):
    """A result lacks something that cannot be read."""


class ResultNoteWarning(UserWarning):
    """What a reader of a result must know, such as that numbers are estimates."""


def refusal(
    status: int, content_type: str, body: bytes, retry_after: float | None = None
) -> RefusedError:
    """Return the error of a response with this status and body."""
    return refusal_of(status, _document(content_type, body), retry_after)


def refusal_of(
    status: int, document: Mapping[str, Any], retry_after: float | None = None
) -> RefusedError:
    """Return the error of a problem document."""
    return _class_of(status, document.get("code"))(status, document, retry_after)


def _class_of(status: int, code: object) -> type[RefusedError]:
    by_code = {
        "expression_malformed": ExpressionError,
        "result_incomplete": IncompleteResultError,
        "storage_incomplete": IncompleteResultError,
    }
    by_status = {
        401: AccessError,
        403: AccessError,
        404: NotFoundError,
        410: NotFoundError,
        409: ConflictError,
        412: ConflictError,
    }
    if is_temporary(status):
        return BusyError
    return by_code.get(str(code)) or by_status.get(status, RefusedError)


def _document(content_type: str, body: bytes) -> dict[str, Any]:
    if "json" in content_type:
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        if isinstance(document, dict):
            return document
    # A proxy may have answered.
    line = " ".join(body.decode("utf-8", "replace").split())
    return {"detail": line[:_EXCERPT_CHARS_MAX]}


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""
