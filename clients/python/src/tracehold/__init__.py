"""Client of Tracehold, a trace storage server.

```python
import tracehold

server = tracehold.connect("http://127.0.0.1:7117")
storage = server.storage("first")
frame = storage.query('name == "read" and dur > 5ms', fields=["ts", "dur"]).pandas()
```

`docs/python.md` of the repository is a tour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._errors import (
    AccessError,
    BusyError,
    ChecksumError,
    ConflictError,
    ExpressionError,
    IncompleteResultError,
    IncompleteResultWarning,
    NotFoundError,
    RefusedError,
    ResponseError,
    ResultNoteWarning,
    TLSError,
    TraceholdError,
    TransportError,
    UnreachableError,
)
from ._files import File
from ._packets import Packet
from ._push import Producer, Receipt
from ._query import Options, Query
from ._retry import NEVER, Retry
from ._rows import Rows
from ._server import Server, connect
from ._settings import Settings
from ._splits import Split
from ._storage import Storage
from ._summary import Summary
from ._version import __version__

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = [
    "NEVER",
    "AccessError",
    "BusyError",
    "ChecksumError",
    "ConflictError",
    "ExpressionError",
    "File",
    "IncompleteResultError",
    "IncompleteResultWarning",
    "NotFoundError",
    "Options",
    "Packet",
    "Producer",
    "Query",
    "Receipt",
    "RefusedError",
    "ResponseError",
    "ResultNoteWarning",
    "Retry",
    "Rows",
    "Server",
    "Settings",
    "Split",
    "Storage",
    "Summary",
    "TLSError",
    "TraceholdError",
    "TransportError",
    "UnreachableError",
    "__version__",
    "connect",
]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the magics: `%load_ext tracehold`."""
    from ._magic import register  # noqa: PLC0415  (IPython is only here when it calls this)

    register(shell)
