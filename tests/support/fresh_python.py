"""A Python that has just started, and what it answers: one start serves many questions.

For tests of what importing something loads. A fresh Python runs ``first``, then each question in a fork of
its own, so that no question sees what another has imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_SECONDS = 240.0

_ASK = """
import json, os, sys, traceback

def answered(code, known):
    try:
        exec(code, known)
        return {"answer": known["answer"]}
    except BaseException:
        return {"error": traceback.format_exc()}

first, questions = json.load(sys.stdin)
known = {"__name__": "fresh"}
exec(first, known)
answers = {}
for name, code in questions.items():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer = json.dumps(answered(code, known)).encode()
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answers[name] = json.loads(pipe.read() or b'{"error": "the process ended"}')
    os.waitpid(child, 0)
print(json.dumps(answers))
"""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a fresh Python answered, by question."""

    found: Mapping[str, Mapping[str, Any]]

    def to(self, question: str) -> Any:
        """Return the answer; fails with the question's traceback where it has none."""
        found = self.found[question]
        if "error" in found:
            raise AssertionError(f"{question}: {found['error']}")
        return found["answer"]


def ask(questions: Mapping[str, str], *, home: Path, first: str = "") -> Answers:
    """Start a Python and ask it.

    :param questions: name -> code that leaves something for JSON in ``answer``.
    :param home: its working directory, and Airflow's home.
    :param first: code that runs once, before the forks; it must leave no thread behind.
    """
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        input=json.dumps([first, dict(questions)]),
        env={**os.environ, "PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Answers(found=json.loads(done.stdout.splitlines()[-1]))
