"""A server, and what it has."""

from __future__ import annotations

import uuid
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from . import _html
from ._errors import BusyError, NotFoundError, ResponseError
from ._query import Options, Query, is_id
from ._settings import Settings, settings_from_environment
from ._storage import LabelValue, Storage
from ._summary import Summary
from ._transport import Call, Transport, api

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Self, Unpack

    from ._query import QueryOptions
    from ._retry import Retry
    from ._times import Time

_PAGE_ITEMS = 1000
_SHOWN_STORAGES = 50


class Server:
    """A Tracehold server. It may be used by several threads, pickled, and used after a fork."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.transport = Transport(settings)

    def storages(
        self,
        *,
        state: str | None = None,
        name: str | None = None,
        labels: Iterable[str] = (),
        search: str | None = None,
        order: Literal["oldest", "newest"] | None = None,
    ) -> Iterator[Storage]:
        """Yield storages, by default the oldest first, as pages of the list arrive.

        A label is `type`, `type:value`, or a comparison such as `rating>=4`; all must match.
        `search` is a text that is in the id, name or description.
        """
        parameters = {"state": state, "name": name, "search": search, "order": order}
        repeated = [("label", label) for label in labels]
        for items, _ in self.pages(api("storages"), parameters, repeated):
            for item in items:
                yield Storage(self, item)

    def storage(self, name_or_id: str) -> Storage:
        """Return the storage with this id, or with this name if it is the only one."""
        if is_id(name_or_id):
            return Storage(self, self.transport.json(Call("GET", api("storages", name_or_id))))
        found = list(self.storages(name=name_or_id))
        if len(found) == 1:
            return found[0]
        if not found:
            detail = f"no storage has the name {name_or_id!r}"
            document = {"code": "storage_not_found", "detail": detail}
            document["remedy"] = "storages() lists all of them"
            raise NotFoundError(404, document)
        ids = ", ".join(storage.id for storage in found)
        message = f"{len(found)} storages have the name {name_or_id!r}; name one by its id: {ids}"
        raise ValueError(message)

    def create_storage(
        self,
        name: str,
        *,
        description: str = "",
        labels: Mapping[str, LabelValue] | None = None,
        open: bool = True,  # noqa: A002
    ) -> Storage:
        """Create a storage, by default open for packets. Names need not be unique."""
        document = {"name": name, "description": description, "open": open}
        if labels:
            document["labels"] = dict(labels)
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        call = Call.with_json("POST", api("storages"), document, headers)
        return Storage(self, self.transport.json(call))

    def agents(self) -> Iterator[dict[str, Any]]:
        """Yield the agents with their streams."""
        for items, _ in self.pages(api("agents"), {}):
            yield from items

    def query(
        self,
        expression: str | None = None,
        *,
        storages: Sequence[str | Storage] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        **options: Unpack[QueryOptions],
    ) -> Query:
        """Return a query over some storages, or all; see `Storage.query`."""
        ids = None
        if storages is not None:
            ids = tuple(item.id if isinstance(item, Storage) else item for item in storages)
        return Query(self, ids, Options(expression=expression, start=start, end=end, **options))

    def health(self) -> dict[str, Any]:
        """Return what the server says about itself (`/readyz`), also while it is not ready.

        `status` is `ready`, `degraded`, or why it is not ready, such as `recovering`.
        """
        try:
            with self.transport.send_once(Call("GET", "/readyz")) as response:
                document = response.json()
        except BusyError as error:
            document = {**error.document, "status": error.code}
        return dict(document)

    def pages(
        self,
        path: str,
        parameters: Mapping[str, str | None],
        repeated: Sequence[tuple[str, str]] = (),
    ) -> Iterator[tuple[list[dict[str, Any]], int]]:
        """Yield the pages of a list, each with the number of items that it lacks."""
        given = [(name, value) for name, value in parameters.items() if value is not None]
        cursor: str | None = None
        while True:
            more = [("limit", str(_PAGE_ITEMS))] + ([("cursor", cursor)] if cursor else [])
            call = Call("GET", path, parameters=[*given, *repeated, *more])
            with self.transport.send(call) as response:
                page = response.json()
                skipped = Summary.of(response).skipped
            if not isinstance(page, dict) or not isinstance(page.get("items"), list):
                message = f"{path}: the response is not a page of a list"
                raise ResponseError(message)
            yield page["items"], skipped or 0
            cursor = page.get("next")
            if cursor is None:
                return

    def close(self) -> None:
        """Close the connections that are kept for the next requests."""
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Server, (self.settings,)

    def __repr__(self) -> str:
        return f"<Server {self.settings.shown_url}>"

    def _repr_html_(self) -> str:
        columns = ["name", "id", "state", "packets", "events", "bytes", "created"]
        newest = islice(self.storages(order="newest"), _SHOWN_STORAGES)
        rows = [[item.document.get(column) for column in columns] for item in newest]
        caption = self.settings.shown_url
        if len(rows) == _SHOWN_STORAGES:
            caption += f": the newest {_SHOWN_STORAGES} storages"
        return _html.table(columns, rows, caption)


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    client_certificate: str | os.PathLike[str] | None = None,
    client_key: str | os.PathLike[str] | None = None,
    connect_timeout: float = 10.0,
    timeout: float = 600.0,
    retry: Retry | None = None,
    strict: bool = False,
) -> Server:
    """Return a server; nothing is sent yet.

    What is not given comes from the variables that the command line reads, too: `TRACEHOLD_SERVER`,
    `TRACEHOLD_TOKEN`, `TRACEHOLD_TOKEN_FILE`, `TRACEHOLD_CA_FILE`, `TRACEHOLD_CLIENT_CERTIFICATE`
    and `TRACEHOLD_CLIENT_KEY`. A shared URL (`https://HOST/s/SECRET/`) is a URL, too.

    With `strict`, results that lack something are refused instead of being reported by a warning.
    """
    return Server(
        settings_from_environment(
            url,
            token=token,
            token_file=token_file,
            ca_file=ca_file,
            client_certificate=client_certificate,
            client_key=client_key,
            connect_timeout=connect_timeout,
            timeout=timeout,
            retry=retry,
            strict=strict,
        )
    )
