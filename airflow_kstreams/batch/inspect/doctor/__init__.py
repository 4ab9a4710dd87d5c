"""Looks for faults that may break the promise, before they do: in the cluster, the topics, the application's
state.

Only looks: it claims nothing, commits nothing and creates nothing. One module makes the checks of one kind;
``findings`` lists them and reads the facts that they all look at; ``looks`` makes them in turn, or side by
side. What surrounds an application (installation, executors, Airflow, schema registry, disk) is looked at in
``inspect.surroundings``.
"""

from __future__ import annotations

from airflow_kstreams.batch.inspect.doctor.findings import Subject, diagnose
from airflow_kstreams.batch.inspect.doctor.looks import Finding, Level

__all__ = ["Finding", "Level", "Subject", "diagnose"]
