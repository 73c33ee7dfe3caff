"""Storages: their state, labels, packets, files, and queries over them."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _html
from ._errors import ConflictError, NotFoundError, RefusedError, refusal_of
from ._files import File, Range
from ._packets import Packet
from ._push import Producer, Receipt
from ._query import Options, Query
from ._summary import Summary
from ._times import Time, time_of
from ._transport import Call, api

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from typing_extensions import Unpack

    from ._query import QueryOptions
    from ._server import Server

LabelValue = str | Sequence[str]
_POLL_SECONDS_FIRST = 0.05
_POLL_SECONDS_MAX = 2.0
_PAGE = 1000


class Storage:
    """A storage. Its attributes are as of when it was fetched; `refresh` fetches them again."""

    def __init__(self, server: Server, document: Mapping[str, Any]) -> None:
        self.server = server
        self.id: str = document["id"]
        self._read(document)

    def _read(self, document: Mapping[str, Any]) -> None:
        self.document = dict(document)
        self.name: str = document["name"]
        self.description: str = document.get("description", "")
        self.state: str = document["state"]
        self.labels: dict[str, str | list[str]] = dict(document.get("labels") or {})
        self.bytes: int = document.get("bytes", 0)
        self.stored_bytes: int = document.get("stored_bytes", 0)
        self.packet_count: int = document.get("packets", 0)
        self.event_count: int = document.get("events", 0)
        self.uncounted_packets: int | None = document.get("uncounted_packets")
        self.lost: int = document.get("lost", 0)
        self.begin: int | None = document.get("begin")
        self.end: int | None = document.get("end")
        self.created: str | None = document.get("created")
        self.finalized: str | None = document.get("finalized")
        self.failure: str | None = document.get("failure")

    def refresh(self) -> Storage:
        """Fetch the attributes again."""
        self._read(self.server.transport.json(Call("GET", api("storages", self.id))))
        return self

    # Changes

    def open(self) -> Storage:
        """Open a created storage for packets."""
        self._read(self.server.transport.json(Call("POST", api("storages", self.id, "open"))))
        return self

    def finalize(self, timeout: float | None = None) -> Storage:
        """Make the storage immutable, and return when it is.

        Raises `TimeoutError` after `timeout` seconds; the server goes on then.
        """
        call = Call(
            "POST", api("storages", self.id, "finalize"), headers={"Prefer": "respond-async"}
        )
        job = self.server.transport.json(call)
        limit = None if timeout is None else time.monotonic() + timeout
        delay = _POLL_SECONDS_FIRST
        # A server whose jobs are all in use finalizes without one, and answers with the storage.
        while job.get("state") == "RUNNING":
            if limit is not None and time.monotonic() + delay > limit:
                message = f"storage {self.name!r} is not finalized after {timeout} s"
                raise TimeoutError(message)
            time.sleep(delay)
            delay = min(delay * 1.5, _POLL_SECONDS_MAX)
            job = self.server.transport.json(Call("GET", api("jobs", job["id"])))
        if job.get("state") in {"FAILED", "CANCELLED"}:
            raise _problem_of(job)
        return self.refresh()

    def delete(self) -> None:
        """Delete the storage with all its files."""
        self.server.transport.done(Call("DELETE", api("storages", self.id)))

    def update(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        labels: Mapping[str, LabelValue] | None = None,
    ) -> Storage:
        """Change what is given; `labels` are all labels, others are removed."""
        changes = {"name": name, "description": description, "labels": labels}
        document = {key: value for key, value in changes.items() if value is not None}
        call = Call.with_json("PATCH", api("storages", self.id), document)
        self._read(self.server.transport.json(call))
        return self

    # Reading

    def query(
        self,
        expression: str | None = None,
        *,
        start: Time | None = None,
        end: Time | None = None,
        **options: Unpack[QueryOptions],
    ) -> Query:
        """Return a query over the storage, which runs when its result is asked for.

        `options` are those of `tracehold.Options`.
        """
        asked = Options(expression=expression, start=start, end=end, **options)
        return Query(self.server, (self.id,), asked)

    def splits(
        self,
        count: int,
        expression: str | None = None,
        *,
        start: Time | None = None,
        end: Time | None = None,
        **options: Unpack[QueryOptions],
    ) -> list[Query]:
        """Return about `count` queries, each of a part of the events: see `Query.splits`."""
        return self.query(expression, start=start, end=end, **options).splits(count)

    def packets(
        self,
        *,
        agent: str | None = None,
        stream: str | None = None,
        kind: str | None = None,
        start: Time | None = None,
        end: Time | None = None,
        query: str | None = None,
        provenance: bool = False,
        strict: bool | None = None,
    ) -> Iterator[Packet]:
        """Yield packets in order of their numbers, those that the indexes do not rule out.

        Of a storage that is damaged, packets behind the damage are not listed, which is a warning,
        or an error if `strict`.
        """
        parameters = {
            "agent": agent,
            "stream": stream,
            "kind": kind,
            "from": None if start is None else str(time_of(start)),
            "to": None if end is None else str(time_of(end)),
            "query": query,
            "provenance": "true" if provenance else None,
        }
        strict = self.server.settings.strict if strict is None else strict
        path = api("storages", self.id, "descriptors")
        reported = False
        for items, skipped in self.server.pages(path, parameters):
            if skipped and not reported:
                reported = True
                reason = f"packets of {self.name!r} behind a damage are not listed"
                Summary(rows=None, skipped=skipped, reasons=(reason,)).report(strict=strict)
            for item in items:
                yield Packet.of(self.server.transport, self.id, item)

    def files(self) -> list[File]:
        """Return the files of the storage."""
        document = self.server.transport.json(Call("GET", api("storages", self.id, "files")))
        return [File.of(self.server.transport, self.id, file) for file in document["files"]]

    def file(self, name: str) -> File:
        """Return the file with this name."""
        for file in self.files():
            if file.name == name:
                return file
        message = f"storage {self.name!r} has no file {name!r}; files() lists those that it has"
        raise FileNotFoundError(message)

    def read_ranges(self, file: str, ranges: Iterable[Range]) -> list[bytes]:
        """Return the bytes of half-open ranges of a file; the storage must be finalized."""
        return self.file(file).read_ranges(ranges)

    def status(self) -> dict[str, Any]:
        """Return the state of writing, and damage that the server knows."""
        document = self.server.transport.json(Call("GET", api("storages", self.id, "status")))
        return dict(document)

    # Pushing

    def producer(
        self, agent: str, stream: str, *, kind: str | None = None, epoch: int | None = None
    ) -> Producer:
        """Return what pushes packets of a stream in order, each exactly once.

        With a `kind`, such as `dft` or `raw`, the agent is registered if it is not known yet, and
        the stream declared.
        """
        transport = self.server.transport
        if kind is not None:
            try:
                transport.done(Call("GET", api("agents", agent)))
            except NotFoundError:
                new = {"name": agent, "host": socket.gethostname()}
                transport.done(Call.with_json("PUT", api("agents", agent), new))
            path = api("agents", agent, "streams", stream)
            transport.done(Call.with_json("PUT", path, {"kind": kind}))
        return Producer(transport, self.id, agent, stream, epoch)

    def push(
        self,
        agent: str,
        stream: str,
        packets: Iterable[bytes],
        *,
        kind: str | None = None,
        epoch: int | None = None,
    ) -> list[Receipt]:
        """Push packets and return their receipts, when all of them are durable."""
        producer = self.producer(agent, stream, kind=kind, epoch=epoch)
        receipts: list[Receipt] = []
        for packet in packets:
            receipts += producer.push(packet)
        return receipts + producer.flush()

    def __repr__(self) -> str:
        return f"<Storage {self.name!r} {self.state} {self.id}>"

    def _repr_html_(self) -> str:
        shown: dict[str, object] = {"name": self.name, "id": self.id, "state": self.state}
        more = {
            "description": self.description,
            "failure": self.failure,
            "labels": self.labels or None,
            "packets": self.packet_count,
            "events": self.event_count,
            "uncounted packets": self.uncounted_packets or None,
            "lost": self.lost or None,
            "bytes": self.bytes,
            "stored bytes": self.stored_bytes,
            "created": self.created,
            "finalized": self.finalized,
        }
        shown |= {name: value for name, value in more.items() if value not in (None, "")}
        return _html.table(["storage", ""], list(shown.items()))


def _problem_of(job: Mapping[str, Any]) -> RefusedError:
    problem = job.get("problem") or job.get("error")
    if isinstance(problem, dict):
        status = problem.get("status")
        return refusal_of(status if isinstance(status, int) else 500, problem)
    detail = f"the job {job.get('id')} is {job.get('state')}"
    return ConflictError(409, {"detail": detail, "code": "job_cancelled"})
