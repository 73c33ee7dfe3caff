"""When and how long requests are retried."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._errors import TraceholdError

_DOUBLINGS_MAX = 20


@dataclass(frozen=True)
class Retry:
    """How long requests wait while a server is busy, starting or unreachable, in seconds.

    A server that is busy names the wait (`Retry-After`). Requests that could have an effect twice
    are never sent again after their connection broke.
    """

    delay_first: float = 0.1
    """The first wait if the server names none; it doubles each time."""
    delay_max: float = 10.0
    """The longest single wait, even if the server asks for more."""
    wait_max: float = 120.0
    """The sum of all waits of one request."""
    wait_max_unreachable: float = 0.0
    """The same while no connection can be made: by default such a request fails at once."""

    def delay(
        self, attempt: int, waited: float, *, requested: float | None, unreachable: bool
    ) -> float | None:
        """Return the wait before the next attempt, or `None` to give up.

        `attempt` counts from 0, `waited` is the sum of the waits before.
        """
        doubled = self.delay_first * 2.0 ** min(attempt, _DOUBLINGS_MAX)
        wanted = doubled if requested is None else max(requested, self.delay_first)
        delay = min(wanted, self.delay_max)
        wait_max = self.wait_max_unreachable if unreachable else self.wait_max
        return delay if 0 < delay <= wait_max - waited else None


NEVER = Retry(delay_first=0, delay_max=0, wait_max=0)
"""No retries."""


class Budget:
    """The retries of one request."""

    def __init__(self, retry: Retry, sleep: Callable[[float], None] = time.sleep) -> None:
        self._retry = retry
        self._sleep = sleep
        self._attempt = 0
        self._waited = 0.0

    def wait(
        self,
        error: TraceholdError,
        *,
        requested: float | None = None,
        unreachable: bool = False,
    ) -> None:
        """Wait before the next attempt; raise `error` if there is none."""
        delay = self._retry.delay(
            self._attempt, self._waited, requested=requested, unreachable=unreachable
        )
        if delay is None:
            raise error
        self._sleep(delay)
        self._attempt += 1
        self._waited += delay


def is_temporary(status: int) -> bool:
    """Whether a response with this status may be another one later."""
    return status in {429, 502, 503, 504, 507}


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Read a `Retry-After`: seconds, or a date that is compared with `now`."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        # More digits are an absurd wait, which is limited anyway.
        return float(text[:9])
    try:
        then = parsedate_to_datetime(text)
    except ValueError:
        return None
    then = then if then.tzinfo else then.replace(tzinfo=timezone.utc)
    now = now or datetime.now(timezone.utc)
    return max(0.0, (then - now).total_seconds())
