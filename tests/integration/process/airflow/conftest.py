"""Airflow's environment, before any test module imports Airflow."""

from __future__ import annotations

from tests.support.airflow.airflow_environment import prepare

prepare()
