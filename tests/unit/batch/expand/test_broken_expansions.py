"""Expansions that end half way: none leaves what a later one, or a run, could take for state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from unittest import mock

import pytest

from airflow_kstreams.batch.expand.processor_expansion import (
    CatchUpOptions,
    ProcessorExpansion,
    give_up_expansions,
)
from airflow_kstreams.batch.growing import takeover
from airflow_kstreams.batch.growing.state_copy import StateCopy
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import RunBusyError
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.testing import FaultyCluster
from tests.unit.batch.expand.test_processor_expansion import CHANGELOG, held
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene

pytestmark = pytest.mark.promise("expansions-can-be-given-up", "keys-follow-to-new-processors")

T = TypeVar("T")
#: As long as changelogs keep deletions.
KEPT_SECONDS = 7 * 86_400
FORGET = -1
#: A key that moves from the first processor to the second.
MOVES = next(key for key in KEYS if partition_of_key(key.encode(), 1, 2) == 1)
FEW = [MOVES, *(key for key in KEYS[:5] if key != MOVES)]


class Crash(BaseException):
    """The process is no more."""


def forgetful() -> Topology:
    """Every value of each key since it was forgotten."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    grouped = builder.stream("in").group_by_key()
    listed = grouped.aggregate(
        list, lambda key, value, so_far: None if value == FORGET else [*so_far, value], store="listed"
    )
    listed.to_stream().filter(lambda key, value: value is not None).send_to("out")
    return builder.build()


def grown() -> Scene:
    """An application with one processor, whose topic has a second partition, all of which is read."""
    scene = Scene(1, forgetful())
    scene.app.clock = scene.kafka.clock
    scene.send(FEW, 0)
    scene.run()
    scene.grow(2)
    scene.send(FEW, 1)
    for _ in range(2):
        scene.run()
    return scene


def expand(scene: Scene) -> None:
    with ProcessorExpansion(
        scene.kafka, scene.app.checked, subtopology=None, count=2, clock=scene.kafka.clock
    ) as tool:
        tool.run(CatchUpOptions(follow=False))


def forget(scene: Scene) -> None:
    """Let a run delete the key that moves, and the cleaner forget that it was deleted."""
    with mock.patch.object(takeover, "under_way", return_value=None):
        scene.send([MOVES], FORGET)
        scene.run()
    scene.kafka.clock.sleep(KEPT_SECONDS)
    scene.kafka.compact(CHANGELOG, drop_tombstones=True)
    scene.sent[MOVES] = []


def check(scene: Scene) -> None:
    """Look at what comes out of runs that follow."""
    scene.send(FEW, 7)
    for _ in range(2):
        scene.run()
    assert scene.listed == scene.sent


@pytest.mark.promise("keys-follow-to-new-processors")
def test_copy_begins_anew_when_the_deletions_behind_it_may_be_gone() -> None:
    scene = grown()
    expand(scene)
    assert MOVES in held(scene.kafka, CHANGELOG, 1)
    forget(scene)
    assert "must begin anew, deletions may be gone" in "; ".join(scene.run().warnings)
    assert len(scene.recorded.by_group) == 1
    expand(scene)
    scene.run()
    assert len(scene.recorded.by_group) == 2
    assert MOVES not in held(scene.kafka, CHANGELOG, 1)
    check(scene)


def test_what_an_abort_that_died_has_left_is_cleared_by_the_next_expansion() -> None:
    scene = grown()
    expand(scene)
    with mock.patch.object(StateCopy, "clear", side_effect=Crash), pytest.raises(Crash):
        give_up_expansions(scene.kafka, scene.app.checked, clock=scene.kafka.clock)
    assert MOVES in held(scene.kafka, CHANGELOG, 1)
    forget(scene)
    expand(scene)
    scene.run()
    assert len(scene.recorded.by_group) == 2
    assert MOVES not in held(scene.kafka, CHANGELOG, 1)
    check(scene)


@pytest.mark.promise("keys-follow-to-new-processors")
def test_copied_entries_have_the_times_of_those_that_they_copy() -> None:
    scene = grown()
    scene.send([MOVES], 2, timestamp_ms=123_456)
    scene.run()
    expand(scene)
    times: dict[int, dict[bytes | None, int]] = {0: {}, 1: {}}
    for record in scene.kafka.records(CHANGELOG):
        times[record.partition()][record.key()] = record.timestamp()[1]
    assert times[1][MOVES.encode()] == 123_456
    assert times[1].items() <= times[0].items()


class Meanwhile:
    """Does something before a port call of a process.

    :param last: number of the call, from 1 on.
    """

    def __init__(self, last: int, what: Callable[[], object]) -> None:
        self.calls = 0
        self._last = last
        self._what = what

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, see ``Interceptor``."""
        self.calls += 1
        if self.calls == self._last:
            self._what()
        return effect()


def aborted(scene: Scene, meanwhile: Meanwhile) -> bool:
    """Give the expansion up, and return whether it was given up."""
    cluster = FaultyCluster(scene.kafka, meanwhile)
    try:
        give_up_expansions(cluster, scene.app.checked, clock=scene.kafka.clock)
    except RunBusyError:
        return False
    return True


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.prove)])
def test_state_is_whole_when_a_run_comes_between_any_two_calls_of_an_abort(step: int) -> None:
    scene = grown()
    expand(scene)
    counted = Meanwhile(0, lambda: None)
    assert aborted(scene, counted)
    outcomes = set()
    for number in range(1, counted.calls + 1, step):
        scene = grown()
        expand(scene)
        given_up = aborted(scene, Meanwhile(number, scene.run))
        outcomes.add((given_up, len(scene.recorded.by_group)))
        check(scene)
    assert outcomes == {(True, 1), (True, 2), (False, 2), (False, 1)}
