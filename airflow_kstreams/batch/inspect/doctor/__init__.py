"""Looks for faults that may break the promise, before they do: in the cluster, the topics, the application's
state.

Only looks: it claims nothing, commits nothing and creates nothing. One module makes the checks of one kind;
``findings`` lists them and reads the facts that they all look at.
"""

from __future__ import annotations

from airflow_kstreams.batch.inspect.doctor.findings import Finding, Level, Subject, diagnose

__all__ = ["Finding", "Level", "Subject", "diagnose"]
