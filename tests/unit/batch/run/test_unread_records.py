"""No record between two subtopologies is left behind in silence when the code changes between runs."""

from __future__ import annotations

from contextlib import suppress

import pytest

from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetPlan, ResetRequest
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError, KStreamsError, TopologyError
from airflow_kstreams.testing import InMemoryKafka
from tests.support.crash import Crash
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.interception import CrashingAt
from tests.support.kafka.printed_commands import accept_in_memory, printed_commands

pytestmark = pytest.mark.promise("records-between-are-not-left-behind")

APP = "app"
#: In one of how many calls the command dies; in ``dev/prove`` in every one.
EVERY = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.prove)])
REKEYED = f"{APP}-rekeyed-repartition"


def old_code() -> Topology:
    """``in`` -> ``app-rekeyed-repartition`` -> ``rekeyed``; ``in`` -> ``mid``, which is the user's ->
    ``passed``; and a count of ``in``.
    """
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    stream = builder.stream("in")
    stream.repartition(2, name="rekeyed").send_to("rekeyed")
    stream.through("mid").send_to("passed")
    counts = stream.group_by_key().count(store="counts").to_stream()
    counts.send_to("counts", value_serde=serdes.int64())
    return builder.build()


def new_code(*, rekeyed: bool = False, passed: bool = False, writes: bool = True) -> Topology:
    """The same without what lies behind one of the topics between, or both.

    :param writes: whether it writes ``mid`` still.
    """
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    stream = builder.stream("in")
    counts = stream.group_by_key().count(store="counts").to_stream()
    counts.send_to("counts", value_serde=serdes.int64())
    if rekeyed:
        stream.repartition(2, name="rekeyed").send_to("rekeyed")
    if passed:
        stream.through("mid").send_to("passed")
    elif writes:
        stream.send_to("mid")
    return builder.build()


def branch(topic: str) -> Topology:
    """A topic -> ``app-rekeyed-repartition`` -> ``rekeyed``."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream(topic).filter(lambda key, value: True).repartition(2, name="rekeyed").send_to("rekeyed")
    return builder.build()


class Scene:
    """An application on Kafka in memory whose code changes."""

    def __init__(self) -> None:
        self.kafka = InMemoryKafka()
        for topic in ("in", "mid", "rekeyed", "passed", "counts"):
            self.kafka.create_topic(topic)
        self.sent = 0

    def app(self, topology: Topology) -> SwitchingApplication:
        return SwitchingApplication(
            topology=topology,
            cluster=self.kafka,
            clock=self.kafka.clock,
            settings={"commit.every.records": 1},
        )

    def send(self, count: int = 5, topic: str = "in") -> None:
        for _ in range(count):
            self.kafka.append(topic, b"%d" % self.sent, b"key")
            self.sent += 1

    def drop(self) -> None:
        request = ResetRequest(application_id=APP, delete_stop_offsets=True, force=True)
        with ApplicationReset(self.kafka, request, clock=self.kafka.clock) as reset:
            reset.run()

    def half_a_slice(self) -> Slice:
        """Begin a run, and run the tasks that read the input."""
        app = self.app(old_code())
        slice_ = app.begin("r1")
        first = [sub.id for sub in slice_.plan.topology.subtopologies if "in" in sub.sources]
        app.batches.tasks(slice_, first)
        return slice_

    def half_a_run(self, *, frozen: bool = False) -> None:
        """Leave behind what the first subtopology has written, without a slice.

        :param frozen: whether the stops of the topics between are frozen.
        """
        slice_, app = self.half_a_slice(), self.app(old_code())
        if frozen:
            coordinator = app.coordinator()
            coordinator.begin("r1", app.topology.plan(APP), order=(0, 2), hold_lease=True)
            for sub in slice_.plan.topology.subtopologies:
                coordinator.unfinished(slice_, sub.id)
            coordinator.close()
        self.drop()

    def out(self) -> dict[str, list[bytes]]:
        """What lies in each output, in the order of the input."""
        topics = ("rekeyed", "passed", "counts")
        return {topic: sorted(v or b"" for v in self.kafka.values(topic)) for topic in topics}

    def refused(self, topology: Topology, run_id: str = "r2") -> TopologyError:
        with pytest.raises(TopologyError, match="no task of its topology reads") as caught:
            self.app(topology).begin(run_id)
        assert not caught.value.is_retriable
        return caught.value

    def give_up(self, error: KStreamsError) -> None:
        accept_in_memory(error, self.kafka)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def numbers(*numbers_: int) -> list[bytes]:
    return sorted(b"%d" % number for number in numbers_)


CODES = {
    "neither": (new_code(), {REKEYED, "mid"}),
    "neither, nor is the user's written": (new_code(writes=False), {REKEYED, "mid"}),
    "not the engine's": (new_code(passed=True), {REKEYED}),
    "not the user's": (new_code(rekeyed=True), {"mid"}),
}
changed = pytest.mark.parametrize(("code", "left"), CODES.values(), ids=CODES.keys())


@changed
@pytest.mark.parametrize("frozen", [False, True])
def test_records_of_a_dropped_slice_are_refused_when_the_code_does_not_read_their_topic(
    scene: Scene, code: Topology, left: set[str], frozen: bool
) -> None:
    scene.send(5)
    scene.half_a_run(frozen=frozen)
    error = scene.refused(code)
    for topic in (REKEYED, "mid"):
        assert (f"5 in {topic}" in error.cause) is (topic in left)
    assert scene.refused(code).cause == error.cause, "and nothing has changed by that"


@changed
def test_old_code_brings_them_to_the_end_and_the_new_code_goes_on(
    scene: Scene, code: Topology, left: set[str]
) -> None:
    scene.send(5)
    scene.half_a_run()
    scene.refused(code)

    scene.app(old_code()).batch("r1")
    scene.send(2)
    scene.app(code).batch("r2")

    out = scene.out()
    both = {"rekeyed": REKEYED not in left, "passed": "mid" not in left}
    for topic, goes_on in both.items():
        assert out[topic] == numbers(*range(7 if goes_on else 5))
    assert max(int.from_bytes(value, "big") for value in out["counts"]) == 7


@changed
@pytest.mark.remedy("left_unread.refuse_unread")
def test_they_are_given_up_by_the_command_and_nothing_else_is(
    scene: Scene, code: Topology, left: set[str]
) -> None:
    scene.send(5)
    scene.half_a_run()
    error = scene.refused(code)

    scene.give_up(error)
    scene.send(2)
    scene.app(code).batch("r2")
    scene.send(1)
    scene.app(code).batch("r3")

    out = scene.out()
    assert out["rekeyed"] == (numbers() if REKEYED in left else numbers(*range(8)))
    assert out["passed"] == (numbers() if "mid" in left else numbers(*range(8)))
    assert max(int.from_bytes(value, "big") for value in out["counts"]) == 8, "state stays"


def half_a_branch(scene: Scene, *, endless: bool) -> None:
    """Leave five records between the subtopologies of the branch of ``in``."""
    scene.kafka.create_topic("other")
    scene.send(5)
    app = scene.app(branch("in"))
    if endless:
        running = app.run_continuously("r1", only=[0])
        running.rounds(5)
        running.close()
    else:
        app.batches.tasks(app.begin("r1"), [0])
        scene.drop()


@pytest.mark.parametrize("endless", [False, True])
def test_records_of_a_branch_are_refused_when_another_one_has_its_topic(scene: Scene, endless: bool) -> None:
    half_a_branch(scene, endless=endless)
    error = scene.refused(branch("other"))
    made = "made of in, where the topology puts what is made of other"
    assert f"5 in {REKEYED} ({made})" in error.cause
    assert scene.refused(branch("other")).cause == error.cause, "and nothing has changed by that"

    scene.app(branch("in")).batch("r2")
    scene.send(1, topic="other")
    scene.app(branch("other")).batch("r3")
    scene.send(1, topic="other")
    scene.app(branch("other")).batch("r4")
    assert scene.out()["rekeyed"] == numbers(*range(7))


@pytest.mark.remedy("left_unread.refuse_unread")
def test_records_of_a_branch_are_given_up_by_the_command_when_another_one_has_its_topic(scene: Scene) -> None:
    half_a_branch(scene, endless=False)
    scene.give_up(scene.refused(branch("other")))
    scene.send(2, topic="other")
    scene.app(branch("other")).batch("r2")
    assert scene.out()["rekeyed"] == numbers(5, 6)


def give_up(scene: Scene, *topics: str) -> ResetPlan:
    request = ResetRequest(application_id=APP, unread_topics=topics)
    with ApplicationReset(scene.kafka, request, clock=scene.kafka.clock) as reset:
        planned = reset.plan()
        done = reset.run()
    assert done.unread == planned.unread
    return done


def test_command_says_how_many_records_are_given_up(scene: Scene) -> None:
    scene.send(5)
    scene.half_a_run()
    error = scene.refused(new_code())
    (command,) = printed_commands(error.fix)
    assert command[-2:] == ["--unread-topics", f"{REKEYED},mid"]

    done = give_up(scene, REKEYED, "mid")

    assert done.unread == {REKEYED: 5, "mid": 5}
    assert set(done.deleted) == {REKEYED}


@pytest.mark.parametrize(("one", "other"), [(REKEYED, "mid"), ("mid", REKEYED)])
def test_those_of_one_topic_are_still_refused_when_those_of_another_were_given_up(
    scene: Scene, one: str, other: str
) -> None:
    scene.send(5)
    scene.half_a_run()
    give_up(scene, one)
    error = scene.refused(new_code())
    assert f"5 in {other}" in error.cause
    assert one not in error.cause


def test_they_are_still_refused_when_another_reset_came_in_between(scene: Scene) -> None:
    scene.send(5)
    scene.half_a_run()
    request = ResetRequest(application_id=APP, internal_topics=(f"{APP}-counts-changelog",))
    with ApplicationReset(scene.kafka, request, clock=scene.kafka.clock) as reset:
        reset.run()
    assert "5 in mid" in scene.refused(new_code()).cause


def test_they_are_refused_when_the_group_has_lost_its_offsets(scene: Scene) -> None:
    scene.send(5)
    scene.app(old_code()).batch("r0")
    scene.send(5)
    scene.half_a_run()
    scene.kafka.expire_offsets(APP)
    error = scene.refused(new_code())
    assert f"5 in {REKEYED}" in error.cause
    assert "5 in mid" in error.cause


def test_nothing_is_refused_when_the_runs_were_finished(scene: Scene) -> None:
    scene.send(5)
    scene.app(old_code()).batch("r1")
    scene.send(5, "mid")
    scene.app(new_code()).batch("r2")
    assert scene.out()["passed"] == numbers(*range(5))


def test_what_others_write_to_a_topic_of_the_users_later_is_theirs(scene: Scene) -> None:
    scene.send(5)
    scene.half_a_run()
    error = scene.refused(new_code())
    scene.send(100, "mid")
    assert scene.refused(new_code()).cause == error.cause
    scene.give_up(error)
    scene.send(100, "mid")
    scene.app(new_code()).batch("r2")
    scene.send(1, "mid")
    scene.app(new_code()).batch("r3")


def test_later_records_of_others_are_read_when_the_topic_comes_back(scene: Scene) -> None:
    scene.send(5)
    scene.half_a_run()
    error = scene.refused(new_code())
    scene.kafka.append("mid", b"theirs", b"key")
    scene.give_up(error)
    scene.app(old_code()).batch("r2")
    assert scene.out()["passed"] == [b"theirs"]


def test_nothing_is_refused_when_only_aborted_records_lie_there(scene: Scene) -> None:
    app = scene.app(old_code())
    scene.send(5)
    app.batch("r0")
    writer = scene.kafka.writer(transactional_id="someone", transaction_timeout_ms=10_000)
    writer.init_transactions()
    writer.begin()
    writer.produce(REKEYED, b"never", b"key", 0, None, None)
    writer.abort()
    writer.close()
    scene.app(new_code()).batch("r2")


def test_same_code_goes_on_when_a_slice_was_dropped(scene: Scene) -> None:
    scene.send(5)
    scene.half_a_run()
    scene.app(old_code()).batch("r2")
    assert scene.out()["passed"] == scene.out()["rekeyed"] == numbers(*range(5))


@changed
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("endless", [True, False])
def test_records_of_a_continuous_run_are_refused_when_the_code_does_not_read_their_topic(
    scene: Scene, code: Topology, left: set[str], clean: bool, endless: bool
) -> None:
    scene.send(5)
    written(scene, clean=clean)
    app = scene.app(code)
    with pytest.raises(TopologyError, match="no task of its topology reads") as caught:
        app.run_continuously("r2") if endless else app.begin("r2")
    for topic in (REKEYED, "mid"):
        assert (f"5 in {topic}" in caught.value.cause) is (topic in left)

    scene.app(old_code()).batch("r3")
    app.run_continuously("r4").stop() if endless else app.batch("r4")
    assert scene.out()["passed"] == scene.out()["rekeyed"] == numbers(*range(5))


@changed
def test_records_of_a_continuous_run_are_given_up_by_the_command(
    scene: Scene, code: Topology, left: set[str]
) -> None:
    scene.send(5)
    written(scene)
    scene.give_up(scene.refused(code))
    scene.app(code).batch("r2")
    out = scene.out()
    assert out["rekeyed"] == (numbers() if REKEYED in left else numbers(*range(5)))
    assert out["passed"] == (numbers() if "mid" in left else numbers(*range(5)))
    assert max(int.from_bytes(value, "big") for value in out["counts"]) == 5


def written(scene: Scene, *, clean: bool = True) -> None:
    """Leave behind what the first subtopology of a continuous run has written."""
    app = scene.app(old_code())
    first = [sub.id for sub in app.topology.plan(APP).subtopologies if "in" in sub.sources]
    running = app.run_continuously("r1", only=first)
    running.rounds(3)
    if clean:
        running.stop()
    else:
        running.close()


def test_nothing_is_refused_when_a_continuous_run_had_read_all(scene: Scene) -> None:
    scene.send(5)
    running = scene.app(old_code()).run_continuously("r1")
    running.rounds(10)
    running.stop()
    assert scene.out()["passed"] == scene.out()["rekeyed"] == numbers(*range(5))
    scene.app(new_code()).batch("r2")


@pytest.mark.parametrize("topic", ["in", f"{APP}-counts-changelog", "counts", "nowhere"])
def test_only_topics_between_subtopologies_can_be_given_up(scene: Scene, topic: str) -> None:
    scene.send(5)
    scene.app(old_code()).batch("r0")
    before = scene.kafka.topics()
    with pytest.raises(ConfigError):
        give_up(scene, topic)
    assert scene.kafka.topics() == before


def dies_at_each_call(scene: Scene, request: ResetRequest, number: int) -> bool:
    """Reset once with a process that dies at a port call, and then once more.

    One that was done before it died finds nothing unread any more.

    :return: whether it died.
    """
    crashing = CrashingAt(number)
    died = False
    try:
        with ApplicationReset(crashing.cluster(scene.kafka), request, clock=scene.kafka.clock) as reset:
            reset.run()
    except Crash:
        died = True
        again = ApplicationReset(scene.kafka, request, clock=scene.kafka.clock)
        with again as reset, suppress(ConfigError):
            reset.run()
    return died


@EVERY
def test_they_are_refused_whatever_call_of_the_drop_dies(every: int) -> None:
    for number in range(0, 200, every):
        scene = Scene()
        scene.send(5)
        scene.half_a_slice()
        request = ResetRequest(application_id=APP, delete_stop_offsets=True, force=True)
        died = dies_at_each_call(scene, request, number)
        cause = scene.refused(new_code()).cause
        assert "5 in mid" in cause
        assert f"5 in {REKEYED}" in cause
        if not died:
            assert number > 10
            return
    pytest.fail("the reset never came to its end")


@EVERY
def test_one_topic_is_given_up_whatever_call_of_the_command_dies(every: int) -> None:
    for number in range(0, 200, every):
        scene = Scene()
        scene.send(5)
        scene.half_a_run()
        request = ResetRequest(application_id=APP, unread_topics=(REKEYED,))
        died = dies_at_each_call(scene, request, number)
        cause = scene.refused(new_code()).cause
        assert "5 in mid" in cause
        assert REKEYED not in cause
        if not died:
            assert number > 10
            return
    pytest.fail("the reset never came to its end")
