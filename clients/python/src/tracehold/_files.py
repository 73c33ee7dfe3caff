"""Files of a storage, and ranges of their bytes."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ._checksum import crc32c
from ._errors import ChecksumError, ResponseError
from ._multipart import parts
from ._replacing import replacing
from ._transport import Call, path_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from typing import Any

    from ._transport import Transport

_RANGES_MAX = 200
"""Ranges of one request; a server accepts more, proxies may not."""
_GAP_BYTES = 512
"""Ranges that are closer than this are requested as one: the head of a part is not shorter."""
_BUFFER_BYTES = 1 << 20

Range = tuple[int, int]
"""Half-open: the first offset, and the one after the last."""


@dataclass(frozen=True)
class File:
    """A file of a storage, immutable once the storage is finalized."""

    name: str
    role: str
    """`data`, `index`, `chunk_index`, `agent`, `storage`, `provenance`, `checksums` or `local`."""
    length: int
    checksum: int | None
    """CRC32C of all bytes, known once the storage is finalized."""
    _transport: Transport = field(repr=False, compare=False)
    _storage: str = field(repr=False)

    @classmethod
    def of(cls, transport: Transport, storage: str, document: dict[str, Any]) -> File:
        """Read a file of a list."""
        checksum = document.get("checksum")
        return cls(
            name=document["name"],
            role=document["role"],
            length=document["length"],
            checksum=None if checksum is None else int(checksum, 16),
            _transport=transport,
            _storage=storage,
        )

    def read(self) -> bytes:
        """Return all bytes, compared with the checksum."""
        [data] = self.read_ranges([(0, self.length)])
        self._check(crc32c(data))
        return data

    def read_ranges(self, ranges: Iterable[Range]) -> list[bytes]:
        """Return the bytes of half-open ranges in their order, with as few requests as possible."""
        wanted = [self._checked(begin, end) for begin, end in ranges]
        joined = join_ranges(wanted, _GAP_BYTES)
        found: list[tuple[int, bytearray]] = []
        for first in range(0, len(joined), _RANGES_MAX):
            found += self._fetch(joined[first : first + _RANGES_MAX])
        return [_cut(found, begin, end) for begin, end in wanted]

    def open(self) -> io.BufferedReader:
        """Return a file for reading and seeking, of which only what is read is fetched."""
        return io.BufferedReader(_RangeFile(self), buffer_size=_BUFFER_BYTES)

    def download(self, path: str | os.PathLike[str]) -> Path:
        """Write the file to `path`, which gets its name when all bytes have the checksum."""
        target = Path(path)
        if target.is_dir():
            # The server chose the name.
            if Path(self.name).name != self.name or self.name == "..":
                message = f"{self.name!r} is not the name of a file: name one to write to"
                raise ValueError(message)
            target = target / self.name
        checksum = 0
        with replacing(target) as out:
            for _, piece in self._stream([]):
                checksum = crc32c(piece, checksum)
                out.write(piece)
            self._check(checksum)
        return target

    def _checked(self, begin: int, end: int) -> Range:
        if not 0 <= begin <= end <= self.length:
            message = f"{self.name} has {self.length} bytes; ({begin}, {end}) is not a range of it"
            raise ValueError(message)
        return begin, end

    def _check(self, checksum: int) -> None:
        if self.checksum is not None and checksum != self.checksum:
            message = (
                f"{self.name} of storage {self._storage}: the bytes that arrived have the checksum "
                f"{checksum:08x}, those on the server {self.checksum:08x}; read the file again"
            )
            raise ChecksumError(message)

    def _fetch(self, ranges: Sequence[Range]) -> list[tuple[int, bytearray]]:
        """Return ascending ranges that do not touch, each with its offset."""
        found = [(begin, bytearray()) for begin, _ in ranges]
        at = 0
        for offset, piece in self._stream(ranges):
            end = offset + len(piece)
            while at < len(ranges) and ranges[at][0] < end:
                stop, next_offset = ranges[at][1], _end(found[at])
                if next_offset < offset:
                    raise self._lacking(next_offset)
                found[at][1].extend(piece[next_offset - offset : stop - offset])
                if end < stop:
                    break
                at += 1
        if at < len(ranges):
            raise self._lacking(_end(found[at]))
        return found

    def _stream(self, ranges: Sequence[Range]) -> Iterable[tuple[int, bytes]]:
        path = path_of("storage", self._storage, self.name)
        headers = {}
        if ranges:
            headers["Range"] = "bytes=" + ",".join(f"{begin}-{end - 1}" for begin, end in ranges)
        with self._transport.send(Call("GET", path, headers=headers)) as response:
            yield from parts(response)

    def _lacking(self, offset: int) -> ResponseError:
        message = f"{self.name}: the response does not have the requested bytes at {offset}"
        return ResponseError(message)


class _RangeFile(io.RawIOBase):
    """A file whose bytes are fetched when they are read."""

    def __init__(self, file: File) -> None:
        super().__init__()
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.length}[whence]
        if base + offset < 0:
            message = f"{self._file.name}: a position before its beginning"
            raise ValueError(message)
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        end = min(self._at + len(view), self._file.length)
        if end <= self._at:
            return 0
        [data] = self._file.read_ranges([(self._at, end)])
        view[: len(data)] = data
        self._at = end
        return len(data)


def join_ranges(ranges: Iterable[Range], gap: int) -> list[Range]:
    """Return ascending ranges that cover the given ones and are more than `gap` apart."""
    joined: list[Range] = []
    for begin, end in sorted(item for item in ranges if item[0] < item[1]):
        if joined and begin - joined[-1][1] <= gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _end(found: tuple[int, bytearray]) -> int:
    return found[0] + len(found[1])


def _cut(found: Sequence[tuple[int, bytearray]], begin: int, end: int) -> bytes:
    if begin == end:
        return b""
    offset, data = next(item for item in found if item[0] <= begin and end <= _end(item))
    return bytes(memoryview(data)[begin - offset : end - offset])
