"""A server that answers with given bytes, to see what a client does then."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

END = b""
"""Ends the connection instead of answering."""


@dataclass
class Scripted:
    """The answers, in order, and the requests that arrived."""

    answers: list[bytes]
    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    body_bytes_max: int | None = None
    """Answers when so much of a body has arrived, and closes, as a server that refuses."""

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while self.answers:
                head = b"".join(iter(stream.readline, b"\r\n"))
                if not head:
                    return
                length = 0
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                wanted = length if self.body_bytes_max is None else min(length, self.body_bytes_max)
                self.requests.append(head + b"\r\n" + stream.read(wanted))
                answer = self.answers.pop(0)
                if answer == END:
                    return
                connection.sendall(answer)
                if b"connection: close" in answer[:1000].lower():
                    return


@contextlib.contextmanager
def scripted(*answers: bytes, body_bytes_max: int | None = None) -> Iterator[Scripted]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Scripted(list(answers), body_bytes_max=body_bytes_max)
        found.url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    found.connections += 1
                    threading.Thread(target=found._serve, args=[connection], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield found


def answer(
    body: bytes = b"{}", status: str = "200 OK", kind: str = "application/json", **fields: str
) -> bytes:
    """Return a response with a length."""
    head = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}"]
    head += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def chunked(*pieces: bytes, end: bytes = b"0\r\n\r\n", kind: str = "application/x-ndjson") -> bytes:
    """Return a response in chunks that ends with `end`."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + end
