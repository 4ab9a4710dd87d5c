"""Runs a program that measures how its own memory grows, in a Python of its own."""

from __future__ import annotations

import subprocess
import sys


def memory_grown(program: str, *arguments: str, timeout_seconds: float) -> float:
    """Return what a program prints: its largest memory at the end by its largest memory at first.

    :param program: the program's text.
    """
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=timeout_seconds
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)
