"""Queries and what they say about their results."""

from __future__ import annotations

import json
import warnings
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import tracehold
from conftest import BASE, NewStorage, event, lines
from scripted import chunked, scripted

BROKEN = ['torn {"name"', '{"name": "read", "ts": 17']


@pytest.fixture
def damaged(new_storage: NewStorage) -> tracehold.Storage:
    """Return a storage with 50 events and two lines that are no events."""
    return new_storage(lines([event(index) for index in range(50)]) + BROKEN)


def ids(query: tracehold.Query) -> list[int]:
    return [row["id"] for row in query.rows()]


def test_rows_are_events_in_order_of_time(thousand: tracehold.Storage) -> None:
    query = thousand.query('name == "write"', fields="ts, id, args.ret")
    rows = list(query.rows())
    assert [row["id"] for row in rows] == list(range(0, 1000, 3))
    assert rows[1] == {"ts": BASE + 30_000, "id": 3, "args.ret": 4099}
    assert query.summary == tracehold.Summary(rows=334, skipped=0)
    assert query.summary.is_complete


def test_a_result_can_be_left_before_its_end(thousand: tracehold.Storage) -> None:
    with thousand.query().rows() as rows:
        assert next(rows)["id"] == 0
    assert rows.summary is None
    assert list(rows) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start": BASE + 500_000, "end": BASE + 530_000}, [50, 51, 52]),
        ({"start": f"{(BASE + 500_000) // 1000}us", "limit": 2}, [50, 51]),
        ({"end": "2023-11-14T22:13:20.00002Z"}, [0, 1]),
        ({"end": datetime(2023, 11, 14, 22, 13, 20, 20, timezone.utc)}, [0, 1]),
        (
            {"end": datetime(2023, 11, 14, 23, 13, 20, 20, timezone(timedelta(hours=1)))},
            [0, 1],
        ),
        ({"order_by": "id desc", "limit": 2, "offset": 1}, [998, 997]),
        ({"order_by": ["tid desc", "id"], "limit": 2}, [3, 7]),
    ],
)
def test_options(thousand: tracehold.Storage, options: Any, expected: list[int]) -> None:
    assert ids(thousand.query(**options)) == expected
    assert ids(thousand.query().replace(**options)) == expected


def test_zero_is_a_number(server: tracehold.Server, thousand: tracehold.Storage) -> None:
    assert thousand.query(start=0).count() == 1000
    assert thousand.query(end=0).count() == 0
    with pytest.raises(tracehold.RefusedError, match="limit is at least 1"):
        list(thousand.query(limit=0).rows())
    assert server.query(storages=[]).count() == 0


@pytest.mark.parametrize(
    ("time", "error"),
    [
        (datetime(2023, 1, 1), ValueError),  # noqa: DTZ001
        (1.5, TypeError),
        (True, TypeError),
        ("yesterday", tracehold.RefusedError),
    ],
)
def test_times_without_a_meaning_are_refused(
    thousand: tracehold.Storage, time: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        thousand.query(start=time).count()


def test_counts_groups_and_fields(thousand: tracehold.Storage) -> None:
    assert thousand.query("tid == 1").count() == 250
    groups = thousand.query(group_by=["name"], aggregate=["count", "max:ret"])
    assert list(groups.rows()) == [
        {"name": "read", "count": 666, "max:ret": 5094},
        {"name": "write", "count": 334, "max:ret": 5095},
    ]
    for length in ("1ms", timedelta(milliseconds=1)):
        every = thousand.query(every=length, aggregate="count")
        assert [row["count"] for row in every.rows()] == [100] * 10
    with pytest.raises(TypeError, match="not a length of time"):
        thousand.query(every=1_000_000).count()  # type: ignore[arg-type]
    fields = {field["field"]: field["events"] for field in thousand.query().event_fields()}
    assert (fields["args.fname"], fields["ts"]) == (1000, 1000)


def test_an_explanation_says_what_was_read(thousand: tracehold.Storage) -> None:
    explained = thousand.query('name == "write"').explain()
    assert explained["explain"]["rows"] == 334


@pytest.mark.parametrize(
    ("fields", "columns"),
    [
        ("ts,dur", ["ts", "dur"]),
        (" ts , (dur / 1000)", ["ts", "(dur / 1000)"]),
        (["ts", "args.ret"], ["ts", "args.ret"]),
        ("`args.a,b`,ts", ["`args.a,b`", "ts"]),
        ("((dur + 1), dur)", ["((dur + 1), dur)"]),
    ],
)
def test_fields_are_a_text_or_a_list(fields: Any, columns: list[str]) -> None:
    assert tracehold.Options(fields=fields).request()["fields"] == columns


def test_an_invalid_expression_says_where(thousand: tracehold.Storage) -> None:
    with pytest.raises(tracehold.ExpressionError) as caught:
        thousand.query("dur > 5MS").count()
    assert "dur > 5MS\n         ^~" in str(caught.value)
    assert caught.value.more["column"] == 8


def test_many_storages(server: tracehold.Server, thousand: tracehold.Storage) -> None:
    other = server.create_storage("other")
    other.push("fixture", "trace", ["\n".join(lines([event(5)])).encode()], epoch=1)
    for named in (["thousand", "other"], [thousand, other], [thousand.id, "other"]):
        assert server.query("id == 5", storages=named).count() == 2
    assert server.query("id == 5", storages=["other"]).count() == 1
    with pytest.raises(tracehold.NotFoundError, match="nowhere"):
        server.query(storages=["nowhere"]).count()
    other.delete()


def test_what_cannot_be_read_is_a_warning(damaged: tracehold.Storage) -> None:
    forms = [
        lambda query: len(list(query.rows())),
        lambda query: query.count(),
        lambda query: query.arrow().num_rows,
        lambda query: query.reader().read_all().num_rows,
        lambda query: len(query.pandas()),
    ]
    for form in forms:
        query = damaged.query()
        with pytest.warns(tracehold.IncompleteResultWarning, match="2 parts") as caught:
            assert form(query) == 50
        assert len(caught) == 1
        assert query.summary is not None
        assert query.summary.skipped == 2


def test_the_warning_is_about_the_line_that_asked(damaged: tracehold.Storage) -> None:
    with pytest.warns(tracehold.IncompleteResultWarning) as caught:
        damaged.query().count()
    assert caught[0].filename == __file__


def test_strict_queries_refuse_what_lacks_something(
    damaged: tracehold.Storage, process: Any, tmp_path: Path
) -> None:
    with tracehold.connect(process.url, strict=True) as strict:
        for query in (damaged.query(strict=True), strict.storage(damaged.id).query()):
            with pytest.raises((tracehold.IncompleteResultError, tracehold.TransportError)):
                query.count()
            with pytest.raises((tracehold.IncompleteResultError, tracehold.TransportError)):
                list(query.rows())
            with pytest.raises((tracehold.IncompleteResultError, tracehold.TransportError)):
                query.write(tmp_path / "result.csv")
    assert list(tmp_path.iterdir()) == []


def test_it_is_the_server_that_refuses(damaged: tracehold.Storage) -> None:
    with pytest.raises(tracehold.IncompleteResultError) as caught:
        damaged.query(strict=True).count()
    assert (caught.value.status, caught.value.code) == (409, "result_incomplete")
    assert caught.value.instance


def test_notes_are_warnings(new_storage: NewStorage) -> None:
    odd = [event(index, args={"ret": "no number"}) for index in range(3)]
    query = new_storage(lines(odd)).query(fields="ts,ret")
    with pytest.warns(tracehold.ResultNoteWarning, match="ret"):
        query.arrow()


def test_files_get_their_name_when_they_are_complete(
    thousand: tracehold.Storage, tmp_path: Path
) -> None:
    path = thousand.query(fields="ts,id").write(tmp_path / "rows.csv")
    assert len(path.read_text().splitlines()) == 1001
    other = thousand.query().write(tmp_path / "rows", "ndjson")
    assert len([json.loads(line) for line in other.read_text().splitlines()]) == 1000
    with pytest.raises(ValueError, match="no format has this ending"):
        thousand.query().write(tmp_path / "rows.docx")
    with pytest.raises(tracehold.ExpressionError):
        thousand.query("bad ==").write(tmp_path / "bad.csv")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["rows", "rows.csv"]


def test_a_result_that_breaks_leaves_no_file(tmp_path: Path) -> None:
    with scripted(chunked(b"ts,dur\n", end=b"")) as script:
        script.answers[0] = script.answers[0].replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
        with tracehold.connect(script.url, retry=tracehold.NEVER) as server:
            with pytest.raises(tracehold.TransportError):
                server.query().write(tmp_path / "rows.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_query_is_shown_as_a_table_without_markup_of_the_trace(
    damaged: tracehold.Storage, new_storage: NewStorage
) -> None:
    bad = '<img src=x onerror="alert(1)">'
    storage = new_storage(lines([event(0, name=bad, args={bad: bad}), event(1)]))
    storage.update(name=bad, description=bad)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = [
            storage.query()._repr_html_(),
            storage._repr_html_(),
            storage.server._repr_html_(),
            storage.query(f"'{bad}'")._repr_html_(),
            damaged.query()._repr_html_(),
        ]
    for html in shown:
        assert "<img" not in html
    assert "&lt;img src=x onerror=&quot;alert(1)&quot;&gt;" in shown[0]
    assert "2023-11-14 22:13:20.000010000" in shown[0]
    assert shown[3].startswith("<pre>")
    assert "2 parts of the data cannot be read" in shown[4]
    assert "the first 20 rows" in shown[4]
    storage.delete()


def test_queries_and_storages_name_themselves(thousand: tracehold.Storage) -> None:
    query = thousand.query("dur > 5ms", limit=3)
    assert repr(query) == "<Query 'dur > 5ms', limit=3>"
    assert repr(thousand.query()) == "<Query for all events>"
    assert repr(thousand).startswith("<Storage 'thousand' FINALIZED")
