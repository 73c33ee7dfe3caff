"""Pushing packets, each exactly once."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._checksum import crc32c
from ._errors import RefusedError, ResponseError, TransportError
from ._retry import Budget, is_temporary
from ._transport import Call, api, wait_after_break

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from ._transport import Transport

PACKET_BYTES_MAX = 32 << 20
_MEDIA_TYPE = "application/vnd.tracehold.packets"
_RECORD = struct.Struct("<IIQQ")
"""Length of the payload, its CRC32C, epoch, sequence."""
_POSITION_MAX = (1 << 64) - 2
_REQUEST_BYTES = 8 << 20
_REQUEST_PACKETS = 4096
_LINES_BYTES = 1 << 20


@dataclass(frozen=True)
class Receipt:
    """What the server says about a packet: with `durable`, it survives a crash."""

    epoch: int
    sequence: int
    number: int | None
    """The number of the packet in the storage."""
    durable: bool
    duplicate: bool
    """Whether the packet was pushed before."""
    events: int | None = None
    """Events of the packet, if the server could count them."""
    more: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Receipt:
        """Read a receipt."""
        more = dict(document)
        return cls(
            epoch=more.pop("epoch"),
            sequence=more.pop("sequence"),
            number=more.pop("number", None),
            durable=more.pop("durable", False),
            duplicate=more.pop("duplicate", False),
            events=more.pop("events", None),
            more=more,
        )


class Producer:
    """Pushes the packets of one stream in their order, each exactly once.

    Packets are gathered and sent when a request is full, on `flush`, and at the end of a `with`
    statement. With an epoch of its own, a producer that was interrupted is repeated as a whole: the
    server says which packets it has, and those are not sent again. The same epoch must mean the
    same packets. Without one, the time is the epoch, and every producer pushes something new. Only
    one thread may use a producer.
    """

    def __init__(
        self, transport: Transport, storage: str, agent: str, stream: str, epoch: int | None
    ) -> None:
        if epoch is not None and not 0 <= epoch <= _POSITION_MAX:
            message = f"epoch {epoch}: expected 0 to {_POSITION_MAX}"
            raise ValueError(message)
        self._transport = transport
        self._path = api("storages", storage, "agents", agent, "streams", stream, "packets")
        self.epoch = time.time_ns() if epoch is None else epoch
        self.pushed = 0
        """Packets of this producer that the server has acknowledged."""
        self._known = 0 if epoch is None else self._known_packets()
        self._sequence = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def push(self, packet: bytes | bytearray | memoryview) -> list[Receipt]:
        """Take the next packet; return receipts if that filled a request."""
        data = bytes(packet)
        if not 0 < len(data) <= PACKET_BYTES_MAX:
            message = f"a packet of {len(data)} bytes: expected 1 to {PACKET_BYTES_MAX}"
            raise ValueError(message)
        receipts: list[Receipt] = []
        if self._sequence + len(self._waiting) < self._known:
            # The server has it from the producer with this epoch that was interrupted.
            self._sequence += 1
            self.pushed += 1
            return receipts
        full = len(self._waiting) >= _REQUEST_PACKETS
        if full or (self._waiting and self._waiting_bytes + len(data) > _REQUEST_BYTES):
            receipts = self.flush()
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        return receipts

    def push_lines(
        self, lines: Iterable[str | bytes], packet_bytes: int = _LINES_BYTES
    ) -> list[Receipt]:
        """Take lines, as packets that end where a line ends and have about `packet_bytes`."""
        receipts: list[Receipt] = []
        gathered = bytearray()
        for line in lines:
            data = line.encode() if isinstance(line, str) else line
            if gathered and len(gathered) + len(data) >= packet_bytes:
                receipts += self.push(gathered)
                gathered.clear()
            gathered += data if data.endswith(b"\n") else data + b"\n"
        if gathered:
            receipts += self.push(gathered)
        return receipts

    def flush(self) -> list[Receipt]:
        """Send what is waiting; return when all of it is durable."""
        receipts: list[Receipt] = []
        budget = Budget(self._transport.settings.retry)
        while self._waiting:
            try:
                accepted = self._send()
            except RefusedError as error:
                # The packets before the refused one remain stored.
                accepted = _receipts_before(error)
                if accepted:
                    budget = Budget(self._transport.settings.retry)
                elif is_temporary(error.status):
                    budget.wait(error, requested=error.retry_after)
                else:
                    raise
            except TransportError as error:
                # Epoch and sequence make a repetition harmless.
                wait_after_break(budget, error)
                accepted = []
            receipts += accepted
            self._accept(accepted)
        return receipts

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.flush()

    def _known_packets(self) -> int:
        """Return how many packets with this epoch the server has."""
        with self._transport.send(Call("HEAD", self._path)) as response:
            response.finish()
            epoch = _number(response.headers.get("tracehold-epoch"))
            known = _number(response.headers.get("tracehold-next-sequence"))
        return known if epoch == self.epoch else 0

    def _send(self) -> list[Receipt]:
        body: list[bytes] = []
        for sequence, packet in enumerate(self._waiting, self._sequence):
            body += [_RECORD.pack(len(packet), crc32c(packet), self.epoch, sequence), packet]
        call = Call("POST", self._path, content_type=_MEDIA_TYPE, body=body)
        with self._transport.send_once(call) as response:
            receipts = _receipts(response.json())
        if len(receipts) != len(self._waiting):
            message = f"{len(receipts)} receipts for {len(self._waiting)} packets"
            raise ResponseError(message)
        return receipts

    def _accept(self, receipts: list[Receipt]) -> None:
        for receipt in receipts:
            if (receipt.epoch, receipt.sequence) != (self.epoch, self._sequence):
                message = (
                    f"a receipt of packet {receipt.sequence} of epoch {receipt.epoch}, not "
                    f"of packet {self._sequence} of epoch {self.epoch}"
                )
                raise ResponseError(message)
            self._waiting_bytes -= len(self._waiting.pop(0))
            self._sequence += 1
            self.pushed += 1


def _receipts(document: Any) -> list[Receipt]:
    try:
        return [Receipt.of(receipt) for receipt in document["receipts"]]
    except (KeyError, TypeError) as error:
        message = f"the response has no receipts: {error!r}"
        raise ResponseError(message) from None


def _receipts_before(error: RefusedError) -> list[Receipt]:
    return _receipts(error.more) if error.more.get("receipts") else []


def _number(value: str | None) -> int:
    try:
        return int(value or "")
    except ValueError:
        message = f"the response has no position of the stream, but {value!r}"
        raise ResponseError(message) from None
