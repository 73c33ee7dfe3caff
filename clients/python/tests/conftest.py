"""A real server, from the folder that PROGRAMS_UNDER_TEST names."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tracehold

READY = re.compile(r"^listening on (https?://\S+)")
SECOND = 1_000_000_000
BASE = 1_700_000_000 * SECOND
"""The time of the first event of `events`."""


@dataclass
class Process:
    """A running `traceholdd`."""

    url: str
    data: Path
    process: subprocess.Popen[str]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def start(folder: Path, config: str = "", listen: str = "127.0.0.1:0") -> Process:
    programs = os.environ.get("PROGRAMS_UNDER_TEST")
    if programs is None:
        pytest.exit("PROGRAMS_UNDER_TEST names no folder with traceholdd", returncode=2)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(config)
    command = [Path(programs, "traceholdd"), "--config", folder / "config.toml"]
    command += ["--listen", listen, "--data-dir", folder / "data"]
    off = {"TRACEHOLD_OTLP_GRPC_LISTEN": "off", "TRACEHOLD_OTLP_HTTP_LISTEN": "off"}
    with (folder / "server.log").open("a") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | off
        )
    assert process.stdout is not None
    for line in process.stdout:
        if ready := READY.match(line):
            break
    else:
        pytest.fail((folder / "server.log").read_text())
    # The pipe must never fill up.
    threading.Thread(target=_drain, args=[process.stdout], daemon=True).start()
    return Process(ready[1], folder / "data", process)


def _drain(lines: Any) -> None:
    with contextlib.suppress(ValueError, OSError):
        for _ in lines:
            pass


@contextlib.contextmanager
def running(folder: Path, config: str = "", listen: str = "127.0.0.1:0") -> Iterator[Process]:
    process = start(folder, config, listen)
    try:
        yield process
    finally:
        process.stop()
        assert process.process.stdout is not None
        process.process.stdout.close()


@pytest.fixture(autouse=True)
def _no_foreign_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's server and token from affecting a test."""
    for name in list(os.environ):
        if name.startswith("TRACEHOLD_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with running(tmp_path_factory.mktemp("server")) as process:
        yield process


@pytest.fixture
def server(process: Process) -> Iterator[tracehold.Server]:
    with tracehold.connect(process.url) as server:
        yield server


def event(index: int, **more: object) -> dict[str, object]:
    """Return an event as DFTracer writes it, with times in microseconds."""
    name = "read" if index % 3 else "write"
    micros = BASE // 1000 + index * 10
    args = {"fname": f"/data/<{index % 7}>&.bin", "ret": 4096 + index}
    fixed = {"id": index, "cat": "POSIX", "pid": 7, "tid": index % 4, "ph": "X"}
    return {"name": name, "ts": micros, "dur": index % 5, **fixed, "args": args, **more}


def lines(events: list[dict[str, object]]) -> list[str]:
    return [json.dumps(item) for item in events]


NewStorage = Callable[..., tracehold.Storage]


@pytest.fixture
def new_storage(server: tracehold.Server, request: pytest.FixtureRequest) -> NewStorage:
    """Return what creates a storage with these lines."""

    def create(
        texts: list[str], *, finalize: bool = True, packet_bytes: int = 4096, on: Any = None
    ) -> tracehold.Storage:
        storage = (on or server).create_storage(request.node.name)
        agent = storage.id
        with storage.producer(agent, "trace", kind="dft") as producer:
            producer.push_lines(texts, packet_bytes)
        return storage.finalize() if finalize else storage.refresh()

    return create


@pytest.fixture(scope="session")
def thousand(process: Process) -> Iterator[tracehold.Storage]:
    """Yield a finalized storage with a thousand events."""
    with tracehold.connect(process.url) as server:
        storage = server.create_storage("thousand", labels={"rating": "5"})
        with storage.producer("fixture", "trace", kind="dft") as producer:
            producer.push_lines(lines([event(index) for index in range(1000)]), 8192)
        yield storage.finalize()
