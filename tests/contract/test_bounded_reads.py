"""The conformance cases, which the real broker passes (``integration/kafka/test_bounded_reads.py``), on the
in-memory Kafka: every state of a topic is the same to a run there, and its cleaner leaves the same records.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.conformance.cases import CASES
from tests.conformance.in_memory import MemoryScene, incremental_batch
from tests.conformance.playing import play
from tests.conformance.steps import Case


@pytest.mark.parametrize("varied", [False, True], ids=["memory", "memory-varied"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_bounded_read_is_the_same_as_on_a_broker(case: Case, varied: bool) -> None:
    scene = MemoryScene(topic="bounded-read", case=case, random=Random(case.name) if varied else None)
    outcome = play(case, scene, incremental_batch)
    assert not outcome.faults, outcome
