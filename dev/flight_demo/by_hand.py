"""Runs of the demo without Airflow: each starts the application file, as a person or cron would."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dev.flight_demo.children import Children

_FILE = Path(__file__).resolve().parents[2] / "spark_apps" / "flight_delays.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """Starts runs, and says how they are, as :class:`~dev.flight_demo.local_airflow.LocalAirflow` does.

    :param children: starts and ends the processes.
    :param bootstrap: of the broker.
    :param environment: of the processes.
    :param tables_config: the file that says where tables are; None without any.
    """

    children: Children
    bootstrap: str
    environment: Mapping[str, str] = field(repr=False)
    tables_config: Path | None = None

    def trigger(self, application_id: str, run_id: str) -> None:
        """Start a run."""
        given = {
            "--application-id": application_id,
            "--run-id": run_id,
            "--bootstrap-servers": self.bootstrap,
            "--autostop-at": "eol",
            "--setting": "processing.guarantee=exactly_once",
            **({"--tables-config": str(self.tables_config)} if self.tables_config is not None else {}),
        }
        options = [text for pair in given.items() for text in pair]
        self.children.start(run_id, [sys.executable, str(_FILE), *options], self.environment)

    def run_state(self, run_id: str) -> str:
        """Return ``running``, ``success`` or ``failed``."""
        code = self.children.exit_code(run_id)
        return "running" if code is None else "failed" if code else "success"

    def log_tail(self, run_id: str, *, lines: int = 15) -> list[str]:
        """Return the end of what a run has printed."""
        return self.children.log_of(run_id).read_text(errors="replace").splitlines()[-lines:]
