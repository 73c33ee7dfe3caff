"""CRC32C."""

from __future__ import annotations

import random

import pytest

from tracehold._checksum import _PIECE_BYTES, _of_bytes, crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # RFC 3720, B.4, and the value that every catalogue of such checksums names.
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_known_values(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


def test_pieces_in_parallel_give_what_bytes_in_a_row_give() -> None:
    random.seed(7)
    whole = random.randbytes(3 << 20)
    for length in [*range(2 * _PIECE_BYTES - 2, 2 * _PIECE_BYTES + 3), 70_001, len(whole)]:
        data = memoryview(whole)[:length]
        assert crc32c(data) == _of_bytes(data, 0xFFFFFFFF) ^ 0xFFFFFFFF, length
        middle = length // 3
        assert crc32c(data[middle:], crc32c(data[:middle])) == crc32c(data), length
