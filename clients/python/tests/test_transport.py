"""What happens when servers are busy, connections break, and responses end early."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import threading
import time
from datetime import datetime, timezone
from typing import Any

import pytest

import tracehold
from scripted import END, answer, chunked, scripted
from tracehold._retry import retry_after
from tracehold._transport import Call, _is_readable

QUICK = tracehold.Retry(delay_first=0.01, delay_max=0.05, wait_max=1)
BUSY = answer(b'{"code": "busy", "detail": "no room"}', "429 Too Many Requests", retry_after="0")
ROWS = b"tracehold-rows: 2\r\ntracehold-skipped: 0\r\n\r\n"
ID = "01a208f4-b1bd-7ec8-a96b-b8262c60526c"


def client(url: str, **options: Any) -> tracehold.Server:
    return tracehold.connect(url, **{"retry": QUICK, "timeout": 5, **options})


def ready(server: tracehold.Server) -> Any:
    return server.transport.json(Call("GET", "/readyz"))


def rows_of(server: tracehold.Server) -> list[dict[str, Any]]:
    return list(server.query(storages=[ID]).rows())


@pytest.mark.parametrize("status", ["429 Busy", "502 Bad", "503 Wait", "504 Late", "507 Full"])
def test_a_server_that_is_busy_is_asked_again(status: str) -> None:
    busy = answer(b"{}", status, retry_after="0")
    with scripted(busy, busy, answer(b'{"status": "ready"}')) as script, client(script.url) as to:
        assert ready(to) == {"status": "ready"}
        assert len(script.requests) == 3


def test_waiting_ends_with_the_last_refusal() -> None:
    retry = tracehold.Retry(delay_first=0.01, delay_max=0.01, wait_max=0.025)
    with scripted(*[BUSY] * 9) as script, client(script.url, retry=retry) as to:
        with pytest.raises(tracehold.BusyError, match="no room") as caught:
            ready(to)
        assert len(script.requests) == 3
        assert caught.value.code == "busy"
        assert caught.value.retry_after == 0


def test_other_refusals_are_final() -> None:
    body = {"code": "storage_not_found", "detail": "gone", "cause": "deleted", "remedy": "list"}
    body |= {"instance": "ab-1", "status": 404, "extra": 7}
    problem = answer(json.dumps(body).encode(), "404 Not Found", "application/problem+json")
    with scripted(problem) as script, client(script.url) as to:
        with pytest.raises(tracehold.NotFoundError) as caught:
            to.storage(ID)
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.status, error.code, error.more) == (404, "storage_not_found", {"extra": 7})
        shown = "gone (storage_not_found, HTTP 404)\ncause: deleted\nremedy: list\nrequest: ab-1"
        assert str(error) == str(caught.value) == shown


def test_the_answer_of_a_proxy_is_an_error_too() -> None:
    page = answer(b"<html>\n  bad gateway</html>", "501 No", "text/html")
    moved = answer(b"", "302 Found", location="http://127.0.0.1:1/")
    with scripted(page, moved) as script, client(script.url) as to:
        with pytest.raises(tracehold.RefusedError, match="<html> bad gateway</html>"):
            ready(to)
        with pytest.raises(tracehold.RefusedError, match="redirected"):
            ready(to)


def test_trailer_fields_say_what_is_missing() -> None:
    trailer = b'0\r\ntracehold-rows: 1\r\ntracehold-skipped: 3\r\ntracehold-skipped-reasons: ["a"]'
    with scripted(chunked(b'{"a":1}\n', end=trailer + b"\r\n\r\n")) as script:
        with client(script.url) as to, pytest.warns(tracehold.IncompleteResultWarning, match="a"):
            assert rows_of(to) == [{"a": 1}]


def test_an_answer_that_says_nothing_about_itself_is_a_warning() -> None:
    with scripted(chunked(b'{"a":1}\n')) as script, client(script.url) as to:
        with pytest.warns(tracehold.IncompleteResultWarning, match="does not say"):
            assert rows_of(to) == [{"a": 1}]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({"summary": {"skipped": ["x"], "skipped_records": 1}}, 1),
        ({"explain": {}, "notes": [], "skipped": []}, 1),
        ({"summary": "of a book"}, 2),
    ],
)
def test_the_trailer_decides_what_the_last_line_is(last: dict[str, Any], expected: int) -> None:
    body = b'{"a":1}\n' + json.dumps(last).encode() + b"\n"
    end = b"0\r\ntracehold-skipped: 0\r\ntracehold-rows: %d\r\n\r\n" % expected
    with scripted(chunked(body, end=end)) as script, client(script.url) as to:
        assert len(rows_of(to)) == expected


@pytest.mark.parametrize(
    "cut",
    [
        chunked(b'{"a":1}\n{"a":2}\n', end=b""),
        chunked(b'{"a":1}\n', end=b"20\r\n{"),
        chunked(b'{"a":1}\n{"a":2}\n', end=b"0\r\n" + ROWS[:20]),
        answer(b'{"a":1}\n{"a":2}\n{"a":3}\n')[:-8],
        chunked(b'{"a":1}\n', end=b"0\r\n" + ROWS),
    ],
    ids=["without an end", "in a chunk", "in the trailer", "before its length", "with fewer rows"],
)
def test_a_response_that_is_cut_is_never_complete(cut: bytes) -> None:
    closing = cut.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
    with scripted(closing) as script, client(script.url) as to:
        with pytest.raises((tracehold.TransportError, tracehold.ResponseError)):
            rows_of(to)


def test_a_response_without_a_recognizable_end_is_refused() -> None:
    endless = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}"
    with scripted(endless) as script, client(script.url) as to:
        with pytest.raises(tracehold.ResponseError, match="neither a length nor chunks"):
            ready(to)


def test_connections_are_reused_and_replaced() -> None:
    with scripted(*[answer()] * 3, END, answer()) as script, client(script.url) as to:
        for _ in range(3):
            ready(to)
        assert script.connections == 1
        ready(to)
        assert (script.connections, len(script.requests)) == (2, 5)


def test_what_is_not_repeatable_is_sent_once() -> None:
    with scripted(END, answer()) as script, client(script.url) as to:
        with pytest.raises(tracehold.TransportError):
            to.transport.done(Call("POST", "/x", repeatable=False))
        assert len(script.requests) == 1


def test_a_connection_that_was_closed_while_idle_is_not_used() -> None:
    with scripted(answer()) as script, client(script.url) as to:
        ready(to)
        # The server closes it, as after 75 seconds, and says nothing.
        assert to.transport._idle[0].sock is not None
        while not _is_readable(to.transport._idle[0].sock):
            time.sleep(0.01)
        script.answers.append(answer())
        to.transport.done(Call("POST", "/x", repeatable=False))
        assert (script.connections, len(script.requests)) == (2, 2)


def test_a_refusal_during_the_body_is_read() -> None:
    refused = answer(b'{"code": "disk_full"}', "400 No", connection="close")
    with scripted(refused, body_bytes_max=1000) as script, client(script.url) as to:
        body = [bytes(1 << 20)] * 16
        with pytest.raises((tracehold.RefusedError, tracehold.TransportError)) as caught:
            to.transport.done(Call("POST", "/x", content_type="a/b", body=body, repeatable=False))
        # The kernel may drop the answer when the peer has closed.
        assert isinstance(caught.value, tracehold.TransportError) or caught.value.code


def test_a_server_that_is_not_there() -> None:
    with client("http://127.0.0.1:1") as to:
        with pytest.raises(tracehold.UnreachableError, match="no connection"):
            ready(to)
    patient = tracehold.Retry(delay_first=0.05, wait_max_unreachable=0.2)
    with client("http://127.0.0.1:1", retry=patient) as to:
        with pytest.raises(tracehold.UnreachableError):
            ready(to)


def test_threads_share_a_server(server: tracehold.Server) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                assert ready(server)["status"]
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_connections_of_its_own(thousand: tracehold.Storage) -> None:
    expected = thousand.query().count()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.map(_count, [thousand.query()] * 8)
        pool.close()
        pool.join()
    assert found == [expected] * 8
    assert thousand.query().count() == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_leaves_the_connections_of_its_parent_alone() -> None:
    with scripted(answer(), answer(), answer()) as script, client(script.url) as to:
        ready(to)
        child = multiprocessing.get_context("fork").Process(target=ready, args=[to])
        child.start()
        child.join()
        assert (child.exitcode, script.connections) == (0, 2)
        ready(to)
        assert script.connections == 2


def _count(query: tracehold.Query) -> int:
    return query.count()


def test_retries_wait_as_long_as_asked_within_limits() -> None:
    now = datetime(2026, 11, 21, 6, tzinfo=timezone.utc)
    for value, expected in [
        ("0", 0),
        (" 17 ", 17),
        ("Sat, 21 Nov 2026 06:01:30 GMT", 90),
        ("Sat, 21 Nov 2026 05:00:00 GMT", 0),
        ("soon", None),
        ("-1", None),
        ("", None),
        (None, None),
        ("9" * 400, 999_999_999),
    ]:
        assert retry_after(value, now) == expected, value
    retry = tracehold.Retry(delay_first=0.1, delay_max=1, wait_max=3, wait_max_unreachable=0.5)
    for attempt, waited, requested, unreachable, delay in [
        (0, 0, None, False, 0.1),
        (1, 0, None, False, 0.2),
        (99, 2, None, False, 1),
        (99, 2.5, None, False, None),
        (0, 0, 0.7, False, 0.7),
        (0, 0, 0, False, 0.1),
        (0, 0, 60, False, 1),
        (2, 0.1, None, True, 0.4),
        (2, 0.11, None, True, None),
    ]:
        found = retry.delay(attempt, waited, requested=requested, unreachable=unreachable)
        assert found == delay, (attempt, waited, requested, unreachable)
    assert tracehold.NEVER.delay(0, 0, requested=1, unreachable=False) is None
