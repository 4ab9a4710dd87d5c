"""A reset that was refused is asked for as the error says, and does what was meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.reset.acceptance import partitions_in
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.reset.scenario import (
    TO_EARLIEST,
    TO_LATEST,
    Scenario,
    from_file,
    scenario_of,
    shift_by,
    to_offset,
)
from airflow_kstreams.streams.errors import KStreamsError, RunBusyError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.records.record_queue import PartitionTimes
from airflow_kstreams.testing import FaultyCluster
from tests.support.crash import Crash
from tests.support.kafka.interception import CrashingAt, Once
from tests.support.kafka.printed_commands import accept_in_memory
from tests.support.kafka.reset_scene import APP, ResetScene
from tests.support.remedies import walked

IN_0 = TopicPartition("in", 0)


def after_two_runs() -> ResetScene:
    scene = ResetScene()
    scene.send("a", "b", "a")
    scene.run("r1")
    scene.send("a", "c")
    scene.run("r2")
    return scene


def never_run() -> ResetScene:
    scene = ResetScene()
    scene.send("a", "b", "a", "a", "c")
    scene.kafka.create_topic("app-runs", cleanup_policy="compact")
    return scene


def half_way() -> ResetScene:
    scene = after_two_runs()
    scene.send("d")
    scene.tasks(scene.begin("r3"), [0])
    return scene


def reset(scene: ResetScene, **options: Any) -> None:
    request = ResetRequest(**{"application_id": APP, **options})
    with ApplicationReset(scene.kafka, request, clock=scene.clock) as command:
        command.run()


def start_over(scene: ResetScene, **options: Any) -> None:
    reset(scene, **{"input_topics": ("in",), "intermediate_topics": ("mid",), **options})


def lines(text: str) -> Path:
    file = Path("offsets.csv")
    file.write_text(text)
    return file


READ = [
    walked(
        "scenario._number",
        lambda: scenario_of({"to-offset": "x"}),
        lambda: scenario_of({"to-offset": "7"}).option,
        "--to-offset 7",
    ),
    walked(
        "scenario._truth",
        lambda: scenario_of({"to-latest": "maybe"}),
        lambda: scenario_of({"to-latest": "true"}).option,
        "--to-latest",
    ),
    walked(
        "scenario.scenario_of: give one of them",
        lambda: scenario_of({"to-offset": 1, "shift-by": 1}),
        lambda: scenario_of({"shift-by": 1}).option,
        "--shift-by 1",
    ),
    walked(
        "scenario.scenario_of: use one of",
        lambda: scenario_of({"to-ofset": 1}),
        lambda: scenario_of({"to-offset": 1}).option,
        "--to-offset 1",
    ),
    walked(
        "scenario.epoch_ms",
        lambda: scenario_of({"to-datetime": "31.1.2026"}),
        lambda: scenario_of({"to-datetime": "2026-01-31T23:00:00.000+01:00"}).option,
        "--to-datetime 2026-01-31T23:00:00.000+01:00",
    ),
    walked(
        "scenario.duration_ms",
        lambda: scenario_of({"by-duration": "7 days"}),
        lambda: scenario_of({"by-duration": "PT1H30M"}).option,
        "--by-duration PT1H30M",
    ),
    walked(
        "scenario._lines: name a CSV file",
        lambda: from_file(Path("missing.csv")),
        lambda: from_file(lines("in,0,1\n")).option,
        "--from-file offsets.csv",
    ),
    walked(
        "scenario._lines: remove one of the lines",
        lambda: from_file(lines("in,0,1\nin,0,2\n")),
        lambda: from_file(lines("in,0,1\n")).option,
        "--from-file offsets.csv",
    ),
    walked(
        "scenario._lines: add a line",
        lambda: from_file(lines("")),
        lambda: from_file(lines("in,0,1\n")).option,
        "--from-file offsets.csv",
    ),
    walked(
        "scenario._csv_line",
        lambda: from_file(lines("in 0 42\n")),
        lambda: from_file(lines("in,0,42\n")).option,
        "--from-file offsets.csv",
    ),
    walked(
        "acceptance.partitions_in", lambda: partitions_in(["in-0"]), lambda: partitions_in(["in:0"]), (IN_0,)
    ),
]


@pytest.mark.parametrize(("fault", "told", "wanted"), READ)
def test_option_is_read_as_the_error_says(
    fault: Callable[[], object],
    told: Callable[[], object],
    wanted: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KStreamsError):
        fault()
    assert told() == wanted


ANEW = [
    walked(
        "reset_plan.ResetRequest.check: name them by --input-topics",
        after_two_runs,
        lambda scene: reset(scene, scenario=TO_EARLIEST),
        lambda scene: start_over(scene, scenario=TO_EARLIEST),
    ),
    walked(
        "scenario.from_file.targets: add a line",
        after_two_runs,
        lambda scene: start_over(scene, scenario=from_file(lines("in,0,0\n"))),
        lambda scene: start_over(scene, scenario=from_file(lines("in,0,0\nin,1,0\n"))),
    ),
    walked(
        "scenario.from_file.targets: remove the line",
        after_two_runs,
        lambda scene: start_over(scene, scenario=from_file(lines("in,0,0\nin,1,0\nout,0,0\n"))),
        lambda scene: start_over(scene, scenario=from_file(lines("in,0,0\nin,1,0\n"))),
    ),
    walked(
        "touched_topics.refuse_unknown_topics: correct {}",
        after_two_runs,
        lambda scene: start_over(scene, input_topics=("in", "out")),
        start_over,
    ),
    walked(
        "touched_topics.refuse_unknown_topics: name it by",
        after_two_runs,
        lambda scene: reset(scene, input_topics=("in", "mid")),
        start_over,
    ),
    walked(
        "touched_topics.refuse_unknown_topics: name it once",
        after_two_runs,
        lambda scene: start_over(scene, intermediate_topics=("in", "mid")),
        start_over,
    ),
    walked(
        "reset_plan.survey",
        after_two_runs,
        lambda scene: start_over(scene, input_topics=("in", "nowhere")),
        start_over,
    ),
    walked(
        "reset.ApplicationReset._refuse: finish the run first",
        half_way,
        start_over,
        lambda scene: start_over(scene, delete_stop_offsets=True),
    ),
    walked(
        "touched_topics.own_unread_topics",
        after_two_runs,
        lambda scene: reset(scene, unread_topics=("in",)),
        start_over,
    ),
    walked(
        "scenario.shift_by.targets",
        never_run,
        lambda scene: start_over(scene, scenario=shift_by(-1)),
        lambda scene: start_over(scene, scenario=TO_EARLIEST),
    ),
    walked(
        "touched_topics.chosen_topics",
        after_two_runs,
        lambda scene: start_over(scene, internal_topics=("app-nothing-changelog",)),
        start_over,
    ),
]


@pytest.mark.parametrize(("made", "fault", "told"), ANEW)
def test_everything_is_counted_again_after_the_reset_that_the_error_asks_for(
    made: Callable[[], ResetScene],
    fault: Callable[[ResetScene], object],
    told: Callable[[ResetScene], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    scene = made()
    scene.counts()
    with pytest.raises(KStreamsError):
        fault(scene)
    told(scene)
    scene.run("again")
    wanted = {"a": 3, "b": 1, "c": 1} | ({"d": 1} if made is half_way else {})
    assert dict(scene.counts()) == wanted


ACCEPTED = [
    walked(
        "reset_plan.ResetRequest.check: add to it where reading goes on",
        {"accept": (IN_0,), "input_topics": ("in",)},
        {"accept": (IN_0,), "scenario": to_offset(0)},
    ),
    walked(
        "acceptance.plan_acceptance: correct --accept",
        {"accept": (TopicPartition("in", 9),), "scenario": to_offset(0)},
        {"accept": (IN_0,), "scenario": to_offset(0)},
    ),
]


@pytest.mark.parametrize(("fault", "told"), ACCEPTED)
def test_partition_goes_on_where_the_command_says_that_the_error_asks_for(
    fault: dict[str, Any], told: dict[str, Any]
) -> None:
    scene = after_two_runs()
    with pytest.raises(KStreamsError):
        reset(scene, **fault)
    reset(scene, **told)
    assert scene.committed()["in-0"].offset == 0


@pytest.mark.remedy("known_applications.unknown_application")
def test_application_is_reset_when_its_id_is_corrected() -> None:
    scene = after_two_runs()
    scene.counts()
    with pytest.raises(KStreamsError, match="'ap'"):
        start_over(scene, application_id="ap")
    start_over(scene)
    scene.run("again")
    assert dict(scene.counts()) == {"a": 3, "b": 1, "c": 1}


@pytest.mark.remedy("reset.ApplicationReset._refuse_others_offsets")
@pytest.mark.parametrize(
    "scenario", [TO_EARLIEST, TO_LATEST, shift_by(-1), to_offset(2)], ids=lambda each: each.option
)
@pytest.mark.parametrize("where", ["by hand", "by the next try"])
def test_reading_goes_on_where_the_reset_said_after_a_member_has_moved_offsets(
    scenario: Scenario, where: str
) -> None:
    plain, scene = after_two_runs(), after_two_runs()
    start_over(plain, scenario=scenario)
    wanted = plain.offsets("in")
    scene.kafka.join_group(APP, "a-consumer")
    member = scene.kafka.reader(group_id=APP)
    asked = ResetRequest(
        application_id=APP,
        input_topics=("in",),
        intermediate_topics=("mid",),
        scenario=scenario,
        force=True,
        reset_id="once",
    )

    def moved() -> None:
        member.commit({tp: CommittedOffset(1) for tp in scene.kafka.partitions("in")})

    def tried(cluster: Any) -> None:
        with ApplicationReset(cluster, asked, clock=scene.clock) as command:
            command.run()

    meanwhile = FaultyCluster(scene.kafka, Once("admin.delete_topics", 1, moved))
    with pytest.raises(RunBusyError, match="a member of its consumer group has moved in-") as refused:
        tried(meanwhile)
    scene.kafka.leave_group(APP)
    if where == "by the next try":
        with pytest.raises(RunBusyError, match="a member of its consumer group has moved in-") as refused:
            tried(scene.kafka)
    accept_in_memory(refused.value, scene.kafka)
    tried(scene.kafka)
    assert scene.offsets("in") == wanted
    times = [OffsetMetadata.decode(scene.committed()[f"in-{n}"].metadata).times for n in range(2)]
    assert times == [PartitionTimes()] * 2, "they begin anew with a reset"
    plain.counts()
    scene.counts()
    plain.run("again")
    scene.run("again")
    assert scene.counts() == plain.counts()


@pytest.mark.remedy("acceptance.plan_acceptance: complete it first")
def test_acceptance_comes_after_the_interrupted_reset_was_completed_by_the_command() -> None:
    scene = after_two_runs()
    scene.counts()
    with (
        pytest.raises(Crash),
        ApplicationReset(
            CrashingAt(0, name="admin.delete_topics").cluster(scene.kafka),
            scene.request(inputs="in", intermediates="mid"),
            clock=scene.clock,
        ) as command,
    ):
        command.run()
    with pytest.raises(KStreamsError, match="was interrupted") as refused:
        reset(scene, accept=(IN_0,), scenario=to_offset(1))
    accept_in_memory(refused.value, scene.kafka)
    reset(scene, accept=(IN_0,), scenario=to_offset(1))
    scene.run("again")
    assert dict(scene.counts()) == {"a": 2, "b": 1, "c": 1}


@pytest.mark.remedy("reset.ApplicationReset._claiming")
def test_reset_is_made_when_what_claimed_the_id_was_stopped() -> None:
    scene = after_two_runs()
    scene.counts()
    other = scene.coordinator()

    class Claims:
        def call(self, name: str, client: object, effect: Any, arguments: Any) -> Any:
            if name == "writer.begin":
                other.session.claim()
            return effect()

    with pytest.raises(RunBusyError, match="claims its id again and again"):
        scene.reset(FaultyCluster(scene.kafka, Claims()), inputs="in", intermediates="mid")
    other.close()
    scene.reset(inputs="in", intermediates="mid")
    scene.run("again")
    assert dict(scene.counts()) == {"a": 3, "b": 1, "c": 1}
