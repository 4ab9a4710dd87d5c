"""Airflow's serialization of DAGs, by the name that it has in the release that is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.serialization import serialized_objects

if TYPE_CHECKING:
    from airflow.serialization.serialized_objects import DagSerialization
else:
    _NAMES = ("DagSerialization", "SerializedDAG")
    DagSerialization = next(
        getattr(serialized_objects, name) for name in _NAMES if hasattr(serialized_objects, name)
    )

__all__ = ["DagSerialization"]
