"""Files and ranges of their bytes."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import tracehold
from scripted import answer, scripted
from tracehold._files import join_ranges

ID = "01a208f4-b1bd-7ec8-a96b-b8262c60526c"


@pytest.fixture(scope="module")
def file(process: Any) -> tracehold.File:
    """Return a data file of some megabytes."""
    server = tracehold.connect(process.url)
    storage = server.create_storage("ranges")
    storage.push("ranges", "s", [os.urandom(1 << 20) for _ in range(3)], kind="raw")
    [file] = [file for file in storage.finalize().files() if file.role == "data"]
    return file


def test_a_file_is_read_and_compared(file: tracehold.File) -> None:
    assert len(file.read()) == file.length > 3 << 20


def test_ranges_are_those_of_the_file(file: tracehold.File) -> None:
    random.seed(3)
    whole = file.read()
    for count in (1, 2, 7, 450):
        begins = [random.randrange(file.length) for _ in range(count)]
        ranges = [
            (begin, min(file.length, begin + random.choice([0, 1, 700, 5000]))) for begin in begins
        ]
        found = file.read_ranges(ranges)
        assert found == [whole[begin:end] for begin, end in ranges], count
    assert file.read_ranges([]) == []
    assert file.read_ranges([(file.length, file.length), (0, 0)]) == [b"", b""]
    assert file.read_ranges([(0, file.length), (5, 9)]) == [whole, whole[5:9]]


@pytest.mark.parametrize("bad", [(-1, 4), (5, 4), (0, 1 << 40)])
def test_what_is_no_range_of_the_file_is_refused(
    file: tracehold.File, bad: tuple[int, int]
) -> None:
    with pytest.raises(ValueError, match="is not a range of it"):
        file.read_ranges([(0, 4), bad])


def test_a_storage_reads_ranges_by_name(process: Any, file: tracehold.File) -> None:
    with tracehold.connect(process.url) as server:
        storage = server.storage("ranges")
        assert storage.read_ranges(file.name, [(0, 4)]) == file.read_ranges([(0, 4)])
        with pytest.raises(FileNotFoundError, match="files\\(\\) lists"):
            storage.read_ranges("nothing", [(0, 4)])


def test_a_file_can_be_opened(file: tracehold.File) -> None:
    whole = file.read()
    with file.open() as opened:
        assert opened.read(10) == whole[:10]
        assert opened.seek(-5, os.SEEK_END) == file.length - 5
        assert opened.read() == whole[-5:]
        opened.seek(1 << 20)
        opened.seek(100, os.SEEK_CUR)
        assert opened.read(3) == whole[(1 << 20) + 100 :][:3]
        opened.seek(file.length + 10)
        assert opened.read(1) == b""
        with pytest.raises(ValueError, match="before its beginning"):
            opened.raw.seek(-1)


def test_a_download_is_complete_or_not_there(file: tracehold.File, tmp_path: Path) -> None:
    path = file.download(tmp_path)
    assert path == tmp_path / file.name
    assert path.read_bytes() == file.read()
    assert list(tmp_path.iterdir()) == [path]


def scripted_file(url: str, content: bytes, checksum: str | None) -> tracehold.File:
    server = tracehold.connect(url, retry=tracehold.NEVER, timeout=5)
    document = {"name": "f", "role": "data", "length": len(content), "checksum": checksum}
    return tracehold.File.of(server.transport, ID, document)


def test_bytes_with_another_checksum_are_an_error(tmp_path: Path) -> None:
    with scripted(answer(b"123456788"), answer(b"123456788"), answer(b"123456789")) as script:
        file = scripted_file(script.url, b"123456789", "e3069283")
        with pytest.raises(tracehold.ChecksumError, match="e3069283"):
            file.read()
        with pytest.raises(tracehold.ChecksumError):
            file.download(tmp_path / "f")
        assert list(tmp_path.iterdir()) == []
        assert file.download(tmp_path / "f").read_bytes() == b"123456789"


@pytest.mark.parametrize("name", ["../f", "/tmp/f", "..", ".", "a/b"])
def test_a_server_does_not_choose_the_folder(name: str, tmp_path: Path) -> None:
    server = tracehold.connect("http://127.0.0.1:1", retry=tracehold.NEVER)
    document = {"name": name, "role": "data", "length": 1, "checksum": None}
    with pytest.raises(ValueError, match="is not the name of a file"):
        tracehold.File.of(server.transport, ID, document).download(tmp_path)


CONTENT = bytes(range(256)) * 8
WANTED = [(0, 10), (1000, 1010)]


def part(begin: int, end: int) -> bytes:
    head = f"\r\n--B\r\ncontent-range: bytes {begin}-{end - 1}/{len(CONTENT)}\r\n\r\n"
    return head.encode() + CONTENT[begin:end]


def multipart(*parts: bytes, end: bytes = b"\r\n--B--\r\n") -> bytes:
    kind = 'multipart/byteranges; boundary="B"'
    return answer(b"".join(parts) + end, "206 Partial Content", kind)


@pytest.mark.parametrize(
    "response",
    [
        multipart(part(0, 10), part(1000, 1010)),
        multipart(part(0, 1010)),
        multipart(b"preamble", part(0, 10), part(900, 1020), end=b"\r\n--B--"),
        answer(CONTENT, kind="application/octet-stream"),
    ],
    ids=["as asked", "as one", "longer", "all"],
)
def test_ranges_in_other_forms_are_the_same_bytes(response: bytes) -> None:
    with scripted(response) as script:
        file = scripted_file(script.url, CONTENT, None)
        assert file.read_ranges(WANTED) == [CONTENT[:10], CONTENT[1000:1010]]


@pytest.mark.parametrize(
    "response",
    [
        multipart(part(0, 10)),
        multipart(part(1000, 1010)),
        multipart(part(0, 9), part(1000, 1010)),
        multipart(part(0, 10), part(1001, 1010)),
        multipart(part(0, 10), part(1000, 1010)[:-4], end=b""),
        multipart(part(0, 10).replace(b"0-9", b"9-0"), part(1000, 1010)),
        multipart(part(0, 10).replace(b"content-range", b"x"), part(1000, 1010)),
        multipart(b"\r\n--B\r\n" + b"x: " + b"y" * 9000),
        answer(CONTENT[:10], "206 Partial Content", content_range="bytes 0-9/2048"),
        answer(CONTENT[:10], "206 Partial Content"),
        answer(CONTENT[:500]),
    ],
    ids=[
        "without the second",
        "without the first",
        "cut",
        "shifted",
        "without an end",
        "backwards",
        "without a range",
        "with a long head",
        "one range",
        "no range",
        "too short",
    ],
)
def test_other_bytes_than_asked_are_an_error(response: bytes) -> None:
    with scripted(response) as script:
        file = scripted_file(script.url, CONTENT, None)
        with pytest.raises(tracehold.ResponseError):
            file.read_ranges(WANTED)


def test_close_ranges_are_one() -> None:
    assert join_ranges([(9, 12), (0, 4), (4, 6), (3, 5), (20, 20)], 0) == [(0, 6), (9, 12)]
    assert join_ranges([(9, 12), (0, 6), (16, 18)], 3) == [(0, 12), (16, 18)]


def test_a_download_touches_no_other_file(tmp_path: Path) -> None:
    mine = tmp_path / "f.tmp"
    mine.write_bytes(b"mine")
    with scripted(answer(b"123456789"), answer(b"123456788")) as script:
        file = scripted_file(script.url, b"123456789", "e3069283")
        assert file.download(tmp_path / "f").read_bytes() == b"123456789"
        with pytest.raises(tracehold.ChecksumError):
            file.download(tmp_path / "f")
    assert mine.read_bytes() == b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "f.tmp"]
    assert (tmp_path / "f").read_bytes() == b"123456789"
