from __future__ import annotations

from tests.gated_scene import scene

__all__ = ["scene"]
