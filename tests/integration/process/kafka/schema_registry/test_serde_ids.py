"""Serde ids and topology hashes as another process computes them."""

from __future__ import annotations

import subprocess
import sys

from tests.support.fresh_python import ROOT
from tests.support.kafka.registries import all_different, copy_topology, new_registry

_PRINT_IDS = """
from tests.support.kafka.registries import all_different, copy_topology, new_registry
for serde in all_different(new_registry()):
    print(serde.id, copy_topology(serde).topology_hash())
"""


def test_ids_and_topology_hashes_are_the_same_when_another_process_builds_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PRINT_IDS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    own = [f"{serde.id} {copy_topology(serde).topology_hash()}" for serde in all_different(new_registry())]
    assert done.stdout.splitlines() == own
