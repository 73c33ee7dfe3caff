"""Storages: creation, state, labels and lists."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tracehold
from scripted import answer, scripted

ID = "01a208f4-b1bd-7ec8-a96b-b8262c60526c"


def test_the_life_of_a_storage(server: tracehold.Server) -> None:
    storage = server.create_storage("life", description="d", labels={"rating": "4"}, open=False)
    assert (storage.state, storage.labels["rating"]) == ("CREATED", "4")
    assert storage.open().state == "OPEN"
    storage.push("a", "s", [b"bytes"], kind="raw")
    changed = storage.update(name="renamed", labels={"use_case": ["io", "net"]})
    assert (changed.name, changed.labels["use_case"]) == ("renamed", ["io", "net"])
    assert storage.status()["written_packets"] == 1
    assert storage.finalize().state == "FINALIZED"
    assert storage.finalize().state == "FINALIZED"
    with pytest.raises(tracehold.ConflictError):
        storage.push("a", "s", [b"more"])
    storage.delete()
    with pytest.raises(tracehold.NotFoundError):
        storage.refresh()


def test_a_storage_is_found_by_id_and_by_name(server: tracehold.Server) -> None:
    twins = [server.create_storage("twin") for _ in range(2)]
    assert server.storage(twins[0].id).name == "twin"
    with pytest.raises(ValueError, match=twins[1].id):
        server.storage("twin")
    twins[0].delete()
    assert server.storage("twin").id == twins[1].id
    twins[1].delete()
    with pytest.raises(tracehold.NotFoundError, match="no storage has the name 'twin'"):
        server.storage("twin")


def test_lists_are_filtered(server: tracehold.Server, thousand: tracehold.Storage) -> None:
    listed = [storage.id for storage in server.storages(labels=["rating>=5"])]
    assert listed == [thousand.id]
    assert thousand.id in [storage.id for storage in server.storages(state="FINALIZED")]
    assert [storage.id for storage in server.storages(name="thousand")] == [thousand.id]
    with pytest.raises(tracehold.RefusedError):
        list(server.storages(labels=["nosuchtype:1"]))
    oldest = [storage.id for storage in server.storages()]
    assert [storage.id for storage in server.storages(order="newest")] == oldest[::-1]
    assert [storage.id for storage in server.storages(search="OUSAN")] == [thousand.id]


def page(names: list[str], following: str | None) -> bytes:
    items = [{"id": ID, "name": name, "state": "OPEN"} for name in names]
    return answer(json.dumps({"items": items, "next": following}).encode())


def test_lists_are_read_page_by_page() -> None:
    with scripted(page(["a", "b"], "cur&sor"), page(["c"], None)) as script:
        with tracehold.connect(script.url) as server:
            storages = server.storages(labels=["x:y z"])
            assert next(storages).name == "a"
            assert len(script.requests) == 1
            assert [storage.name for storage in storages] == ["b", "c"]
        assert b"label=x%3Ay+z&limit=1000&cursor=cur%26sor" in script.requests[1]


def test_packets_behind_a_damage_are_reported() -> None:
    listed = answer(b'{"items": [], "next": null}', tracehold_skipped="1")
    with scripted(listed, listed) as script, tracehold.connect(script.url) as server:
        storage = tracehold.Storage(server, {"id": ID, "name": "n", "state": "FAILED"})
        with pytest.warns(tracehold.IncompleteResultWarning, match="behind a damage"):
            assert list(storage.packets()) == []
        with pytest.raises(tracehold.IncompleteResultError):
            list(storage.packets(strict=True))


def test_packets_are_selected(thousand: tracehold.Storage) -> None:
    everything = list(thousand.packets())
    assert sum(packet.events or 0 for packet in everything) == 1000
    assert b"".join(packet.read() for packet in everything).count(b"\n") == 1000
    assert everything[0].begin is not None
    begun = list(thousand.packets(end=everything[0].begin + 1))
    assert [packet.number for packet in begun] == [0]
    assert list(thousand.packets(stream="nothing")) == []


def test_a_server_that_is_not_ready_says_why() -> None:
    starting = answer(
        b'{"status": 503, "code": "recovering", "recovering_storages": 2}',
        "503 Wait",
        retry_after="5",
    )
    with scripted(starting) as script, tracehold.connect(script.url) as server:
        health = server.health()
    assert (health["status"], health["recovering_storages"]) == ("recovering", 2)


JOB: dict[str, Any] = {"id": ID, "kind": "finalize", "state": "RUNNING"}


def test_a_finalization_is_waited_for() -> None:
    running = answer(json.dumps(JOB).encode(), "202 Accepted")
    done = answer(json.dumps(JOB | {"state": "DONE"}).encode())
    final = answer(json.dumps({"id": ID, "name": "n", "state": "FINALIZED"}).encode())
    with scripted(running, running, done, final) as script, tracehold.connect(script.url) as to:
        storage = tracehold.Storage(to, {"id": ID, "name": "n", "state": "OPEN"})
        assert storage.finalize().state == "FINALIZED"
    with scripted(*[running] * 99) as script, tracehold.connect(script.url) as to:
        storage = tracehold.Storage(to, {"id": ID, "name": "n", "state": "OPEN"})
        with pytest.raises(TimeoutError, match="not finalized after"):
            storage.finalize(timeout=0.3)


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ({"state": "CANCELLED"}, tracehold.ConflictError),
        (
            {"state": "FAILED", "problem": {"status": 507, "code": "disk_full", "detail": "full"}},
            tracehold.BusyError,
        ),
    ],
)
def test_a_finalization_that_fails_is_an_error(end: dict[str, Any], error: type[Exception]) -> None:
    with scripted(answer(json.dumps(JOB | end).encode())) as script:
        with tracehold.connect(script.url) as to:
            storage = tracehold.Storage(to, {"id": ID, "name": "n", "state": "OPEN"})
            with pytest.raises(error):
                storage.finalize()
