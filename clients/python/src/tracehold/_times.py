"""Times of queries."""

from __future__ import annotations

from datetime import datetime, timedelta

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


Duration = str | timedelta
"""A text such as `100ms`, or a length of time.

A `pandas.Timedelta` is a `timedelta` with nanoseconds, and keeps them.
"""


def duration_of(value: Duration) -> str:
    """Return a length of time as the server reads it."""
    if isinstance(value, str):
        return value
    if not isinstance(value, timedelta):
        message = f"{value!r} is not a length of time: expected a text as '100ms' or a timedelta"
        raise TypeError(message)
    whole = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    nanoseconds: int = getattr(value, "nanoseconds", 0)
    return f"{whole * 1000 + nanoseconds}ns"
