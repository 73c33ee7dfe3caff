"""What a result says about itself: how long it is, and what it lacks."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ._errors import (
    IncompleteResultError,
    IncompleteResultWarning,
    ResultNoteWarning,
)

if TYPE_CHECKING:
    from ._transport import Response

_PACKAGE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Summary:
    """What is known of a result once all of it was received."""

    rows: int | None
    """Rows or groups, or `None` if the server does not say."""
    skipped: int | None
    """Records, packets and streams that cannot be read; `None` if nobody knows."""
    reasons: tuple[str, ...] = ()
    """Some of them, and why."""
    notes: tuple[str, ...] = ()
    """What a reader must know, such as that numbers are estimates."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing was skipped."""
        return self.skipped == 0

    @classmethod
    def of(cls, response: Response) -> Summary:
        """Read the header and trailer fields of a response that was received to its end."""
        return cls(
            rows=_number(response.header("tracehold-rows")),
            skipped=_number(response.header("tracehold-skipped")),
            reasons=_texts(response.header("tracehold-skipped-reasons")),
            notes=_texts(response.header("tracehold-notes")),
        )

    def describe(self) -> str:
        """Say in words what is missing; empty if nothing is."""
        if self.skipped == 0:
            return ""
        if self.skipped is None:
            return (
                "the server, or a proxy before it, does not say whether all data could be read: "
                "something may be missing from the result"
            )
        reasons = "; ".join(self.reasons) or "no reason was given"
        parts = "1 part" if self.skipped == 1 else f"{self.skipped} parts"
        return f"{parts} of the data cannot be read and were skipped: {reasons}"

    def report(self, *, strict: bool) -> Summary:
        """Warn of what a reader must know; refuse what lacks something if `strict`."""
        missing = self.describe()
        if missing and strict:
            document = {
                "code": "result_incomplete",
                "detail": missing,
                "remedy": "query without strict to accept what can be read",
            }
            raise IncompleteResultError(409, document)
        if missing:
            _warn(missing, IncompleteResultWarning)
        for note in self.notes:
            _warn(note, ResultNoteWarning)
        return self


def _warn(message: str, category: type[Warning]) -> None:
    warnings.warn(message, category, stacklevel=_caller_level())


def _caller_level() -> int:
    """Return the level of the caller outside of this package."""
    import sys  # noqa: PLC0415

    level, frame = 1, sys._getframe(1)  # noqa: SLF001
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


def _number(value: str | None) -> int | None:
    text = (value or "").strip()
    return (
        int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(1 << 64)) else None
    )


def _texts(value: str | None) -> tuple[str, ...]:
    try:
        texts = json.loads(value or "[]")
    except ValueError:
        return ()
    return tuple(str(text) for text in texts) if isinstance(texts, list) else ()
