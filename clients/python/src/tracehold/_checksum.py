"""CRC32C, the checksum of packets and files. The standard library has none.

A byte at a time takes a second for 10 MB. Here many pieces of the data are processed at once: byte
`i` of all pieces is one long text, which `bytes.translate` looks up in C. The checksum of pieces
that follow each other then is that of the first, moved behind as many zeros as the second has
bytes, and that of the second, because the checksum is linear.
"""

from __future__ import annotations

from functools import lru_cache

_POLYNOMIAL = 0x82F63B78
_ALL_ONES = 0xFFFFFFFF
_PIECE_BYTES = 256
"""Bytes of a piece; what is shorter than two of them is processed byte by byte."""
_BLOCK_PIECES = 8192
"""Pieces that are processed at once, which bounds the memory."""


def _table_of_bytes() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE = _table_of_bytes()
_LANES = tuple(bytes(value >> shift & 0xFF for value in _TABLE) for shift in (0, 8, 16, 24))
"""The bytes of the entries of the table, least significant first."""


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Return the CRC32C of `data`, continuing `value`, that of the bytes before."""
    state = value ^ _ALL_ONES
    view = memoryview(data).cast("B")
    block_bytes = _PIECE_BYTES * _BLOCK_PIECES
    while len(view) >= 2 * _PIECE_BYTES:
        length = min(len(view), block_bytes) // _PIECE_BYTES * _PIECE_BYTES
        state = _of_pieces(bytes(view[:length]), state)
        view = view[length:]
    return _of_bytes(view, state) ^ _ALL_ONES


def _of_bytes(data: bytes | memoryview, state: int) -> int:
    table = _TABLE
    for byte in data:
        state = table[(state ^ byte) & 0xFF] ^ state >> 8
    return state


def _of_pieces(data: bytes, state: int) -> int:
    """Process whole pieces, all of them in parallel."""
    pieces = len(data) // _PIECE_BYTES
    # The state before the data is as if it were part of its first four bytes.
    first = int.from_bytes(data[:4], "little") ^ state
    data = first.to_bytes(4, "little") + data[4:]
    zero = bytes(pieces)
    low, second, third, high = zero, zero, zero, zero
    for at in range(_PIECE_BYTES):
        index = _xor(low, data[at::_PIECE_BYTES])
        low = _xor(second, index.translate(_LANES[0]))
        second = _xor(third, index.translate(_LANES[1]))
        third = _xor(high, index.translate(_LANES[2]))
        high = index.translate(_LANES[3])
    moved = _behind_a_piece()
    result = 0
    for a, b, c, d in zip(low, second, third, high, strict=True):
        result = (
            moved[0][result & 0xFF]
            ^ moved[1][result >> 8 & 0xFF]
            ^ moved[2][result >> 16 & 0xFF]
            ^ moved[3][result >> 24]
            ^ (a | b << 8 | c << 16 | d << 24)
        )
    return result


def _xor(left: bytes, right: bytes) -> bytes:
    number = int.from_bytes(left, "little") ^ int.from_bytes(right, "little")
    return number.to_bytes(len(left), "little")


@lru_cache(maxsize=1)
def _behind_a_piece() -> tuple[tuple[int, ...], ...]:
    """Return, for each byte of a state, what it is behind the zeros of a piece."""
    zeros = bytes(_PIECE_BYTES)
    tables = []
    for shift in (0, 8, 16, 24):
        table = [0]
        for bit in range(8):
            moved = _of_bytes(zeros, 1 << shift + bit)
            table += [moved ^ other for other in table]
        tables.append(tuple(table))
    return tuple(tables)
