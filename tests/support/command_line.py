"""The command ``airflow-kstreams`` as its users start it, a process of its own; and its JSON, held to its
schemas.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import jsonschema

from dev.reference_pages.json_schemas import schema_file
from dev.reference_pages.pages import FOLDER
from tests.support.fresh_python import ROOT

if TYPE_CHECKING:
    from typer.testing import Result


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, and return what it printed and its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "airflow_kstreams.cli", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def json_of(result: Result, command: str, *, exit_code: int = 0) -> Any:
    """Return the document that a command printed with --json, which fits the command's schema.

    :param command: the words of the command, as its module names them.
    """
    assert (result.exit_code, result.stderr) == (exit_code, "")
    return fitting(result.stdout, command)


def json_error_of(result: Result) -> Any:
    """Return the error that a command printed with --json: one line of stderr."""
    (line,) = result.stderr.splitlines()
    error = fitting(line, "error")
    assert error["exit_code"] == result.exit_code
    return error


def fitting(text: str, command: str) -> Any:
    """Return JSON that fits the schema of a command."""
    document = json.loads(text)
    schema = json.loads((FOLDER / schema_file(command)).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)
    return document
