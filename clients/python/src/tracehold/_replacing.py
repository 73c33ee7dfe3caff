"""Files that get their names when they are complete."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `target` at the end, if there was no exception."""
    # A name that nobody else has: neither a file of the user nor another download of this one.
    partial = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with partial.open("xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
