"""Tokens, shared URLs and certificates."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracehold
from conftest import Process, running
from scripted import answer, scripted
from tracehold._transport import Call, api

CERTIFICATES = Path(__file__).parents[3] / "tests/data/tls"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, str]]:
    """Yield a server with tokens, and the first one, which is an operator's."""
    with running(tmp_path_factory.mktemp("guarded")) as process:
        with tracehold.connect(process.url) as server:
            created = token_of(server, "operator")
        yield process, created


def token_of(server: tracehold.Server, role: str, **more: Any) -> str:
    call = Call.with_json("POST", api("tokens"), {"name": role, "role": role, **more})
    return str(server.transport.json(call)["token"])


def test_without_a_token_nothing_is_answered(guarded: tuple[Process, str]) -> None:
    process, _ = guarded
    with tracehold.connect(process.url) as server:
        with pytest.raises(tracehold.AccessError) as caught:
            list(server.storages())
        assert (caught.value.status, caught.value.code) == (401, "token_required")
    with tracehold.connect(process.url, token="th_wrong") as server:
        with pytest.raises(tracehold.AccessError):
            list(server.storages())


def test_where_a_token_is_looked_for(
    guarded: tuple[Process, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, token = guarded
    file = tmp_path / "token"
    file.write_text(token + "\n")
    wrong = tmp_path / "wrong"
    wrong.write_text("th_wrong")

    def is_accepted(**given: Any) -> bool:
        with tracehold.connect(process.url, **given) as server:
            try:
                list(server.storages())
            except tracehold.AccessError:
                return False
        return True

    assert is_accepted(token=token)
    assert is_accepted(token_file=file)
    monkeypatch.setenv("TRACEHOLD_TOKEN_FILE", str(file))
    assert is_accepted()
    monkeypatch.setenv("TRACEHOLD_TOKEN", "th_wrong")
    assert not is_accepted()
    assert is_accepted(token=token, token_file=wrong)
    assert is_accepted(token_file=file)
    monkeypatch.setenv("TRACEHOLD_TOKEN", token)
    monkeypatch.setenv("TRACEHOLD_TOKEN_FILE", str(wrong))
    assert is_accepted()
    monkeypatch.setenv("TRACEHOLD_SERVER", process.url)
    assert list(tracehold.connect().storages()) == []
    with pytest.raises(FileNotFoundError):
        tracehold.connect(process.url, token_file=tmp_path / "nothing")


def test_a_role_that_does_not_suffice(guarded: tuple[Process, str]) -> None:
    process, token = guarded
    with tracehold.connect(process.url, token=token) as operator:
        reader = token_of(operator, "reader")
    with tracehold.connect(process.url, token=reader) as server:
        with pytest.raises(tracehold.AccessError, match="role") as caught:
            server.create_storage("x")
        assert caught.value.status == 403


def test_tokens_are_not_shown() -> None:
    with scripted(answer(b"{}", "401 No")) as script:
        server = tracehold.connect(script.url, token="th_secret", retry=tracehold.NEVER)
        with pytest.raises(tracehold.AccessError) as caught:
            list(server.storages())
        assert b"authorization: bearer th_secret" in script.requests[0].lower()
        shown = [repr(server), repr(server.settings), repr(server.query()), str(caught.value)]
        assert not [text for text in shown if "th_secret" in text]


def test_only_a_token_that_was_given_is_pickled(
    guarded: tuple[Process, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, token = guarded
    file = tmp_path / "token"
    file.write_text(token)
    given = pickle.dumps(tracehold.connect(process.url, token=token))
    from_file = pickle.dumps(tracehold.connect(process.url, token_file=file))
    monkeypatch.setenv("TRACEHOLD_TOKEN", token)
    from_environment = pickle.dumps(tracehold.connect(process.url))
    assert [token.encode() in text for text in (given, from_file, from_environment)] == [
        True,
        False,
        False,
    ]
    for pickled in (given, from_file, from_environment):
        assert list(pickle.loads(pickled).storages()) == []
    monkeypatch.delenv("TRACEHOLD_TOKEN")
    with pytest.raises(tracehold.AccessError):
        list(pickle.loads(from_environment).storages())


def test_a_shared_url_is_a_url(guarded: tuple[Process, str]) -> None:
    process, token = guarded
    with tracehold.connect(process.url, token=token) as operator:
        storage = operator.create_storage("shared")
        storage.push("a", "s", [b'{"name":"x","ts":1,"ph":"X"}\n'], kind="dft")
        call = Call.with_json(
            "POST", api("storages", storage.id, "shares"), {"expires_seconds": 3600}
        )
        shared = operator.transport.json(call)
    url = process.url + shared["path"]
    with tracehold.connect(url) as server:
        assert server.storage(storage.id).query().count() == 1
        with pytest.raises(tracehold.AccessError):
            server.create_storage("x")
        secret = url.rstrip("/").rpartition("/")[2]
        assert secret not in repr(server)
    with tracehold.connect(process.url, token=token) as operator:
        operator.storage(storage.id).delete()


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = (
        f'[tls]\ncertificate_file = "{CERTIFICATES}/server.pem"\n'
        f'key_file = "{CERTIFICATES}/server.key"\n'
        f'client_certificates = "required"\nclient_ca_file = "{CERTIFICATES}/authority.pem"\n'
    )
    with running(tmp_path_factory.mktemp("encrypted"), config) as process:
        yield process.url


CLIENT = {
    "client_certificate": CERTIFICATES / "client.pem",
    "client_key": CERTIFICATES / "client.key",
}


def test_certificates(encrypted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = CERTIFICATES / "authority.pem"
    with tracehold.connect(encrypted, ca_file=authority, **CLIENT) as server:
        for _ in range(3):
            assert server.health()["status"] == "ready"
    monkeypatch.setenv("TRACEHOLD_CA_FILE", str(authority))
    monkeypatch.setenv("TRACEHOLD_CLIENT_CERTIFICATE", str(CLIENT["client_certificate"]))
    monkeypatch.setenv("TRACEHOLD_CLIENT_KEY", str(CLIENT["client_key"]))
    with tracehold.connect(encrypted) as server:
        assert server.health()["status"] == "ready"


def test_a_server_that_is_not_trusted(encrypted: str) -> None:
    for ca_file in (None, CERTIFICATES / "stranger_authority.pem"):
        patient = tracehold.Retry(wait_max_unreachable=30)
        with tracehold.connect(encrypted, ca_file=ca_file, retry=patient, **CLIENT) as server:
            # Nothing is gained by waiting.
            with pytest.raises(tracehold.TLSError, match="certificate"):
                list(server.storages())


def test_a_client_without_a_certificate(encrypted: str) -> None:
    authority = CERTIFICATES / "authority.pem"
    with tracehold.connect(encrypted, ca_file=authority) as server:
        with pytest.raises(tracehold.TLSError):
            list(server.storages())


@pytest.mark.parametrize(
    "url",
    ["host:1", "ftp://h", "http://", "http://h/?a", "http://h:x", "http://u:p@h", "http://h /"],
)
def test_wrong_urls_say_what_a_right_one_is(url: str) -> None:
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:7117"):
        tracehold.connect(url)


def test_certificates_are_for_https(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="certificates are for https"):
        tracehold.connect("http://h", ca_file="ca.pem")
    monkeypatch.setenv("TRACEHOLD_CA_FILE", "ca.pem")
    assert tracehold.connect("http://h").settings.ca_file is None


def test_prefixes_and_ports() -> None:
    settings = tracehold.Settings("https://[::1]:7/p/s/SECRET/")
    assert settings.address == ("::1", 7)
    assert settings.path_prefix == "/p/s/SECRET"
    assert settings.shown_url == "https://[::1]:7/p/s/…"
    assert tracehold.Settings("http://h").address == ("h", 80)
    assert tracehold.Settings("https://h").address == ("h", 443)
