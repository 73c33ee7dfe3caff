"""Which server, and how to reach it."""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from ._retry import Retry

_DEFAULT_URL = "http://127.0.0.1:7117"
_SHARE = re.compile(r"/s/[^/]+")
_HTTP_PORT = 80
_HTTPS_PORT = 443


@dataclass(frozen=True)
class Settings:
    """How to reach a server.

    Settings can be pickled, as distributed queries need. A token that was given as a text is part
    of that; one from the environment or a file is not: the process that unpickles takes it from its
    own environment, or from the same file.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    ca_file: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    connect_timeout: float = 10.0
    timeout: float = 600.0
    """How long a response may take to begin or to continue, in seconds."""
    retry: Retry = field(default_factory=Retry)
    strict: bool = False

    def __post_init__(self) -> None:
        parsed = _parsed(self.url)
        if parsed.scheme != "https" and (self.ca_file or self.client_certificate):
            message = f"{self.shown_url}: certificates are for https, and this is {parsed.scheme}"
            raise ValueError(message)

    @property
    def shown_url(self) -> str:
        """The URL without what gives access."""
        return _SHARE.sub("/s/…", self.url.rstrip("/"))

    @property
    def is_encrypted(self) -> bool:
        """Whether the server is reached by TLS."""
        return _parsed(self.url).scheme == "https"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parsed = _parsed(self.url)
        default = _HTTPS_PORT if parsed.scheme == "https" else _HTTP_PORT
        return parsed.hostname or "", parsed.port or default

    @property
    def path_prefix(self) -> str:
        """What is before every path: that of a shared URL, or of a proxy."""
        return _parsed(self.url).path.rstrip("/")

    def bearer(self) -> str | None:
        """Return the token to present, if there is one."""
        if self.token is not None:
            return self.token.strip() or None
        if self.token_file is not None:
            return _token_of(self.token_file)
        token = os.environ.get("TRACEHOLD_TOKEN", "").strip()
        if token:
            return token
        file = os.environ.get("TRACEHOLD_TOKEN_FILE")
        return _token_of(file) if file else None

    def tls(self) -> ssl.SSLContext:
        """Return a context that trusts the authorities of the settings, or else of the system."""
        context = ssl.create_default_context(cafile=self.ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.client_certificate:
            context.load_cert_chain(self.client_certificate, self.client_key)
        return context


def settings_from_environment(
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
) -> Settings:
    """Return settings with the variables of the command line for what is not given."""
    url = url or os.environ.get("TRACEHOLD_SERVER") or _DEFAULT_URL
    encrypted = _parsed(url).scheme == "https"

    def file(given: str | os.PathLike[str] | None, variable: str) -> str | None:
        if given is not None:
            return os.fspath(given)
        # The variables may be for another server than this one.
        return (os.environ.get(variable) or None) if encrypted else None

    return Settings(
        url=url,
        token=token,
        token_file=None if token_file is None else os.fspath(token_file),
        ca_file=file(ca_file, "TRACEHOLD_CA_FILE"),
        client_certificate=file(client_certificate, "TRACEHOLD_CLIENT_CERTIFICATE"),
        client_key=file(client_key, "TRACEHOLD_CLIENT_KEY"),
        connect_timeout=connect_timeout,
        timeout=timeout,
        retry=retry or Retry(),
        strict=strict,
    )


def _token_of(file: str) -> str | None:
    return Path(file).read_text(encoding="utf-8").strip() or None


def _parsed(url: str) -> SplitResult:
    try:
        parsed = urlsplit(url)
        host, _port = parsed.hostname, parsed.port
    except ValueError as error:
        raise _invalid(url, str(error)) from None
    if parsed.scheme not in {"http", "https"}:
        raise _invalid(url, "only http and https are supported")
    if not host or "@" in parsed.netloc:
        raise _invalid(url, "the host is missing, or there is a user or password")
    if parsed.query or parsed.fragment or not url.isprintable() or " " in url:
        raise _invalid(url, "it has a query, a fragment or a space")
    return parsed


def _invalid(url: str, why: str) -> ValueError:
    shown = _SHARE.sub("/s/…", url)
    return ValueError(f"server URL {shown!r}: {why}; expected a URL such as {_DEFAULT_URL}")
