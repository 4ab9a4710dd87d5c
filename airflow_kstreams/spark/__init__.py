"""Runs topologies on Spark: the main of an application file, one Spark job per subtopology, hosts of tasks.

``run`` is imported on first use, so that importing this package starts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_kstreams.spark.driver.application import run

__all__ = ["run"]


def __getattr__(name: str) -> Any:
    if name == "run":
        from airflow_kstreams.spark.driver.application import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
