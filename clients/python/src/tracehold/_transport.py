"""Requests and responses over connections that are kept and reused."""

from __future__ import annotations

import http.client
import io
import json
import os
import select
import socket
import ssl
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from ._errors import (
    RefusedError,
    ResponseError,
    TLSError,
    TransportError,
    UnreachableError,
    refusal,
)
from ._retry import Budget, is_temporary, retry_after
from ._version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from email.message import Message
    from types import TracebackType

    from typing_extensions import Self

    from ._settings import Settings

_JSON_BYTES_MAX = 64 << 20
_PROBLEM_BYTES_MAX = 4 << 20
_TRAILER_LINE_BYTES_MAX = 64 << 10
_TRAILER_LINES_MAX = 100
_IDLE_CONNECTIONS_MAX = 8
_REFUSED_FROM = 400
_REDIRECT_FROM = 300


def path_of(*segments: str | int) -> str:
    """Join path segments, each percent-encoded."""
    return "".join("/" + quote(str(segment), safe="") for segment in segments)


def api(*segments: str | int) -> str:
    """Return a path of the API."""
    return path_of("api", "v1", *segments)


@dataclass(frozen=True)
class Call:
    """A request, as it can be sent again."""

    method: str
    path: str
    parameters: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    body: Sequence[bytes | memoryview] = ()
    repeatable: bool = True
    """Whether sending it twice has the effect of sending it once."""

    @property
    def target(self) -> str:
        """Path and query string."""
        return self.path + ("?" + urlencode(self.parameters) if self.parameters else "")

    @staticmethod
    def with_json(
        method: str, path: str, document: object, headers: Mapping[str, str] | None = None
    ) -> Call:
        """Return a request with a JSON body."""
        body = json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
        return Call(
            method, path, headers=headers or {}, content_type="application/json", body=[body]
        )


class _HTTPResponse(http.client.HTTPResponse):
    """A response that keeps its trailer fields, which `http.client` reads and drops."""

    trailers: Message | None = None

    def _read_and_discard_trailer(self) -> None:
        lines: list[bytes] = []
        while True:
            line = self.fp.readline(_TRAILER_LINE_BYTES_MAX + 1)
            if not line:
                missing = b""
                raise http.client.IncompleteRead(missing)
            if len(line) > _TRAILER_LINE_BYTES_MAX or len(lines) >= _TRAILER_LINES_MAX:
                limit = "trailer"
                raise http.client.LineTooLong(limit)
            lines.append(line)
            if line in {b"\r\n", b"\n"}:
                break
        self.trailers = http.client.parse_headers(io.BytesIO(b"".join(lines)))


class Response:
    """A response whose body is read in pieces; never more than a piece is in memory.

    A body that ends early is an error, never a short body.
    """

    def __init__(
        self,
        transport: Transport,
        connection: http.client.HTTPConnection,
        raw: http.client.HTTPResponse,
        call: Call,
    ) -> None:
        self._transport = transport
        self._connection: http.client.HTTPConnection | None = connection
        self._raw = raw
        self._call = call
        self.status = raw.status
        self.headers: Message = raw.headers
        if raw.length is None and not raw.chunked:
            self.close()
            why = "the response has neither a length nor chunks: its end cannot be recognized"
            message = transport.at(call, why)
            raise ResponseError(message)

    @property
    def closed(self) -> bool:
        """Whether nothing more can be read."""
        return self._connection is None

    @property
    def content_type(self) -> str:
        """The media type of the body."""
        return self.headers.get("content-type") or ""

    def header(self, name: str) -> str | None:
        """Return a field of the trailer, which is known at the end, or else of the header."""
        trailers: Message | None = getattr(self._raw, "trailers", None)
        value = None if trailers is None else trailers.get(name)
        return self.headers.get(name) if value is None else value

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, fewer only at the end; all of them if it is negative."""
        if size < 0:
            return self.read_all(_JSON_BYTES_MAX)
        if self._connection is None or size == 0:
            return b""
        try:
            data = self._raw.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error
        if len(data) < size:
            if self._raw.length:
                missing = f"{self._raw.length} bytes are missing"
                raise self._broken(missing)
            self._release()
        return data

    def read_all(self, bytes_max: int) -> bytes:
        """Return the rest of the body, which has at most `bytes_max` bytes."""
        pieces: list[bytes] = []
        total = 0
        while piece := self.read(1 << 20):
            total += len(piece)
            if total > bytes_max:
                self.close()
                message = self._transport.at(
                    self._call, f"the response is longer than {bytes_max} bytes"
                )
                raise ResponseError(message)
            pieces.append(piece)
        return b"".join(pieces)

    def finish(self) -> None:
        """Read to the end, where the trailer is."""
        while self.read(1 << 20):
            pass

    def json(self) -> Any:
        """Return the body, which is a JSON document."""
        body = self.read_all(_JSON_BYTES_MAX)
        try:
            return json.loads(body)
        except ValueError as error:
            message = self._transport.at(self._call, f"the response is not JSON: {error}")
            raise ResponseError(message) from None

    def close(self) -> None:
        """Give up what was not read, with its connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._raw.close()

    def readable(self) -> bool:
        """Whether this is a file to read, as readers of tables ask."""
        return True

    def writable(self) -> bool:
        """Whether this is a file to write."""
        return False

    def seekable(self) -> bool:
        """Whether this is a file with positions."""
        return False

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._raw.will_close:
                connection.close()
            else:
                self._transport.keep(connection)

    def _broken(self, why: object) -> TransportError:
        self.close()
        message = f"the response was interrupted, so that a part of it is missing: {why}"
        return TransportError(self._transport.at(self._call, message))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Transport:
    """Sends requests to one server. It may be used by several threads, and after a fork."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._bearer = settings.bearer()
        self._tls = settings.tls() if settings.is_encrypted else None
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()
        weakref.finalize(self, _close, self._idle)

    def at(self, call: Call, message: str) -> str:
        """Say which request a message is about."""
        return f"{call.method} {self.settings.shown_url}{call.path}: {message}"

    def send(self, call: Call) -> Response:
        """Send a request, again while the server is busy or the connection breaks."""
        budget = Budget(self.settings.retry)
        while True:
            try:
                return self.send_once(call)
            except RefusedError as error:
                if not is_temporary(error.status):
                    raise
                budget.wait(error, requested=error.retry_after)
            except TransportError as error:
                is_unreachable = isinstance(error, UnreachableError)
                if not call.repeatable and not is_unreachable:
                    raise
                wait_after_break(budget, error)

    def json(self, call: Call) -> Any:
        """Send a request whose response is a JSON document."""
        with self.send(call) as response:
            return response.json()

    def done(self, call: Call) -> None:
        """Send a request whose response does not matter."""
        with self.send(call) as response:
            response.read_all(_JSON_BYTES_MAX)

    def send_once(self, call: Call) -> Response:
        """Send a request once."""
        connection = self._idle_connection()
        if connection is not None:
            try:
                return self._exchange(connection, call)
            except TransportError:
                # The server closes connections that were idle for long; it says nothing of that.
                if not call.repeatable:
                    raise
        return self._exchange(self._connect(call), call)

    def keep(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection for the next request."""
        with self._lock:
            if self._process == os.getpid() and len(self._idle) < _IDLE_CONNECTIONS_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the connections that are kept."""
        with self._lock:
            _close(self._idle)

    def _idle_connection(self) -> http.client.HTTPConnection | None:
        with self._lock:
            if self._process != os.getpid():
                # They belong to the process that this one was forked from.
                self._process = os.getpid()
                _close(self._idle)
            while self._idle:
                connection = self._idle.pop()
                if connection.sock is not None and not _is_readable(connection.sock):
                    return connection
                connection.close()
        return None

    def _connect(self, call: Call) -> http.client.HTTPConnection:
        host, port = self.settings.address
        timeout = self.settings.connect_timeout
        connection: http.client.HTTPConnection
        if self._tls is None:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        connection.response_class = _HTTPResponse
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            if _is_refused_tls(error):
                raise self._tls_error(call, error) from error
            message = self.at(call, f"no connection to the server: {error}")
            raise UnreachableError(message) from error
        assert connection.sock is not None
        connection.sock.settimeout(self.settings.timeout)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _exchange(self, connection: http.client.HTTPConnection, call: Call) -> Response:
        try:
            self._send_head(connection, call)
            interrupted = _send_body(connection, call.body)
            raw = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if _is_refused_tls(error):
                raise self._tls_error(call, error) from error
            message = self.at(call, f"the connection broke before the response: {error!r}")
            raise TransportError(message) from error
        if interrupted:
            # The rest of the body was not sent: nothing else may follow on this connection.
            raw.will_close = True
        response = Response(self, connection, raw, call)
        if response.status < _REDIRECT_FROM:
            return response
        raise self._refusal(call, response)

    def _send_head(self, connection: http.client.HTTPConnection, call: Call) -> None:
        connection.putrequest(call.method, self.settings.path_prefix + call.target)
        connection.putheader("User-Agent", f"tracehold-python/{__version__}")
        # What was skipped is known only after the rows.
        connection.putheader("TE", "trailers")
        connection.putheader("Connection", "TE")
        if self._bearer is not None:
            connection.putheader("Authorization", f"Bearer {self._bearer}")
        for name, value in call.headers.items():
            connection.putheader(name, value)
        if call.content_type is not None:
            connection.putheader("Content-Type", call.content_type)
        if call.body or call.method in {"POST", "PUT", "PATCH"}:
            connection.putheader("Content-Length", str(sum(len(piece) for piece in call.body)))
        connection.endheaders()

    def _tls_error(self, call: Call, error: BaseException) -> TLSError:
        why = getattr(error, "verify_message", None) or str(error)
        return TLSError(self.at(call, f"no encrypted connection: {why}"))

    def _refusal(self, call: Call, response: Response) -> RefusedError:
        requested = retry_after(response.headers.get("retry-after"))
        status, content_type = response.status, response.content_type
        try:
            body = response.read_all(_PROBLEM_BYTES_MAX)
        except (TransportError, ResponseError):
            # The status alone is reported.
            body = b""
        error = refusal(status, content_type, body, requested)
        if not error.detail and not error.title:
            what = "redirected" if status < _REFUSED_FROM else "refused"
            error.detail = self.at(call, f"the request was {what}")
        return error


def wait_after_break(budget: Budget, error: TransportError) -> None:
    """Wait before a request is sent again whose connection broke; raise what would stay so."""
    if isinstance(error, TLSError):
        raise error
    budget.wait(error, unreachable=isinstance(error, UnreachableError))


def _is_refused_tls(error: BaseException) -> bool:
    """Whether a handshake was refused; a connection that broke may be whole the next time."""
    broken = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
    return isinstance(error, ssl.SSLError) and not isinstance(error, broken)


def _close(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


def _send_body(
    connection: http.client.HTTPConnection, pieces: Iterable[bytes | memoryview]
) -> bool:
    """Send the body; whether the server ended that, because it has refused the request already."""
    try:
        for piece in pieces:
            connection.send(piece)
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


def _is_readable(sock: socket.socket) -> bool:
    """Whether an idle connection has bytes, which means that it was closed."""
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(sock, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([sock], [], [], 0)[0])
    except (OSError, ValueError):
        return True
