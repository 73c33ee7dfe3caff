"""The examples of the documents run, in their order, against a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from conftest import running

PROJECT = Path(__file__).parents[1]
REPOSITORY = PROJECT.parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "document", [REPOSITORY / "docs/python.md", PROJECT / "README.md"], ids=lambda path: path.name
)
def test_examples(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = document.read_text()
    monkeypatch.chdir(tmp_path)
    with running(tmp_path / "server") as process:
        monkeypatch.setenv("TRACEHOLD_SERVER", process.url)
        names: dict[str, Any] = {"__name__": "example"}
        examples = list(BLOCK.finditer(text))
        assert examples
        for example in examples:
            line = text.count("\n", 0, example.start(1))
            code = compile("\n" * line + example[1], document, "exec")
            exec(code, names)
        names["server"].close()
