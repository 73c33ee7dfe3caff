"""Pushing: every packet once, however often it is sent."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

import tracehold
from conftest import NewStorage, event, lines
from scripted import END, Scripted, answer, scripted
from tracehold._push import _RECORD

PACKETS = [f"packet {number}".encode() * (number + 1) for number in range(20)]
QUICK = tracehold.Retry(delay_first=0.01, delay_max=0.02, wait_max=0.5)
ID = "01a208f4-b1bd-7ec8-a96b-b8262c60526c"


@pytest.fixture
def storage(server: tracehold.Server, request: pytest.FixtureRequest) -> tracehold.Storage:
    return server.create_storage(request.node.name)


def stored(storage: tracehold.Storage) -> list[bytes]:
    return [packet.read() for packet in storage.packets()]


def test_packets_come_back_as_they_were_pushed(storage: tracehold.Storage) -> None:
    receipts = storage.push(storage.id, "s", PACKETS, kind="raw")
    assert [receipt.number for receipt in receipts] == list(range(20))
    assert all(receipt.durable and not receipt.duplicate for receipt in receipts)
    assert stored(storage) == PACKETS
    first = next(iter(storage.packets()))
    assert (first.agent, first.stream, first.kind, first.size) == (storage.id, "s", "raw", 8)


def test_a_producer_that_is_repeated_sends_only_what_is_missing(
    storage: tracehold.Storage,
) -> None:
    storage.push(storage.id, "s", PACKETS[:7], kind="raw", epoch=5)
    with storage.producer(storage.id, "s", epoch=5) as producer:
        for packet in PACKETS:
            producer.push(packet)
        assert [receipt.sequence for receipt in producer.flush()] == list(range(7, 20))
    assert producer.pushed == 20
    assert stored(storage) == PACKETS
    assert storage.push(storage.id, "s", PACKETS, epoch=5) == []
    assert stored(storage) == PACKETS


def test_a_new_producer_pushes_something_new(storage: tracehold.Storage) -> None:
    for _ in range(2):
        storage.push(storage.id, "s", PACKETS[:2], kind="raw")
    assert stored(storage) == PACKETS[:2] * 2


def test_other_bytes_with_a_known_position_are_refused(storage: tracehold.Storage) -> None:
    storage.push(storage.id, "s", PACKETS[:2], kind="raw", epoch=5)
    producer = storage.producer(storage.id, "s", epoch=5)
    producer._known = 0
    producer.push(b"other")
    with pytest.raises(tracehold.ConflictError) as caught:
        producer.flush()
    assert caught.value.code == "packet_conflict"
    with pytest.raises(tracehold.ConflictError, match="epoch"):
        storage.push(storage.id, "s", PACKETS, epoch=4)


def test_large_pushes_are_several_requests(storage: tracehold.Storage) -> None:
    packets = [bytes([number]) * (3 << 20) for number in range(7)]
    with storage.producer(storage.id, "s", kind="raw") as producer:
        flushed = [len(producer.push(packet)) for packet in packets]
    assert flushed == [0, 0, 2, 0, 2, 0, 2]
    assert [packet.size for packet in storage.packets()] == [3 << 20] * 7
    with pytest.raises(ValueError, match="expected 1 to"):
        producer.push(b"")


def test_many_small_packets(storage: tracehold.Storage) -> None:
    packets = [f"{number}".encode() for number in range(5000)]
    assert len(storage.push(storage.id, "s", packets, kind="raw")) == 5000
    assert storage.refresh().packet_count == 5000
    assert [packet.sequence for packet in storage.packets()] == list(range(5000))


def test_lines_are_events(new_storage: NewStorage) -> None:
    texts = lines([event(index) for index in range(100)])
    storage = new_storage([text + "\n" * (number % 2) for number, text in enumerate(texts)])
    assert [row["id"] for row in storage.query().rows()] == list(range(100))
    assert 3 < storage.packet_count < 7
    assert all(packet.size <= 4096 for packet in storage.packets())


def test_an_error_in_the_middle_sends_nothing_more(storage: tracehold.Storage) -> None:
    producer = storage.producer(storage.id, "s", kind="raw")
    with contextlib.suppress(KeyError), producer:
        producer.push(b"x")
        raise KeyError
    assert stored(storage) == []


def test_a_registered_agent_stays_as_it_is(storage: tracehold.Storage) -> None:
    from tracehold._transport import Call, api  # noqa: PLC0415

    described = {"name": "of the cluster", "host": "node-1", "attributes": {"rack": "7"}}
    storage.server.transport.done(Call.with_json("PUT", api("agents", "known"), described))
    storage.push("known", "s", [b"x"], kind="raw")
    [agent] = [agent for agent in storage.server.agents() if agent["id"] == "known"]
    assert {name: agent[name] for name in described} == described


def receipts(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"epoch": 9, "sequence": sequence, "number": sequence, "durable": True}
        for sequence in range(first, first + count)
    ]


def pushing(script: Scripted) -> list[tracehold.Receipt]:
    """Push three packets with epoch 9 into a server that has none of them."""
    with tracehold.connect(script.url, retry=QUICK, timeout=5) as server:
        storage = tracehold.Storage(server, {"id": ID, "name": "n", "state": "OPEN"})
        return storage.push("a", "s", [b"one", b"two", b"three"], epoch=9)


def sent(request: bytes) -> list[tuple[int, bytes]]:
    """Return the sequences and payloads of a request."""
    body, found = request.partition(b"\r\n\r\n")[2], []
    while body:
        length, _, _, sequence = _RECORD.unpack(body[: _RECORD.size])
        found.append((sequence, body[_RECORD.size : _RECORD.size + length]))
        body = body[_RECORD.size + length :]
    return found


POSITION = answer(b"", tracehold_epoch="0", tracehold_next_sequence="0")


def done(first: int, count: int) -> bytes:
    return answer(json.dumps({"receipts": receipts(first, count)}).encode())


def test_a_push_without_an_answer_is_repeated() -> None:
    with scripted(POSITION, END, done(0, 3)) as script:
        assert [receipt.sequence for receipt in pushing(script)] == [0, 1, 2]
        assert script.requests[1] == script.requests[2]


def test_a_push_goes_on_behind_what_was_accepted() -> None:
    partial = {"code": "busy", "receipts": receipts(0, 1)}
    busy = answer(json.dumps(partial).encode(), "429 Busy", retry_after="0")
    with scripted(POSITION, busy, done(1, 2)) as script:
        assert [receipt.sequence for receipt in pushing(script)] == [0, 1, 2]
        assert sent(script.requests[1]) == [(0, b"one"), (1, b"two"), (2, b"three")]
        assert sent(script.requests[2]) == [(1, b"two"), (2, b"three")]


@pytest.mark.parametrize(
    "wrong", [done(0, 2), done(1, 3), answer(b"[]"), answer(b'{"receipts": [{}]}')]
)
def test_receipts_of_other_packets_are_no_receipts(wrong: bytes) -> None:
    with scripted(POSITION, wrong) as script, pytest.raises(tracehold.ResponseError):
        pushing(script)
