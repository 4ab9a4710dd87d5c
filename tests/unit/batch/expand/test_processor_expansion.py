"""More processors for state: every key is with its state, once and in order, before, while and after."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from unittest import mock

import msgspec
import pytest

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.expand.processor_expansion import (
    CatchUpOptions,
    ProcessorExpansion,
    give_up_expansions,
)
from airflow_kstreams.batch.expand.processor_plan import ProcessorPlan
from airflow_kstreams.batch.growing import takeover
from airflow_kstreams.batch.growing.expansion_rules import add_partitions
from airflow_kstreams.batch.growing.state_copy import StateCopy, copy_source
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    StoreSpec,
    Topology,
    TopologyBuilder,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.errors import AccessDeniedError, KStreamsError, TaskFencedError, TopologyError
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene

pytestmark = pytest.mark.promise("keys-follow-to-new-processors", "expansions-are-refused-before-they-begin")

CHANGELOG = "app-listed-changelog"


def catch_up(cluster: ClusterPort, app: Application, count: int) -> ProcessorPlan:
    """Copy what is there, as the command does with --no-wait."""
    with ProcessorExpansion(cluster, app.checked, subtopology=None, count=count) as tool:
        return tool.run(CatchUpOptions(follow=False))


def expand(scene: Scene, count: int) -> ProcessorPlan:
    return catch_up(scene.kafka, scene.app, count)


def begin_to_copy(scene: Scene, count: int, *, records: int, sources: int = 1) -> None:
    """Copy so many records of each of some sources, as a command does that is ended."""
    with ProcessorExpansion(scene.kafka, scene.app.checked, subtopology=None, count=count) as tool:
        plan = tool.plan()
    assert plan.after is not None
    with closing(scene.kafka.admin()) as admin:
        add_partitions(admin, plan.sub, count)
    for work in plan.works[:sources]:
        copy_source(
            scene.kafka,
            scene.app.checked,
            work,
            rate=records,
            clock=SystemClock(),
            goes_on=lambda: False,
        )


def abort(scene: Scene) -> list[ProcessorPlan]:
    return give_up_expansions(scene.kafka, scene.app.checked)


def held(kafka: InMemoryKafka, changelog: str, partition: int) -> set[str]:
    """Return the keys that a changelog partition holds."""
    found: dict[bytes, bytes | None] = {}
    for record in kafka.records(changelog):
        if record.partition() == partition:
            found[record.key() or b""] = record.value()
    return {key.decode() for key, value in found.items() if value is not None}


def of_processor(keys: Iterable[str], first: int, processors: int, number: int) -> set[str]:
    return {key for key in keys if partition_of_key(key.encode(), first, processors) == number}


def grown(first: int = 2, count: int = 4, topology: Topology | None = None) -> Scene:
    """An application whose topic has grown, and all of whose partitions are read."""
    scene = Scene(first, topology)
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(count)
    scene.send(KEYS, 1)
    # Each generation of partitions waits a run for the one before it.
    for _ in range(count.bit_length() + 1):
        scene.run()
    return scene


def far_behind(scene: Scene) -> None:
    """Let runs write to the changelogs, and take nothing over meanwhile."""
    with mock.patch.object(takeover, "under_way", return_value=None):
        for value in (10, 11):
            scene.send(KEYS, value)
            scene.run()


def warnings(scene: Scene) -> str:
    summary = scene.run()
    return "; ".join(summary.warnings)


def test_keys_stay_with_their_state_in_the_specifications_own_story() -> None:
    scene = Scene(10)
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(15)
    scene.send(KEYS, 1)
    scene.run()
    scene.run()
    scene.send(KEYS, 2)
    expand(scene, 15)
    scene.run()
    assert len(scene.recorded.by_group) == 15
    scene.send(KEYS, 3)
    scene.run()
    scene.grow(18)
    scene.send(KEYS, 4)
    scene.run()
    scene.run()
    assert scene.listed == scene.sent
    assert [len(group["in"]) for group in scene.recorded.by_group] == [1] * 5 + [2, 2, 2] + [1] * 7
    for number in range(15):
        assert held(scene.kafka, CHANGELOG, number) >= of_processor(KEYS, 10, 15, number)
    for number in range(10, 15):
        assert held(scene.kafka, CHANGELOG, number) == of_processor(KEYS, 10, 15, number)


def test_keys_stay_with_their_state_when_counts_are_multiples_under_the_default_partitioner() -> None:
    scene = Scene(2)
    for value, count in enumerate([2, 4, 12]):
        if count != scene.count:
            scene.grow(count)
        scene.send(KEYS, value, modulo=True)
        scene.run()
    for value in (3, 4):
        scene.send(KEYS, value, modulo=True)
        scene.run()
    for value, count in ((5, 3), (6, 7), (7, 12)):
        expand(scene, count)
        scene.send(KEYS, value, modulo=True)
        scene.run()
        assert len(scene.recorded.by_group) == count
    assert scene.listed == scene.sent
    assert held(scene.kafka, CHANGELOG, 11) == {
        key for key in KEYS if partition_of_key(key.encode(), 12, 12) == 11
    }


def test_several_expansions_follow_each_other_from_processors_that_were_added_before() -> None:
    scene = grown(1, 8)
    for value, count in enumerate((2, 3, 5, 8), start=2):
        expand(scene, count)
        scene.send(KEYS, value)
        scene.run()
        assert len(scene.recorded.by_group) == count
        assert scene.listed == scene.sent


def test_run_goes_on_with_the_old_processors_when_the_copies_are_far_behind() -> None:
    scene = grown()
    scene.app.settings = {**scene.app.settings, "acceptable.recovery.lag": 30}
    expand(scene, 4)
    scene.send(KEYS, 2)
    abort(scene)
    with ProcessorExpansion(scene.kafka, scene.app.checked, subtopology=None, count=4) as tool:
        tool.plan()
    expand(scene, 4)
    far_behind(scene)
    said = warnings(scene)
    assert "goes on with 2 processors, not 4 yet: the copy of app-listed-changelog-" in said
    assert "expand processors --bootstrap-server <broker> --application-id app --subtopology 0 --to 4" in said
    scene.send(KEYS, 3)
    expand(scene, 4)
    scene.run()
    assert len(scene.recorded.by_group) == 4
    assert scene.listed == scene.sent


def test_begin_copies_what_a_run_has_added_since_the_catch_up() -> None:
    scene = grown()
    expand(scene, 4)
    scene.app.settings = {**scene.app.settings, "acceptable.recovery.lag": 0}
    scene.send(KEYS, 2)
    slice_ = scene.app.begin("between")  # nothing is behind: it takes over
    assert slice_.plan.tasks == {"0": 4}

    scene = grown()
    expand(scene, 4)
    scene.send(KEYS, 2)
    far_behind(scene)
    assert len(scene.recorded.by_group) == 2
    scene.send(KEYS, 3)
    scene.run()
    assert len(scene.recorded.by_group) == 4
    assert scene.listed == scene.sent
    assert held(scene.kafka, CHANGELOG, 2) == of_processor(KEYS, 2, 4, 2)


def test_takeover_needs_nothing_new_to_read() -> None:
    scene = grown()
    expand(scene, 4)
    assert scene.run().records_in == 0
    assert len(scene.recorded.by_group) == 4
    scene.send(KEYS, 2)
    scene.run()
    assert scene.listed == scene.sent


def test_windows_of_keys_that_moved_close_in_a_takeover_with_nothing_new_to_read() -> None:
    hour, ours = 3_600_000, 400_000 * 3_600_000
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    hourly = builder.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=hour, grace_ms=0))
    counts = hourly.count(store="counts").suppress().to_stream()
    counts.map(lambda window, count: (window.key, count)).send_to("out", key_serde=serdes.string())
    scene = Scene(2, builder.build(), settings={"autostop.at": "interval_end"})
    scene.kafka.alter_topic("out", message_timestamp_after_max_ms=str(2**63 - 1))

    def run(number: int, end: float) -> RunSummary:
        return scene.app.run(f"run-{number}", interval_ms=(ours, ours + round(end * hour)))

    scene.send(KEYS, 0, timestamp_ms=ours)
    run(0, 0.1)
    scene.grow(4)
    for number in range(1, 5):
        scene.send(KEYS, number, timestamp_ms=ours + number * hour // 10)
        run(number, (number + 1) / 10)
    expand(scene, 4)
    assert scene.kafka.values("out") == []
    taken = run(5, 1)

    assert (len(scene.recorded.by_group), taken.records_in) == (4, 0)
    found: object = scene.listed
    assert found == dict.fromkeys(KEYS, 5)
    assert len(scene.kafka.values("out")) == len(KEYS)


def test_takeover_waits_until_the_new_processors_partitions_wait_for_none() -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.send(KEYS, 1)  # what the new partitions wait for
    scene.grow(4)
    scene.send(KEYS, 2)
    scene.run()
    assert scene.recorded.boundaries
    expand(scene, 4)
    # In this begin the ancestors are read as far as they must be: by the old processors.
    scene.run()
    assert len(scene.recorded.by_group) == 4
    scene.send(KEYS, 3)
    scene.run()
    assert scene.listed == scene.sent


def test_takeover_waits_while_producers_write_moving_keys_where_they_came_from() -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.kafka.add_partitions("in", 3)
    scene.send(KEYS, 1)
    scene.run()
    expand(scene, 3)
    scene.send(KEYS, 2)
    assert "no run has found anything in in-2" in warnings(scene)
    assert len(scene.recorded.by_group) == 2
    scene.send(KEYS, 3)
    scene.count = 3
    scene.send(KEYS, 4)
    assert "in-2 must not be read before" in warnings(scene), "what lay in in-0 is being read"
    scene.run()
    assert len(scene.recorded.by_group) == 3
    scene.send(KEYS, 5)
    scene.run()
    assert scene.listed == scene.sent


def test_takeover_waits_when_something_has_just_come_to_a_partition_that_was_empty() -> None:
    scene = Scene(2)
    moved = {number: [k for k in KEYS if partition_of_key(k.encode(), 2, 4) == number] for number in (2, 3)}
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(4)
    scene.send(moved[2], 1)
    for _ in range(2):
        scene.run()
    expand(scene, 4)
    scene.count = 2
    scene.send(moved[3], 1)
    scene.count = 4
    scene.send(moved[3], 2)
    assert "in-3 must not be read before" in warnings(scene), "what lies in in-1 is of these keys"
    scene.run()
    assert len(scene.recorded.by_group) == 4
    assert scene.listed == scene.sent


def test_takeover_waits_for_partitions_that_have_just_come() -> None:
    scene = grown(2, 4)
    expand(scene, 4)
    scene.send(KEYS, 2)
    scene.grow(8)
    scene.send(KEYS, 3)
    assert "in-6, in-7 must not be read before" in warnings(scene)
    assert len(scene.recorded.by_group) == 2
    scene.run()
    assert len(scene.recorded.by_group) == 4
    assert scene.listed == scene.sent


def test_catch_up_that_follows_ends_when_a_run_has_taken_over() -> None:
    scene = grown()
    expand(scene, 4)
    scene.run()
    plan = expand(scene, 4)
    assert plan.after is None
    assert plan.before == 4


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, "has 2 processors: 1 are no more, and it never has fewer"),
        (5, "cannot have 5 processors: each reads a partition of its own of every topic, and in has 4"),
    ],
)
def test_counts_that_cannot_be_are_refused_before_anything_changes(count: int, expected: str) -> None:
    scene = grown()
    with pytest.raises(TopologyError, match=expected):
        expand(scene, count)
    assert len(scene.kafka.partitions(CHANGELOG)) == 2


@pytest.mark.remedy("expansion_rules.expanded: let runs read records")
def test_expansion_waits_while_no_key_has_told_how_the_topic_grows() -> None:
    scene = Scene(2)
    scene.send(["k1"], 0)
    scene.run()
    scene.grow(6)
    stays = next(key for key in KEYS if partition_of_key(key.encode(), 6, 6) < 2)
    scene.send([stays], 1, modulo=True)
    scene.run()
    with pytest.raises(TopologyError, match="no key that was read shows how"):
        expand(scene, 6)
    scene.send(KEYS, 1)
    scene.run()  # what came into the new partitions waits for what lies in the others
    scene.run()
    expand(scene, 6)
    scene.send(KEYS, 2)
    scene.run()
    assert len(scene.recorded.by_group) == 6
    assert scene.listed == scene.sent


class Remember(Processor):
    kept = "seen"

    def init(self, context: object) -> None:
        self.store = context.state_store(self.kept)  # type: ignore[attr-defined]

    def process(self, record: object) -> None:
        self.store.put("all", record.value)  # type: ignore[attr-defined]


def by_processor() -> Topology:
    seen = StoreSpec(name="seen", key_serde=serdes.string(), value_serde=serdes.json())
    builder = TopologyBuilder().add_source(
        "source", "in", key_serde=serdes.string(), value_serde=serdes.json()
    )
    return builder.add_processor("remember", Remember, "source").add_state_store(seen, "remember").build()


def by_processor_now() -> Topology:
    """Another topology with the store of :func:`listing`, which a processor writes."""
    listed = StoreSpec(name="listed", key_serde=serdes.string(), value_serde=serdes.json())
    builder = TopologyBuilder().add_source(
        "source", "in", key_serde=serdes.string(), value_serde=serdes.json()
    )
    kept = type("RememberListed", (Remember,), {"kept": "listed"})
    builder = builder.add_processor("remember", kept, "source")
    return builder.add_state_store(listed, "remember").build()


def by_json() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())
    builder.stream("in", key_serde=serdes.json()).group_by_key().count(store="counts")
    return builder.build()


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (by_processor, "store 'seen' .* processor 'remember' writes it, under keys of its own choice"),
        (by_json, "store 'counts' .* in the format json, which may write a key that was read in other bytes"),
    ],
)
def test_stores_that_cannot_follow_their_keys_are_refused_by_name(
    topology: Callable[[], Topology], expected: str
) -> None:
    scene = Scene(2, topology())
    for count in (2, 4):
        scene.grow(count)
        at = partition_of_key(b'"k"', 2, count)
        scene.kafka.append("in", b"1", b'"k"', partition=at, timestamp_ms=0)
        scene.run()
    with pytest.raises(TopologyError, match=expected):
        expand(scene, 4)


@pytest.mark.promise("expansions-can-be-given-up")
def test_given_up_expansion_leaves_nothing_and_a_later_one_begins_anew() -> None:
    scene = grown()
    expand(scene, 3)
    assert [plan.after.count for plan in abort(scene) if plan.after] == [3]
    assert abort(scene) == []
    assert held(scene.kafka, CHANGELOG, 2) == set()
    scene.send(KEYS, 2)
    scene.run()
    assert len(scene.recorded.by_group) == 2
    expand(scene, 4)
    scene.send(KEYS, 3)
    scene.run()
    assert len(scene.recorded.by_group) == 4
    assert scene.listed == scene.sent


@pytest.mark.promise("moved-keys-elsewhere-fail")
def test_record_of_a_producer_with_an_old_count_fails_before_state_is_touched() -> None:
    scene = grown()
    expand(scene, 4)
    scene.run()
    moved = next(key for key in KEYS if partition_of_key(key.encode(), 2, 4) == 2)
    scene.kafka.append("in", b"9", moved.encode(), partition=0, timestamp_ms=0)
    with pytest.raises(KStreamsError, match="has its state with task 0_2 since processors were added"):
        scene.run()
    assert scene.listed == scene.sent


@pytest.mark.remedy("assignment._refuse_untold")
def test_store_whose_keys_have_moved_is_refused_when_it_cannot_be_told_any_more_which() -> None:
    scene = grown()
    expand(scene, 4)
    scene.run()
    scene.app.topology = by_processor_now()
    scene.send(KEYS, 2)
    with pytest.raises(
        TopologyError, match=r"store 'listed' .* keys have moved .* 'remember' writes it"
    ) as caught:
        scene.run()
    accept_in_memory(caught.value, scene.kafka)
    scene.run()
    assert held(scene.kafka, CHANGELOG, 0) | held(scene.kafka, CHANGELOG, 1) == {"all"}


def test_run_goes_on_and_says_so_when_its_user_may_not_see_how_far_copies_are() -> None:
    scene = grown()
    expand(scene, 4)
    scene.send(KEYS, 2)
    group = Permission(operation=Operation.DESCRIBE, resource=Resource.GROUP, name="app-catchup")
    denied = AccessDeniedError(what="asking", where="here", permission=group, principal="", kafka_code="X")
    with mock.patch.object(takeover, "_copied_so_far", side_effect=denied):
        assert "needs the permission Describe on group app-catchup" in warnings(scene)
    assert len(scene.recorded.by_group) == 2
    scene.run()
    assert len(scene.recorded.by_group) == 4
    assert scene.listed == scene.sent


@pytest.mark.promise("lines-keep-their-state")
def test_copy_is_fenced_when_a_later_one_knows_the_subtopology_by_another_number() -> None:
    scene = grown()
    with ProcessorExpansion(scene.kafka, scene.app.checked, subtopology=None, count=4) as tool:
        plan = tool.plan()
    with closing(scene.kafka.admin()) as admin:
        add_partitions(admin, plan.sub, 4)
    work = plan.works[0]
    moved = replace(work, sub=msgspec.structs.replace(work.sub, id=work.sub.id + 1))
    settings, clock = scene.app.checked, SystemClock()
    with (
        StateCopy(scene.kafka, settings, work, clock=clock) as earlier,
        StateCopy(scene.kafka, settings, moved, clock=clock) as later,
    ):
        earlier.claim()
        later.claim()
        with pytest.raises(TaskFencedError):
            earlier.begin_anew(earlier.anew(earlier.ends()))
