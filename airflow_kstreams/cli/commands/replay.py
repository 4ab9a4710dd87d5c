"""Defines ``airflow-kstreams replay``, which names the command to use: ``airflow-kstreams dead-letters
replay``.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import typer

from airflow_kstreams.cli.commands import dead_letters


@wraps(dead_letters.replay)
def replay(**options: Any) -> None:
    """Bring dead letters back, see the command that it names."""
    typer.echo("note: this command is called: airflow-kstreams dead-letters replay", err=True)
    dead_letters.replay(**options)
