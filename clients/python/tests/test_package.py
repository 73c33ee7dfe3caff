"""The package itself: its types, its style, its version, and that it needs nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tomllib

import tracehold

PROJECT = Path(__file__).parents[1]
REPOSITORY = PROJECT.parents[1]


def run(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_types() -> None:
    run("mypy")


def test_callers_see_the_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import tracehold\n"
        "server = tracehold.connect()\n"
        "reveal_type(server.storage('x').query('a == 1', limit=3).count())\n"
        "server.storage('x').query(limits=3)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", str(program)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert 'Revealed type is "int"' in done.stdout or "builtins.int" in done.stdout, done.stdout
    assert 'Unexpected keyword argument "limits"' in done.stdout, done.stdout
    assert "found module but no type hints" not in done.stdout


def test_style() -> None:
    run("ruff", "check")
    run("ruff", "format", "--check")


def test_the_version_is_that_of_the_server() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    workspace = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]
    assert project["version"] == workspace["package"]["version"] == tracehold.__version__


def test_everything_public_has_a_name() -> None:
    assert [name for name in tracehold.__all__ if not hasattr(tracehold, name)] == []
