"""Times of queries."""

from __future__ import annotations

from datetime import datetime

Time = int | str | datetime
"""Nanoseconds since 1970, a text in any form that the server accepts, or a time with a zone.

A `pandas.Timestamp` is a `datetime` with nanoseconds, and keeps them.
"""


def time_of(value: Time) -> int | str:
    """Return a time as the server reads it."""
    if isinstance(value, bool) or not isinstance(value, (int, str, datetime)):
        message = f"{value!r} is not a time: expected nanoseconds since 1970, a text or a datetime"
        raise TypeError(message)
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        message = f"{value!r} has no time zone: add one, such as tzinfo=timezone.utc"
        raise ValueError(message)
    return value.isoformat()
