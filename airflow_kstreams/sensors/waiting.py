"""Where :class:`ConditionSensor` was before; import it from ``condition_sensor``."""

from __future__ import annotations

from airflow_kstreams.sensors.condition_sensor import ConditionSensor

__all__ = ["ConditionSensor"]
