"""The command ``airflow-kstreams`` as its users start it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.fresh_python import ROOT


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
