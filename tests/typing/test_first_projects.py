"""mypy, as strict as it can be, finds nothing in the files that ``airflow-kstreams init`` writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.typing.test_checkers import run_checker
from tests.unit.first_steps.test_project import EXAMPLES, project

if TYPE_CHECKING:
    import pytest


def test_mypy_objects_to_nothing_in_a_first_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / example for example in EXAMPLES]
    for folder, example in zip(folders, EXAMPLES, strict=True):
        project(example).write(folder)
    monkeypatch.setenv("MYPYPATH", os.pathsep.join(map(str, folders)))
    files = sorted(str(file) for folder in folders for file in folder.rglob("*.py"))

    # With the settings of this checkout, which are strict, and so with what mypy knows of Airflow already.
    said = run_checker("mypy", "--no-pretty", *files)

    assert said == "Success: no issues found in 9 source files\n"
