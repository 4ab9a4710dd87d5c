"""Every case of the conformance suite on the real broker, as runs of the engine without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.conformance.cases import CASES
from tests.conformance.ours import incremental_batch
from tests.conformance.playing import Outcome, play
from tests.conformance.scene import Scene
from tests.conformance.steps import Case

pytestmark = pytest.mark.promise("ends-at-stop-offsets")

#: Cases wait for the broker most of the time.
_SIDE_BY_SIDE = 4


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, kafka: str) -> Iterator[Mapping[str, Future[Outcome]]]:
    """What went wrong in every case that was asked for; they are played side by side."""

    def verdict(number: int, case: Case) -> Outcome:
        scene = Scene(bootstrap=kafka, topic=f"bounded-read-{number}", case=case)
        try:
            return play(case, scene, incremental_batch)
        finally:
            scene.close()

    wanted = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    }
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        yield {
            case.name: pool.submit(verdict, number, case)
            for number, case in enumerate(CASES)
            if case.name in wanted
        }


@pytest.mark.parametrize("name", [case.name for case in CASES], ids=lambda name: name.replace(" ", "-"))
def test_bounded_read_is_exact_when_the_case_is(name: str, played: Mapping[str, Future[Outcome]]) -> None:
    outcome = played[name].result()
    assert not outcome.faults, outcome
