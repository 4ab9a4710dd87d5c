"""Growth that was refused is asked for as the error says, and every key stays with its state."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any
from unittest import mock

import msgspec
import pytest

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.expand.processor_expansion import (
    CatchUpOptions,
    ProcessorExpansion,
    give_up_expansions,
)
from airflow_kstreams.batch.growing import takeover
from airflow_kstreams.batch.growing.expansion_rules import add_partitions
from airflow_kstreams.batch.growing.state_copy import StateCopy
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import (
    KStreamsError,
    RunBusyError,
    TopologyError,
    TransactionAbortedError,
)
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.testing import FaultyCluster
from tests.support.kafka.interception import Once
from tests.support.kafka.printed_commands import printed_commands
from tests.support.kafka.waiting import WaitingClock
from tests.support.remedies import walked
from tests.unit.batch.expand.test_growth import begun, expanded, grouped, modulo, not_run, repartitioned
from tests.unit.batch.expand.test_processor_expansion import abort, expand, grown
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene


def settled(scene: Scene) -> bool:
    """Send more, run until nothing waits, and return whether every value is with its key."""
    scene.send(KEYS, 99)
    for _ in range(4):
        scene.run()
    return scene.listed == scene.sent


def counted(scene: Scene) -> dict[str, int]:
    """Return the last count of each key."""
    return {
        (record.key() or b"").decode(): int.from_bytes(record.value() or b"", "big")
        for record in scene.kafka.records("out")
    }


GROWN = [
    walked("growth.plan_growth", lambda: begun(4), ("in", 3), lambda scene: expanded(scene, 5)),
    walked("growth._whole", lambda: begun(4), ("in", 0), lambda scene: expanded(scene, 8)),
    walked("growth._reader: name one of", lambda: begun(4), ("out", 8), lambda scene: expanded(scene, 8)),
    walked(
        "growth._reader: name the input topic",
        lambda: begun(4),
        ("app-runs", 8),
        lambda scene: expanded(scene, 8),
    ),
    walked(
        "growth.last_topology: correct the application's id",
        not_run,
        ("in", 8),
        lambda scene: (scene.run(), expanded(scene, 8)),
    ),
]


@pytest.mark.parametrize(("made", "fault", "told"), GROWN)
def test_topic_grows_as_the_error_says(
    made: Callable[[], Scene], fault: tuple[str, int], told: Callable[[Scene], object]
) -> None:
    scene = made()
    with pytest.raises(KStreamsError):
        expanded(scene, fault[1], fault[0])
    told(scene)
    assert settled(scene)


@pytest.mark.remedy("growth._refuse_other_kind")
def test_topic_grows_to_the_multiple_that_the_error_names() -> None:
    scene = modulo()
    with pytest.raises(KStreamsError) as refused:
        expanded(scene, 8)
    expanded(scene, int(refused.value.fix.split("--to ")[1]))
    scene.send(KEYS, 9, modulo=True)
    for _ in range(4):
        scene.run()
    assert scene.listed == scene.sent


@pytest.mark.remedy("growth._refuse_unknown_beginning")
def test_topic_grows_when_the_command_and_the_runs_have_the_setting_that_the_error_names() -> None:
    scene = begun(2)
    scene.kafka.admin().delete_topics(["app-listed-changelog", "in"])
    scene.kafka.create_topic("in", partitions=2)
    scene.send(KEYS, 1)
    with pytest.raises(KStreamsError) as refused:
        expanded(scene, 3)
    setting = refused.value.fix.split("initial.partitions=")[1].split(",")[0]
    scene.app.settings = {**scene.app.settings, "initial.partitions": setting}
    assert expanded(scene, 3).grown is not None


@pytest.mark.remedy("growth.last_topology: leave partition_grouper out")
def test_topic_under_a_grouper_grows_by_kafkas_own_command_while_all_is_processed() -> None:
    scene = begun(2, grouped())
    with pytest.raises(KStreamsError):
        expanded(scene, 4)
    scene.grow(4)
    scene.send(KEYS, 1, modulo=True)
    scene.run()
    assert counted(scene) == dict.fromkeys(KEYS, 2)


PROCESSORS = [
    walked(
        "expansion_rules.expanded: give a number from", lambda: grown(), 1, lambda scene: expand(scene, 3)
    ),
    walked(
        "expansion_rules.expanded: give the topics more partitions first",
        lambda: grown(),
        5,
        lambda scene: (
            expanded(scene, 6),
            scene.send(KEYS, 5),
            [scene.run() for _ in range(4)],
            expand(scene, 5),
        ),
    ),
]


@pytest.mark.parametrize(("made", "fault", "told"), PROCESSORS)
def test_processors_are_added_as_the_error_says(
    made: Callable[[], Scene], fault: int, told: Callable[[Scene], object]
) -> None:
    scene = made()
    with pytest.raises(KStreamsError):
        expand(scene, fault)
    told(scene)
    assert settled(scene)
    assert len(scene.recorded.by_group) > 2


def copied(scene: Scene, count: int, subtopology: int | None = None, **options: Any) -> None:
    """Copy what is there, as the command does."""
    with ProcessorExpansion(scene.kafka, scene.app.checked, subtopology=subtopology, count=count) as tool:
        tool.run(CatchUpOptions(**{"follow": False, **options}))


OPTIONS = [
    walked(
        "processor_expansion.CatchUpOptions.check: give a number above 0", {"rate": 0.0}, {"rate": 100_000.0}
    ),
    walked("processor_expansion.CatchUpOptions.check: give a number above 0", {"rate": -1.0}, {}),
    walked(
        "processor_expansion.CatchUpOptions.check: give a number from 1 on", {"parallel": 0}, {"parallel": 1}
    ),
]


@pytest.mark.parametrize(("fault", "told"), OPTIONS)
def test_copies_are_made_with_options_as_the_error_asks(fault: dict[str, Any], told: dict[str, Any]) -> None:
    scene = grown()
    with pytest.raises(KStreamsError):
        copied(scene, 4, **fault)
    copied(scene, 4, **told)
    assert settled(scene)
    assert len(scene.recorded.by_group) == 4


@pytest.mark.remedy("processor_expansion._refuse_busy")
def test_expansion_is_given_up_when_the_run_in_its_way_has_ended() -> None:
    scene = grown()
    expand(scene, 4)
    scene.send(KEYS, 2)
    driver = scene.app.coordinator()
    with mock.patch.object(takeover, "under_way", return_value=None):
        slice_ = scene.app.begin("busy", coordinator=driver)
    with pytest.raises(RunBusyError, match="works on run 'busy'"):
        give_up_expansions(
            scene.kafka, scene.app.checked, clock=WaitingClock(scene.kafka.clock, driver.lease.renew)
        )
    scene.app.tasks(slice_)
    driver.finish("busy")
    driver.close()
    assert [plan.after.count for plan in abort(scene) if plan.after] == [4]
    assert settled(scene)
    assert len(scene.recorded.by_group) == 2


@pytest.mark.remedy("processor_expansion.give_up_expansions")
def test_what_is_left_is_given_up_when_a_run_began_meanwhile() -> None:
    scene = grown()
    expand(scene, 4)
    scene.send(KEYS, 2)
    begins = Once("writer.begin", 1, lambda: scene.app.begin("meanwhile"))
    with pytest.raises(RunBusyError, match="a run has begun while its expansion was being given up"):
        give_up_expansions(FaultyCluster(scene.kafka, begins), scene.app.checked)
    scene.app.run("meanwhile", (0, 2))
    abort(scene)
    assert abort(scene) == []
    assert settled(scene)


@pytest.mark.remedy("processor_plan._chosen: give its topics more partitions")
def test_application_without_state_gets_tasks_when_its_topic_gets_partitions() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").send_to("out")
    scene = begun(2, builder.build())
    with pytest.raises(KStreamsError, match="keeps no state"):
        expand(scene, 4)
    expanded(scene, 4)
    scene.send(KEYS, 7)
    assert len(scene.app.run("wide").tasks) == 4
    assert len(scene.kafka.values("out")) == 2 * len(KEYS)


def two_counts() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("in")
    listed = stream.group_by_key().aggregate(
        list, lambda key, value, so_far: [*so_far, value], store="listed"
    )
    listed.to_stream().send_to("out")
    stream.group_by(lambda key, value: key, name="again").count(store="counted")
    return builder.build()


@pytest.mark.remedy("processor_plan._chosen: name one by --subtopology")
def test_processors_are_added_to_the_subtopology_that_the_error_names() -> None:
    scene = grown(topology=two_counts())
    with pytest.raises(KStreamsError, match="several subtopologies") as refused:
        expand(scene, 4)
    assert "0 (reads in)" in refused.value.fix
    copied(scene, 4, subtopology=0)
    assert settled(scene)
    assert len(scene.recorded.by_group) == 4


@pytest.mark.remedy("processor_plan._entry")
def test_processors_are_added_when_a_run_with_records_has_finished() -> None:
    scene = Scene(2)
    scene.run()
    with pytest.raises(KStreamsError, match="has processed a record"):
        expand(scene, 4)
    scene.send(KEYS, 0)
    scene.run()
    expanded(scene, 4)
    scene.send(KEYS, 1)
    for _ in range(4):
        scene.run()
    expand(scene, 4)
    assert settled(scene)
    assert len(scene.recorded.by_group) == 4


@pytest.mark.remedy("processor_plan.plan_processors")
@pytest.mark.parametrize("way", ["go on", "give up"])
def test_expansion_ends_with_the_command_that_the_error_prints(way: str) -> None:
    scene = grown()
    expand(scene, 3)
    with pytest.raises(KStreamsError, match="is on its way to 3 processors, not to 4") as refused:
        expand(scene, 4)
    goes_on, gives_up = printed_commands(refused.value.fix)
    assert goes_on[1:3] == ["expand", "processors"]
    assert gives_up[1:3] == ["expand", "abort"]
    if way == "go on":
        copied(
            scene, int(goes_on[goes_on.index("--to") + 1]), int(goes_on[goes_on.index("--subtopology") + 1])
        )
    else:
        abort(scene)
        expand(scene, 4)
    assert settled(scene)
    assert len(scene.recorded.by_group) == (3 if way == "go on" else 4)


@pytest.mark.remedy("expansion_rules.expanded: give its topics more partitions")
def test_subtopology_without_state_gets_tasks_when_its_topic_gets_partitions() -> None:
    scene = begun(2, repartitioned())
    with pytest.raises(KStreamsError, match="subtopology 0 of application 'app' keeps no state"):
        copied(scene, 4, subtopology=0)
    expanded(scene, 4)
    scene.send(KEYS, 1)
    scene.run()
    assert counted(scene) == dict.fromkeys(KEYS, 2)


@pytest.mark.remedy("expansion_rules.refuse_unfit: keep state by")
@pytest.mark.parametrize("way", ["as it is", "string keys", "repartition"])
def test_state_whose_keys_cannot_move_goes_on_as_the_error_says(way: str) -> None:
    def built(key: object, partitions: int | None = None) -> Topology:
        builder = KStreamBuilder(default_key_serde=key, default_value_serde=serdes.json())  # type: ignore[arg-type]
        stream = builder.stream("in")
        if partitions is not None:
            stream = stream.repartition(partitions, name="again")
        stream.group_by_key().count(store="counts").to_stream().send_to("out")
        return builder.build()

    keys = [f'"{key}"' for key in KEYS]
    scene = Scene(2, built(serdes.json()))
    scene.send(keys, 0)
    scene.run()
    expanded(scene, 4)
    scene.send(keys, 1)
    for _ in range(3):
        scene.run()
    with pytest.raises(TopologyError, match="which may write a key that was read in other bytes") as refused:
        expand(scene, 4)
    assert "repartition(n)" in refused.value.fix
    groups = 2
    if way != "as it is":
        # Kept otherwise, it begins anew.
        scene = Scene(2, built(serdes.string()) if way == "string keys" else built(serdes.json(), 4))
        scene.send(keys, 0)
        scene.run()
        scene.send(keys, 1)
        groups = 4
        if way == "string keys":
            expanded(scene, 4)
            for _ in range(3):
                scene.run()
            expand(scene, 4)
    scene.send(keys, 2)
    for _ in range(3):
        scene.run()
    assert counted(scene) == dict.fromkeys(keys, 3)
    scene.send(keys, 3)
    assert max(scene.app.begin("last").plan.tasks.values()) == groups


@pytest.mark.remedy("expansion_rules.refuse_unfit: let one run finish")
def test_processors_are_added_when_a_run_of_this_version_has_finished() -> None:
    def older(self: Topology, application_id: str) -> TopologyPlan:
        found = plan(self, application_id)
        subs = tuple(msgspec.structs.replace(sub, entry_keys={}) for sub in found.subtopologies)
        return msgspec.structs.replace(found, subtopologies=subs)

    plan = Topology.plan
    with mock.patch.object(Topology, "plan", older):
        scene = grown()
        with pytest.raises(TopologyError, match="no run of this version has planned it yet"):
            expand(scene, 4)
    scene.run()
    expand(scene, 4)
    assert settled(scene)
    assert len(scene.recorded.by_group) == 4


@pytest.mark.remedy("state_copy.StateCopy._other_keys")
def test_state_stays_with_its_keys_when_the_number_of_processors_is_left_as_it_is() -> None:
    lower = serdes.Serde(id="string", serialize=lambda key: key.lower().encode(), deserialize=bytes.decode)
    builder = KStreamBuilder(default_key_serde=lower, default_value_serde=serdes.json())
    listed = (
        builder.stream("in")
        .group_by_key()
        .aggregate(list, lambda key, value, so_far: [*so_far, value], store="listed")
    )
    listed.to_stream().send_to("out")
    scene = Scene(2, builder.build())
    keys = [key.upper() for key in KEYS]
    scene.send(keys, 0)
    scene.run()
    expanded(scene, 4)
    scene.send(keys, 1)
    for _ in range(4):
        scene.run()
    with pytest.raises(TopologyError, match="has a key that no record of its task can have"):
        expand(scene, 4)
    abort(scene)
    scene.send(keys, 9)
    scene.run()
    assert scene.listed == {key.lower(): values for key, values in scene.sent.items()}
    assert len(scene.recorded.by_group) == 2


@pytest.mark.remedy("state_copy.StateCopy._transaction: claim it first")
@pytest.mark.remedy("state_copy.StateCopy._transaction: nothing")
def test_copy_goes_on_with_a_new_producer_when_a_commit_may_have_been_repeated() -> None:
    scene = grown()
    with ProcessorExpansion(scene.kafka, scene.app.checked, subtopology=None, count=4) as tool:
        (work, *_) = tool.plan().works
    with closing(scene.kafka.admin()) as admin:
        add_partitions(admin, work.sub, 4)
    with StateCopy(scene.kafka, scene.app.checked, work, clock=SystemClock()) as copy:
        with pytest.raises(TransactionAbortedError, match="is not claimed"):
            copy.touch()
        copy.claim()

    class Repeats:
        left = 3

        def call(self, name: str, client: object, effect: Callable[[], object], arguments: object) -> object:
            result = effect()
            if name == "writer.commit":
                self.left -= 1
                if self.left == 0:
                    client.spoil()  # type: ignore[attr-defined]
            return result

    repeats = Repeats()
    with ProcessorExpansion(
        FaultyCluster(scene.kafka, repeats),  # type: ignore[arg-type]
        scene.app.checked,
        subtopology=None,
        count=4,
    ) as tool:
        tool.run(CatchUpOptions(follow=False))
    assert repeats.left < 0
    assert settled(scene)
    assert len(scene.recorded.by_group) == 4
