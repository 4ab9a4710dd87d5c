from __future__ import annotations

from tests.support.spark.calling_scene import calling
from tests.support.spark.gated_scene import scene

__all__ = ["calling", "scene"]
