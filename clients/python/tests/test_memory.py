"""Memory does not grow with results and pushes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

import tracehold
from scripted import chunked, scripted

MIB = 1 << 20
ID = "01a208f4-b1bd-7ec8-a96b-b8262c60526c"


@pytest.fixture
def _traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def peak() -> int:
    return tracemalloc.get_traced_memory()[1]


def test_rows_are_forgotten() -> None:
    piece = b'{"name":"read","ts":1700000000000000000}\n' * 2000
    rows = 2000 * 40
    end = b"0\r\ntracehold-rows: %d\r\ntracehold-skipped: 0\r\n\r\n" % rows
    with scripted(chunked(*[piece] * 40, end=end)) as script:
        with tracehold.connect(script.url) as server:
            tracemalloc.start()
            assert sum(1 for _ in server.query(storages=[ID]).rows()) == rows
            found = peak()
            tracemalloc.stop()
    assert found < MIB < 40 * len(piece) / 3


@pytest.mark.usefixtures("_traced")
def test_packets_and_files_are_forgotten(server: tracehold.Server) -> None:
    storage = server.create_storage("memory")
    with storage.producer("memory", "s", kind="raw") as producer:
        for number in range(18):
            producer.push(bytes([number, 255]) * (MIB // 2))
    assert peak() < 14 * MIB
    storage.finalize()
    tracemalloc.reset_peak()
    for packet in storage.packets():
        packet.read()
    assert peak() < 12 * MIB
    storage.delete()
