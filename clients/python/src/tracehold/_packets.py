"""Packets of a storage, as they were pushed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._transport import Call, api

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._transport import Transport

_PACKET_BYTES_MAX = 64 << 20


@dataclass(frozen=True)
class Packet:
    """A packet, and where its bytes are stored."""

    number: int
    agent: str
    stream: str
    kind: str
    epoch: int
    sequence: int
    size: int
    """Bytes of the packet as the agent sent it."""
    begin: int | None
    """First time in the packet, nanoseconds since 1970, if it is known."""
    end: int | None
    events: int | None
    lost: int | None
    more: Mapping[str, Any] = field(compare=False)
    """File, offset, stored size, codec and provenance."""
    _transport: Transport = field(repr=False, compare=False)
    _storage: str = field(repr=False)

    @classmethod
    def of(cls, transport: Transport, storage: str, document: Mapping[str, Any]) -> Packet:
        """Read a packet of a list."""
        more = dict(document)
        size = more.pop("raw_size")
        more["stored_size"] = more.pop("size")
        return cls(
            number=more.pop("number"),
            agent=more.pop("agent"),
            stream=more.pop("stream"),
            kind=more.pop("kind"),
            epoch=more.pop("epoch"),
            sequence=more.pop("sequence"),
            size=size,
            begin=more.pop("begin", None),
            end=more.pop("end", None),
            events=more.pop("events", None),
            lost=more.pop("lost", None),
            more=more,
            _transport=transport,
            _storage=storage,
        )

    def read(self) -> bytes:
        """Return the bytes as the agent sent them."""
        call = Call("GET", api("storages", self._storage, "packets", self.number))
        with self._transport.send(call) as response:
            return response.read_all(_PACKET_BYTES_MAX)
