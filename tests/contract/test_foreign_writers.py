"""A run that another program began in the spec's bare format, and died in, is claimed where it stood.

Also what happens when the two programs write into each other's runs, and when our own begin dies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.streams.errors import DataLossError, TaskFencedError
from airflow_kstreams.streams.ports import ClusterPort, CommittedOffset, TopicPartition
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.contract.conftest import Contract
from tests.contract.foreign import ForeignProgram, Scene
from tests.simulation.crash_points import one_after_the_other

pytestmark = pytest.mark.promise("foreign-runs-are-claimed")

T = TypeVar("T")
#: What a finished run of ours leaves: two stops, two notifications, the stop between and the marker.
TOMBSTONES = 6
#: Steps of a run of the other program: two stops, the marker, two inputs with a notification each, the topic
#: between, the marker.
RUN_STEPS = 9


@pytest.fixture
def scene(contract: Contract) -> Iterator[Scene]:
    made = Scene(contract=contract)
    if isinstance(contract.cluster, InMemoryKafka):
        with one_after_the_other():
            yield made
    else:
        yield made


def chosen(scene: Scene, moments: Sequence[T]) -> Sequence[T]:
    """Return all moments of a death in memory; on a broker, which is slow, the last and one in three."""
    in_memory = isinstance(scene.contract.cluster, InMemoryKafka)
    return moments if in_memory else moments[(len(moments) - 1) % 3 :: 3]


def capture(scene: Scene, run_id: str, *, cluster: ClusterPort | None = None, try_number: int = 0) -> Slice:
    """Begin a run as the capture operator does."""
    application = scene.application
    coordinator = Coordinator(
        cluster or scene.contract.cluster, application.checked, clock=scene.contract.clock
    )
    try:
        plan = application.topology.plan(scene.app)
        begun = coordinator.begin(run_id, plan, order=(0, try_number), hold_lease=False)
    finally:
        coordinator.close()
    assert begun.slice is not None
    return begun.slice


def stops(slice_: Slice) -> dict[int, int]:
    return {part.partition: part.stop_offset for part in slice_.inputs}


def judge(scene: Scene) -> None:
    """After the last run nothing may be left, lost or doubled."""
    assert scene.results() == sorted(value + b"mn" for value in scene.arrived)
    scene.contract.until(
        lambda: (
            {tp: found.offset for tp, found in committed(scene).items()}
            == scene.contract.admin.end_offsets(scene.partitions, isolation="read_uncommitted")
        ),
        "every committed offset to be the end of its log",
    )
    for key, (value, headers) in scene.metadata_records().items():
        assert value is None or headers, f"{key!r} is still the other program's"


def finish_everything(scene: Scene) -> None:
    """Run ours, and one more for what came too late."""
    for run_id in ("run-1", "run-2"):
        scene.application.run(run_id)
    judge(scene)


def committed(scene: Scene) -> dict[TopicPartition, CommittedOffset]:
    return scene.contract.reader(group=scene.app).committed(scene.partitions)


@pytest.mark.parametrize(
    "contract", ["memory varied", pytest.param("memory", marks=pytest.mark.prove)], indirect=True
)
@pytest.mark.parametrize("taken", range(2 * RUN_STEPS + TOMBSTONES + 1))
def test_run_is_taken_over_where_it_stood_when_the_other_program_dies_in_its_first_runs(
    scene: Scene, taken: int
) -> None:
    scene.arrive(0, 0, 1)
    program = ForeignProgram(scene)
    for _, step in program.steps()[:taken]:
        step()
    if taken > RUN_STEPS:
        scene.arrive(0, 1, 1)
        program = ForeignProgram(scene)
        for _, step in program.steps()[: taken - RUN_STEPS]:
            step()
    scene.arrive(0, 1)
    began = capture(scene, "run-1")
    assert stops(began) == (program.stops or scene.ends())
    scene.arrive(1)
    assert capture(scene, "run-1").inputs == began.inputs
    finish_everything(scene)


def test_run_is_taken_over_where_it_stood_when_the_other_program_dies_again_and_again(scene: Scene) -> None:
    """It dies after each of its steps, one life each; in between our own run comes to its end."""
    scene.arrive(0, 1)
    scene.application.run("run-first")
    for taken in chosen(scene, range(TOMBSTONES + RUN_STEPS + 1)):
        program = ForeignProgram(scene)
        steps = program.steps()
        assert len(steps) == TOMBSTONES + RUN_STEPS
        scene.arrive(0, 1)
        for _, step in steps[:taken]:
            step()
        scene.arrive(1)
        wanted = program.stops or scene.ends()
        summary = scene.application.run(f"run-{taken}")
        assert scene.last_stops() == wanted, f"it died before {steps[taken : taken + 1]}"
        if summary.empty:
            # It had done everything but say so. The next life is to find as many keys as the others.
            scene.application.run(f"run-{taken}-rest")
    scene.arrive(0)
    scene.application.run("run-last")
    judge(scene)


@pytest.mark.parametrize("taken", [3, 5], ids=["in begin", "after its first input"])
def test_nothing_of_its_slice_is_skipped_when_our_first_run_is_told_to_begin_at_the_end(
    scene: Scene, taken: int
) -> None:
    scene.arrive(0, 0, 1)
    for _, step in ForeignProgram(scene).steps()[:taken]:
        step()
    scene.arrive(0, 1)
    latest = {**scene.application.settings, "first.run.offsets": "latest"}
    application = dataclasses.replace(scene.application, settings=latest)
    began = application.begin("run-1")
    assert stops(began) == {0: 2, 1: 1}
    done = 2 if taken == 5 else 0
    assert {part.partition: part.start_offset for part in began.inputs} == {0: done, 1: 0}
    application.tasks(began)
    application.finish("run-1")
    application.run("run-2")
    judge(scene)


def test_our_run_is_not_disturbed_when_the_other_program_notifies_in_its_own_format(scene: Scene) -> None:
    scene.arrive(0, 1)
    began = scene.application.begin("run-1")
    for group in range(2):
        scene.application.task(began, 0, group)
        scene.bare(f"{scene.source}_{group}-{scene.middle}_0", 1)
        scene.bare(f"{scene.app}-0_{group}", 1)
    records = scene.metadata_records().items()
    assert not any(headers for key, (_, headers) in records if key.startswith(f"{scene.app}-0_".encode()))
    # Records stand where ours stood. They tell nothing about our run, so the tasks notify once more.
    for group in range(2):
        scene.application.task(began, 0, group)
    finish_everything(scene)


def test_nothing_is_lost_when_the_other_program_says_that_our_run_is_finished(scene: Scene) -> None:
    scene.arrive(0, 1)
    began = scene.application.begin("run-0")
    scene.application.task(began, 0, 0)
    zombie = scene.contract.writer(f"{scene.app}-0_1")
    zombie.begin()
    zombie.produce(scene.middle, b"never", b"k", 0)
    zombie.flush()
    scene.bare(scene.app, 1)
    scene.settled_end(f"{scene.app}-runs")
    capture(scene, "run-1")
    with pytest.raises(TaskFencedError):
        zombie.commit()
    finish_everything(scene)


def test_loss_is_an_error_when_a_stop_of_the_other_program_has_no_partition(scene: Scene) -> None:
    scene.arrive(0, 1)
    for number in (1, 2):
        scene.bare(f"{scene.source}_{number}", 1)
    scene.bare(scene.app, 0)
    with pytest.raises(DataLossError, match=rf"{scene.source}-2: .*no such partition \(the first one"):
        capture(scene, "run-1")


def test_run_can_be_finished_when_offsets_are_beyond_the_stops_of_the_other_program(scene: Scene) -> None:
    scene.arrive(0, 0, 0, 1)
    for number in range(2):
        scene.bare(f"{scene.source}_{number}", 1)
    scene.bare(scene.app, 0)
    writer, reader = scene.contract.writer(f"{scene.app}-person"), scene.contract.reader(group=scene.app)
    writer.begin()
    writer.send_offsets({TopicPartition(scene.source, 0): CommittedOffset(2)}, reader)
    writer.commit()
    assert stops(capture(scene, "run-1")) == {0: 2, 1: 1}
    del scene.arrived[:2]
    finish_everything(scene)


class Died(BaseException):
    """The process is no more."""


class DiesAt:
    """Lets a process die at the n-th call of a name, with or without its effect.

    Records written so far are in the log then, in a transaction that nobody ends.
    """

    def __init__(self, call: str, number: int, *, takes_effect: bool) -> None:
        self._name, self._left, self._takes_effect = call, number, takes_effect
        self._dead = False

    def call(self, name: str, client: Any, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        if self._dead and not name.endswith("close"):
            raise Died
        if name != self._name or self._left < 0:
            return effect()
        self._left -= 1
        if self._left >= 0:
            return effect()
        if self._takes_effect:
            effect()
        if name == "writer.produce":
            client.flush()
        self._dead = True
        raise Died


#: Then two stops and the marker are written.
BEGIN_RECORDS = TOMBSTONES + 3


@pytest.mark.promise("stops-never-move")
def test_stops_are_all_there_or_none_when_our_begin_dies(scene: Scene) -> None:
    """At each of its records, and on both sides of its commit, one begin each."""
    scene.arrive(0, 0, 1)
    scene.application.run("run-first")
    deaths = [DiesAt("writer.produce", number, takes_effect=True) for number in range(BEGIN_RECORDS)]
    deaths += [DiesAt("writer.commit", 0, takes_effect=effect) for effect in (False, True)]
    deaths = [*chosen(scene, deaths)]
    for number, dying in enumerate(deaths, start=1):
        scene.arrive(0, 1)
        before = scene.ends()
        with pytest.raises(Died):
            capture(scene, f"run-{number}", cluster=FaultyCluster(scene.contract.cluster, dying))
        scene.arrive(0, 1, 1)
        wanted = before if number == len(deaths) else scene.ends()
        assert stops(capture(scene, f"run-{number}", try_number=1)) == wanted
        scene.arrive(1)
        scene.application.run(f"run-{number}")
        assert scene.last_stops() == wanted
    scene.application.run("run-last")
    judge(scene)
