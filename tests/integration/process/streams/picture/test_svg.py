"""The picture as another process draws it."""

from __future__ import annotations

import subprocess
import sys

from tests.support.topology import drawn_topologies as drawn


def test_picture_is_the_same_when_drawn_in_another_process() -> None:
    code = (
        "from tests.support.topology.drawn_topologies import side_by_side as d; print(d().to_svg(), end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == drawn.side_by_side().to_svg()
