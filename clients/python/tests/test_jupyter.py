"""The magics and the HTML in a notebook, run by a kernel as Jupyter does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import tracehold
from conftest import Process


def run(*cells: str) -> list[list[Any]]:
    """Return the outputs of each cell, errors included."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    NotebookClient(notebook, timeout=60, kernel_name="python3", allow_errors=True).execute()
    return [cell.outputs for cell in notebook.cells]


@pytest.fixture
def _kernel(process: Process, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRACEHOLD_SERVER", process.url)
    # Nothing is written to the folder of the user.
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


@pytest.mark.usefixtures("_kernel")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_notebook(thousand: tracehold.Storage, process: Process) -> None:
    load = "%load_ext tracehold"
    outputs = run(
        load,
        "%%tracehold thousand --fields ts,name,fname\nname == 'write'\n",
        '%%tracehold thousand --group-by name --order-by "count desc" --as pandas --into frame\n\n',
        "print(frame['count'].tolist())",
        "%%tracehold thousand --as count --start 2023-11-14T22:13:20.001Z\ntid == 1\n",
        f"%tracehold {process.url}",
        f"%%tracehold {thousand.id} --as rows --limit 1 --fields id\n\n",
        "%%tracehold thousand --as count",
        "\n%%tracehold thousand --group-by name --as rows\n",
    )
    [shown] = outputs[1]
    assert "<th>fname</th>" in shown.data["text/html"]
    assert "/data/&lt;0&gt;&amp;.bin" in shown.data["text/html"]
    assert "the first 20 rows" in shown.data["text/html"]
    assert shown.data["text/plain"].startswith("<Query \"name == 'write'\"")
    assert outputs[2] == []
    assert outputs[3][0].text == "[666, 334]\n"
    assert outputs[4][0].data["text/plain"] == "225"
    assert "<th>packets</th>" in outputs[5][0].data["text/html"]
    assert outputs[6][0].data["text/plain"] == "[{'id': 0}]"
    # Without an expression: all events.
    assert outputs[7][0].data["text/plain"] == "1000"
    assert "'name': 'read'" in outputs[8][0].data["text/plain"]


WRONG = {
    "%%tracehold thousand --nothing\n\n": "unrecognized arguments: --nothing",
    "%%tracehold": "the following arguments are required: storage",
    "%%tracehold thousand --into a.b\n\n": "not the name of a variable",
    "%%tracehold thousand --as count\ndur > 5MS\n": "unknown unit",
    "%%tracehold nowhere\n\n": "no storage has the name 'nowhere'",
    "%%tracehold 'thousand\n\n": "No closing quotation",
    "%tracehold one two": "expects the URL of a server",
}


@pytest.mark.usefixtures("_kernel", "thousand")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_wrong_in_a_cell_is_said() -> None:
    _, *outputs = run("%load_ext tracehold", *WRONG)
    for cell, said in zip(WRONG, outputs, strict=True):
        # What is wrong with a magic is a line on the standard error, other errors have a traceback.
        [output] = said
        text = output.text if output.output_type == "stream" else output.evalue
        assert WRONG[cell] in text, cell
