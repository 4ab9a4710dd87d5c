"""Runs the command line for ``python -m airflow_kstreams.cli``."""

from __future__ import annotations

from airflow_kstreams.cli.app import main

if __name__ == "__main__":
    main()
