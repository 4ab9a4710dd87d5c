from __future__ import annotations

from tests.support.spark.gated_scene import scene

__all__ = ["scene"]
