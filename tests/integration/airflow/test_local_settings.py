"""An Airflow that is thrown away, of the demo or of tests."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import text


def test_no_component_waits_for_the_disk_when_airflow_is_thrown_away(airflow_database: Path) -> None:
    from airflow.utils.session import create_session

    with create_session() as session:
        assert session.scalar(text("PRAGMA synchronous")) == 0
