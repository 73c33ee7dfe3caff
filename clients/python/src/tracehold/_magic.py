"""Magics of IPython and Jupyter: `%tracehold` names a server, `%%tracehold` queries a storage."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from IPython.core.error import UsageError

from ._query import Options, Query
from ._server import Server, connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from IPython.core.interactiveshell import InteractiveShell

_FORMS = ("query", "rows", "arrow", "pandas", "polars", "duckdb", "count", "explain")
_TEXTS = {
    "start": "only events that start at or after this time",
    "end": "only events that start before this time",
    "fields": "fields of the rows, separated by commas",
    "group-by": "fields whose values make groups",
    "aggregate": "what is computed of each group",
    "every": "groups by intervals of this length, such as 1s",
    "histogram": "groups by the power of two below this field",
    "order-by": "fields or columns of the order",
}
_SWITCHES = {
    "estimate": "estimate numbers of events in intervals",
    "derived": "read derived streams, too",
    "strict": "refuse a result that lacks something",
}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are those of a cell instead of ending the kernel."""

    def error(self, message: str) -> NoReturn:
        usage = f"{message}\n{self.format_help()}"
        raise UsageError(usage)


def _parser() -> _Parser:
    parser = _Parser(prog="%%tracehold", add_help=False, allow_abbrev=False)
    parser.add_argument("storage", help="name or id of the storage")
    for name, text in _TEXTS.items():
        parser.add_argument(f"--{name}", help=text)
    for name, text in _SWITCHES.items():
        parser.add_argument(f"--{name}", action="store_true", default=None, help=text)
    parser.add_argument("--limit", type=int, help="the most rows or groups")
    parser.add_argument("--as", dest="form", choices=_FORMS, default="query")
    parser.add_argument("--into", help="variable for the result, which is not displayed then")
    return parser


class Magics:
    """The magics of a shell, with the server that they use."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._server: Server | None = None

    def server(self, line: str) -> Server:
        """Name the server of the following cells: `%tracehold http://127.0.0.1:7117`."""
        words = _words(line)
        if len(words) > 1:
            message = "%tracehold expects the URL of a server, or nothing for TRACEHOLD_SERVER"
            raise UsageError(message)
        self._server = connect(words[0] if words else None)
        return self._server

    def query(self, line: str, cell: str) -> Any:
        """Query a storage: `%%tracehold STORAGE [options]`; the cell is the expression, if any."""
        arguments = vars(_parser().parse_args(_words(line)))
        name, form, variable = (arguments.pop(key) for key in ("storage", "form", "into"))
        if variable is not None and not variable.isidentifier():
            message = f"--into {variable!r} is not the name of a variable"
            raise UsageError(message)
        self._server = self._server or connect()
        given = {key: value for key, value in arguments.items() if value is not None}
        options = Options(expression=cell.strip() or None, **given)
        storage = self._server.storage(name)
        result = _in_form(Query(self._server, (storage.id,), options), form)
        if variable is None:
            return result
        self._shell.user_ns[variable] = result
        return None


def with_body(lines: list[str]) -> list[str]:
    """Add an empty line to a cell that is only `%%tracehold …`.

    IPython refuses cell magics without a body, but a query needs no expression.
    """
    is_alone = len(lines) == 1 and lines[0].split(maxsplit=1)[:1] == ["%%tracehold"]
    return [lines[0].rstrip("\n") + "\n", "\n"] if is_alone else lines


def register(shell: InteractiveShell) -> None:
    """Add the magics to a shell."""
    if with_body not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(with_body)
    magics = Magics(shell)
    for function, kind in ((magics.server, "line"), (magics.query, "cell")):
        # The types of the decorator of this method are those of another function.
        shell.register_magic_function(function, kind, "tracehold")  # type: ignore[arg-type]


def _in_form(query: Query, form: str) -> Any:
    if form == "query":
        return query
    if form == "rows":
        return list(query.rows())
    return getattr(query, form)()


def _words(line: str) -> Sequence[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        message = f"{line!r}: {error}"
        raise UsageError(message) from None
