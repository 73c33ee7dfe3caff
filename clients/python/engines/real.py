"""A storage with real traces, for every engine."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tracehold

REPOSITORY = Path(__file__).parents[3]
DATA = REPOSITORY / "tests/data"


def real_storage(server: tracehold.Server, folder: Path) -> tracehold.Storage:
    """Return a storage with the traces of three producers."""
    storage = server.create_storage("training")
    # As text, which is cut into packets.
    text = folder / "trace.pfw"
    text.write_bytes(gzip.decompress((DATA / "trace-0-of-1.pfw.gz").read_bytes()))
    command = [os.environ["PROGRAMS_UNDER_TEST"] + "/tracehold", "push", "--packet-bytes", "65536"]
    command += ["--storage", storage.id, "--server", server.settings.url, str(text)]
    command += [str(DATA / "chrome_viztracer.json"), str(DATA / "lttng")]
    subprocess.run(command, check=True, capture_output=True)
    return storage.finalize()


def groups(query: tracehold.Query) -> list[tuple[Any, ...]]:
    """Return what the server computes of each name and kind."""
    aggregates = "count,sum:dur,min:ts,max:tid"
    grouped = query.replace(fields=None, group_by="name,kind", aggregate=aggregates)
    columns = ("name", "kind", "count", "sum:dur", "min:ts", "max:tid")
    return sorted(tuple(row[column] for column in columns) for row in grouped.rows())


def run_examples(engine: str, server: tracehold.Server, folder: Path) -> str:
    """Run the examples of a document for an engine, as a program; return what it prints."""
    document = REPOSITORY / "docs/python.md"
    text = document.read_text()
    block = re.compile(rf"^```python {engine}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    examples = list(block.finditer(text))
    assert examples
    lines = [""] * text.count("\n")
    for example in examples:
        at = text.count("\n", 0, example.start(1))
        code = example[1].splitlines()
        lines[at : at + len(code)] = code
    program = folder / "example.py"
    # Errors name the line of the document.
    program.write_text("\n".join(lines))
    environment = os.environ | {
        "TRACEHOLD_SERVER": server.settings.url,
        # The workers of Spark find their packages where this program does.
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
