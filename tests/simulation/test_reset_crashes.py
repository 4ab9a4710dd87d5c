"""Resets that die at any port call, and others at work at any port call of a reset.

The calls of a reset are counted once; then it runs again and again on scenes made alike, with something
happening at its first port call, its second, and so on. ``dev/test`` lets it die at the calls that change
Kafka: one that dies at another leaves what the change before left. Others are at work at one call in
fourteen. ``dev/prove`` tries every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest

from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.reset.scenario import shift_by
from airflow_kstreams.streams.errors import KStreamsError, RunBusyError, RunError
from airflow_kstreams.testing import FaultyCluster
from tests.support.crash import Crash
from tests.support.kafka.interception import CrashingAt, Meanwhile
from tests.support.kafka.reset_scene import ResetScene

pytestmark = pytest.mark.promise("resets-are-whole", "forced-resets-fence")

#: What all runs together say of each value when nothing was reset, and when everything is processed again.
COUNTS = {"a": 3, "b": 1, "c": 1, "d": 2, "e": 1}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A reset, and what the next run says after it.

    :param request: of the reset.
    :param unfinished: whether a slice is left half way before it.
    :param after: what the next run says, starting from what the reset left.
    """

    request: dict[str, Any]
    unfinished: bool
    after: dict[str, int]


CASES = {
    "everything": Case(
        request={"inputs": "in", "intermediates": "mid"}, unfinished=False, after={**COUNTS, "d": 2, "e": 1}
    ),
    "everything and a slice": Case(
        request={"inputs": "in", "intermediates": "mid", "delete_stop_offsets": True, "force": True},
        unfinished=True,
        after=COUNTS,
    ),
    "shift": Case(
        request={"inputs": "in", "intermediates": "mid", "scenario": shift_by(-2)},
        unfinished=False,
        after={"a": 1, "c": 1, "d": 2, "e": 1},
    ),
    "only the slice": Case(request={"delete_stop_offsets": True}, unfinished=True, after={"d": 2, "e": 1}),
}


#: At one in how many port calls others are at work.
STEPS = (14, pytest.param(1, marks=pytest.mark.prove))


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def made(case: Case) -> ResetScene:
    """Two finished runs; new records, of which a third run has read some if it is to be unfinished."""
    scene = ResetScene(partitions=1)
    scene.send("a", "b", "a")
    scene.run("r1")
    scene.send("a", "c")
    scene.run("r2")
    scene.send("d", "e", "d")
    if case.unfinished:
        scene.tasks(scene.begin("r3"), [0, 1])
    scene.counts()
    return scene


def calls_of(case: Case) -> list[str]:
    """The port calls of a reset that nothing happens to, but for closing clients at its end."""
    counting = CrashingAt()
    scene = made(case)
    scene.reset(counting.cluster(scene.kafka), **case.request)
    calls = counting.calls
    while calls[-1].endswith(".close"):
        calls.pop()
    return calls


#: After these, and within these, Kafka is another one than before.
CHANGES = ("writer.", "admin.create_topics", "admin.delete_topics")
#: Calls at which something becomes final: the others of a transaction are as if it had not begun.
FINAL = ("writer.commit", "admin.create_topics", "admin.delete_topics")
ALL = ("",)


def crashed(case: Case, *, at: tuple[str, ...] = CHANGES) -> Iterator[tuple[str, ResetScene, bool]]:
    """Scenes with a reset that died, at every port call, before and after it took effect.

    The third part says whether the call is one that changes something.

    :param at: beginnings of the calls' names.
    """
    for number, name in enumerate(calls_of(case)):
        for after in (False, True) if name.startswith(at) else ():
            scene = made(case)
            dying = CrashingAt(number, after=after)
            with pytest.raises(Crash):
                scene.reset(dying.cluster(scene.kafka), **case.request)
            yield f"{'after' if after else 'before'} {name}, call {number}", scene, name.startswith(CHANGES)


@pytest.mark.parametrize("at", [FINAL, pytest.param(ALL, marks=pytest.mark.prove)], ids=["final", "all"])
def test_nothing_goes_wrong_when_a_reset_dies_anywhere(case: Case, at: tuple[str, ...]) -> None:
    """No run begins beside half a reset; who repeats the command has what one gives that did not die."""
    untouched = made(case).meaning()
    whole = made(case)
    whole.reset(**case.request)
    expected = whole.meaning()
    whole.run("next")
    assert dict(whole.counts()) == case.after
    stages = set()
    for where, scene, changing in crashed(case, at=at):
        ledger = scene.ledger
        stages.add(ledger.reset and ledger.reset.stage)
        if ledger.reset is None:
            assert scene.meaning() == untouched, where
        elif ledger.unfinished_reset is None:
            assert scene.meaning() == expected, where
        else:
            for run_id in ("r3", "next"):
                with pytest.raises(RunBusyError, match="is being reset, or its reset was") as caught:
                    scene.begin(run_id, order=2)
                assert ledger.unfinished_reset.command in caught.value.fix
        # Who saw no more than the crash repeats the command; a shift that is done is not asked for again.
        if ledger.reset is None or ledger.unfinished_reset is not None:
            scene.reset(**case.request)
            assert scene.meaning() == expected, where
        if changing:
            scene.run("next")
            assert dict(scene.counts()) == case.after, where
    assert len(stages) == (3 if case is CASES["only the slice"] else 4), "it died in every stage"


@pytest.mark.promise("resets-shift-once")
def test_offsets_are_shifted_once_when_whoever_died_anywhere_comes_again_with_its_name() -> None:
    case = Case(request={**CASES["shift"].request, "reset_id": "ours"}, unfinished=False, after={})
    whole = made(case)
    whole.reset(**case.request)
    expected = whole.meaning()
    found_done = 0
    for where, scene, _ in crashed(case):
        found_done += scene.reset(**case.request).done_before
        assert scene.meaning() == expected, where
    assert found_done == 1, "it died after its last step, too"
    assert whole.reset(**case.request).done_before
    other = whole.reset(**{**case.request, "reset_id": "another"})
    assert not other.done_before
    assert other.offsets


def test_another_reset_is_whole_when_the_first_died_anywhere() -> None:
    for where, scene, _ in crashed(CASES["shift"]):
        scene.reset(inputs="in", intermediates="mid", delete_stop_offsets=True)
        scene.run("next")
        assert dict(scene.counts()) == COUNTS, where


@pytest.mark.parametrize("step", STEPS)
def test_tasks_at_work_change_nothing_at_any_call_of_a_forced_reset(step: int) -> None:
    """A new attempt of every task starts, and works as far as it can, at one call of the reset."""
    case = CASES["everything and a slice"]
    for number, name in islice(enumerate(calls_of(case)), 0, None, step):
        scene = made(case)
        slice_ = scene.begin("r3", order=2)

        def work(scene: ResetScene = scene, slice_: Slice = slice_) -> None:
            with suppress(KStreamsError):
                scene.tasks(slice_)

        scene.reset(FaultyCluster(scene.kafka, Meanwhile(number, work)), **case.request)
        assert scene.offsets("in") == [0], name
        scene.counts()
        scene.run("next")
        assert dict(scene.counts()) == COUNTS, (number, name)


@pytest.mark.parametrize("step", STEPS)
def test_driver_is_superseded_at_any_call_of_a_forced_reset(step: int) -> None:
    """It renews its lease, and so claims the coordinator's id again, at one call of the reset."""
    case = CASES["everything and a slice"]
    for number, name in islice(enumerate(calls_of(case)), 0, None, step):
        scene = made(case)
        driver = scene.coordinator()
        slice_ = scene.begin("r3", coordinator=driver, order=2)

        def renew(driver: Any = driver) -> None:
            with suppress(RunError):
                driver.lease.renew()

        scene.reset(FaultyCluster(scene.kafka, Meanwhile(number, renew)), **case.request)
        with pytest.raises(KStreamsError):
            driver.lease.renew()
        with pytest.raises(KStreamsError):
            scene.task(slice_, 2, 0)
        driver.close()
        scene.run("next")
        assert dict(scene.counts()) == COUNTS, (number, name)
