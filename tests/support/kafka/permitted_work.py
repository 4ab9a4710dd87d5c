"""All work that a Kafka user may be allowed to do: every command, operator, sensor and mode, one row each.

A row prepares its scene as a super user, and is done as the user whose permissions ``airflow-kstreams acls``
lists, on the in-memory Kafka behind an authorizer or on a broker that has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.expand.growth import grow_topic
from airflow_kstreams.batch.expand.processor_expansion import (
    CatchUpOptions,
    ProcessorExpansion,
    give_up_expansions,
)
from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import (
    CaughtUp,
    Condition,
    NewData,
    RunFinished,
    StopOffsetsReached,
)
from airflow_kstreams.batch.inspect.dead_letters import DeadLetterTopic
from airflow_kstreams.batch.inspect.doctor import Subject, diagnose
from airflow_kstreams.batch.inspect.finished_runs import finished_run, new_runs
from airflow_kstreams.batch.inspect.state import StoredState
from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.protocol.needed_permissions import BROKERS_OWN
from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.batch.replay.selection import Selection
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.reset.scenario import scenario_of
from airflow_kstreams.cli.least_acls import Purpose
from airflow_kstreams.explore.sampling import take_sample
from airflow_kstreams.streams import KStreamBuilder, RetryPolicy, Topology, partition_of_key, serdes
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import Clock, ClusterPort, TopicPartition, TopicSpec
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application

KEYS = "abcd"
DEAD_LETTERS = {"deserialization.exception.handler": "dead-letter"}


async def _asked(value: int) -> int:
    """Ask a service that is down for 7."""
    if value == 7:
        raise ConnectionError
    return value


def everything(app: str, *, table: bool = True) -> Topology:
    """Inputs, calls with a retry topic, an intermediate and a repartition topic, a store, a global table.

    :param table: whether it has the global table, which continuous mode refuses.
    """
    text, number = serdes.string(), serdes.json(int)
    builder = KStreamBuilder(default_key_serde=text, default_value_serde=number)
    read = builder.stream(f"in-{app}")
    if table:
        units = builder.global_table(f"units-{app}")
        read = read.left_join(units, lambda value, unit: value, key=lambda key, value: key)
    retry = RetryPolicy(attempts=3, backoff_ms=60_000, backoff_max_ms=60_000, jitter=0)
    asked = read.map_values_async(_asked, order="key", retry=retry, name="ask").through(f"middle-{app}")
    parity = asked.group_by(lambda _, value: str(value % 2), name="parity")
    parity.count(store="counts").to_stream().send_to(f"out-{app}", value_serde=serdes.int64())
    return builder.build()


def by_key(app: str) -> Topology:
    """Counts by key of an input, whose tasks may become more."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    counted = builder.stream(f"in-{app}").group_by_key().count(store="counts").to_stream()
    counted.send_to(f"out-{app}", value_serde=serdes.int64())
    return builder.build()


def copied(app: str) -> Topology:
    """A copy of the input."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    builder.stream(f"in-{app}").send_to(f"out-{app}")
    return builder.build()


@dataclass(kw_only=True)
class Scene:
    """One application on a cluster, as its super user sees it, and as the user does.

    :param owner: the cluster of the super user.
    :param user: the cluster of the user, once permissions are given.
    """

    application_id: str
    topology: Topology
    settings: Mapping[str, object]
    owner: ClusterPort
    clock: Clock
    user: ClusterPort | None = None
    _sent: int = 0

    @property
    def plan(self) -> Any:
        return self.topology.plan(self.application_id)

    def application(self, *, owner: bool = False, **more: object) -> Application:
        """The application as the user runs it, or as the super user does."""
        return Application(
            application_id=self.application_id,
            topology=self.topology,
            settings={**_QUICK, **self.settings, **more},
            on=self.owner if owner else self.cluster,
            clock=self.clock,
            launching=self.owner,
        )

    def switching(self, cluster: ClusterPort) -> SwitchingApplication:
        """The application as one that runs in batches and continuously in turns."""
        return SwitchingApplication(
            application_id=self.application_id,
            topology=self.topology,
            cluster=cluster,
            clock=self.clock,
            settings={**_QUICK, "commit.interval.ms": 50, "lease.ms": 60_000, **self.settings},
        )

    @property
    def cluster(self) -> ClusterPort:
        assert self.user is not None
        return self.user

    def named(self, kind: str) -> str:
        """The name of one of the user's topics."""
        return f"{kind}-{self.application_id}"

    def create(self, partitions: int = 1) -> None:
        """Create the user's own topics."""
        own = [*self.plan.sources, *self.plan.outputs, *self.plan.globals]
        names = sorted({*own} - {*self.plan.repartition_topics})
        with closing(self.owner.admin()) as admin:
            admin.create_topics([TopicSpec(name=name, partitions=partitions) for name in names])

    def send(self, *values: object, key: str = "k", partition: int = 0, topic: str = "") -> None:
        """Write records to the input, or to another topic."""
        with closing(self.owner.writer(transactional_id=None)) as writer:
            writer.init_transactions()
            writer.begin()
            for value in values:
                writer.produce(topic or self.named("in"), str(value).encode(), key.encode(), partition)
            writer.flush()

    def grow(self, count: int) -> None:
        """Give the input more partitions."""
        with closing(self.owner.admin()) as admin:
            admin.create_partitions(self.named("in"), count)


_QUICK: Mapping[str, object] = {
    "settle.ms": 100,
    "client.timeout.ms": 10_000,
    "retry.run.budget.ms": 1_000,
    "commit.every.records": 1,
}


class Unseen(Exception):
    """Work that goes on without something that its user may not see, and says what."""


# == scenes


def new(scene: Scene) -> None:
    """Its topics, and records that no run has read; one that is no number, one whose call fails."""
    scene.create()
    for topic in scene.plan.globals:
        scene.send(1, topic=topic)
    scene.send(1, 2, "no number")
    scene.send(7, key="parked")


def finished_and_waiting(scene: Scene) -> None:
    """run-1 left a letter and a parked record; run-2 is to be finished, and something came since."""
    new(scene)
    owner = scene.application(owner=True)
    owner.run("run-1")
    scene.send(4)
    slice_ = owner.begin("run-2")
    owner.tasks(slice_)
    scene.send(5)


def finished(scene: Scene) -> None:
    """run-1 is finished, and something came since."""
    new(scene)
    scene.application(owner=True).run("run-1")
    scene.send(5)


def live(scene: Scene) -> None:
    """The live application has processed the second day."""
    scene.create()
    scene.send(1)
    application = replace(
        scene.application(owner=True),
        application_id=f"{scene.application_id}-live",
        settings={**_QUICK, "autostop.at": "interval_end"},
    )
    application.run("day-2", interval_ms=(86_400_000, 172_800_000))


def stopped(scene: Scene) -> None:
    """A continuous run has ended, which has deleted the metadata topic."""
    new(scene)
    application = scene.switching(scene.owner)
    application.batch("run-1")
    application.run_continuously("on-1").close()


def letters_from_everywhere(scene: Scene) -> None:
    """A record of each source has become a dead letter."""
    new(scene)
    owner = scene.application(owner=True)
    owner.run("run-1")
    for topic in scene.plan.intermediates:
        scene.send("no number", topic=topic)
    owner.run("run-2")


def poisoned(scene: Scene) -> None:
    """Another program has written to the ledger."""
    finished(scene)
    scene.send("of another program", topic=ProtocolTopics(scene.application_id).ledger)


def looked_at(scene: Scene) -> None:
    """The topics that a broker makes for itself are there, in memory, too."""
    finished_and_waiting(scene)
    with closing(scene.owner.admin()) as admin:
        admin.create_topics([TopicSpec(name=name, partitions=1) for name in BROKERS_OWN])


def grown(scene: Scene) -> None:
    """The input has two partitions, of one at first, all of them read."""
    scene.create()
    owner = scene.application(owner=True)
    for key in KEYS:
        scene.send(1, key=key)
    owner.run("run-1")
    scene.grow(2)
    for key in KEYS:
        scene.send(2, key=key, partition=partition_of_key(key.encode(), 1, 2))
    owner.run("run-2")
    owner.run("run-3")


def on_their_way(scene: Scene) -> None:
    """Its state has been copied for a second processor, but for what a run has written since."""
    grown(scene)
    owner = scene.application(owner=True)
    scene.send(3, key="a", partition=partition_of_key(b"a", 1, 2))
    slice_ = owner.begin("run-4")
    _expand(scene, scene.owner)
    owner.tasks(slice_)
    owner.finish("run-4")


# == work


def run(scene: Scene) -> None:
    """Two runs; the second one restores state and fences the first."""
    application = scene.application()
    application.run("run-1")
    scene.send(3, 4, 7)
    application.run("run-2")


def backfill(scene: Scene) -> None:
    """A day before the live application's first interval."""
    scene.application().run("day-1", interval_ms=(0, 86_400_000))


def run_continuously(scene: Scene) -> None:
    """A batch, a continuous run with all that its driver looks after, a batch."""
    application = scene.switching(scene.cluster)
    application.batch("run-1")
    running = application.run_continuously("on-1")
    try:
        scene.send(3)
        running.rounds(40)
        running.housekeeping.purge_processed()
    finally:
        running.close()
    application.batch("run-2")


def sense(scene: Scene, *conditions: Condition) -> None:
    with ClusterView(scene.cluster, clock=scene.clock) as view:
        for condition in conditions:
            assert condition.evaluate(view) is not None, str(condition)


def sense_finished(scene: Scene) -> None:
    sense(scene, RunFinished(application_id=scene.application_id, run_id="run-1"))


def sense_new_data(scene: Scene) -> None:
    sense(scene, NewData(application_id=scene.application_id))


def sense_caught_up(scene: Scene) -> None:
    sense(scene, CaughtUp(application_id=scene.application_id, max_records=5))


def sense_stop_offsets(scene: Scene) -> None:
    reached = partial(StopOffsetsReached, application_id=scene.application_id, run_id="run-2")
    sense(scene, *(reached(subtopology=each) for each in range(3)))


def show_status(scene: Scene) -> None:
    status = read_status(scene.cluster, scene.application_id)
    assert status.runs
    assert status.parked
    assert status.expansions is not None


def show_expansion(scene: Scene) -> None:
    if not read_status(scene.cluster, scene.application_id).expansions:
        raise Unseen("processors that are on their way")


def look_at_run(scene: Scene) -> None:
    assert finished_run(scene.cluster, scene.application_id, "run-1") is not None


def follow(scene: Scene) -> None:
    with new_runs(scene.cluster, scene.application_id, name="airflow") as runs:
        assert [one.run_id for one in runs] == ["run-1"]


def read_stores(scene: Scene) -> None:
    for store in ("counts", "ask-retry"):
        with StoredState(scene.cluster, scene.topology, scene.application_id, store) as state:
            assert list(state.all())


def list_letters(scene: Scene) -> None:
    settings = scene.application().checked
    topic = DeadLetterTopic(scene.cluster, settings)
    assert topic.survey(Selection.parse(None, None), newest=5).letters == 1


def replay(scene: Scene) -> None:
    """Two replays: the second one finds what the first has done."""
    for number, expected in enumerate((3, 0)):
        tool = DeadLetterReplay(
            scene.cluster, scene.application().checked, replay_id=f"replay-{number}", clock=scene.clock
        )
        assert sum(tool.run().records_per_topic.values()) == expected


def grow(scene: Scene) -> None:
    settings = scene.application().checked
    grow_topic(scene.cluster, settings, topic=scene.named("in"), count=3)


def _expand(scene: Scene, cluster: ClusterPort) -> None:
    settings = scene.application(owner=True).checked
    with ProcessorExpansion(cluster, settings, subtopology=None, count=2, clock=scene.clock) as tool:
        tool.run(CatchUpOptions(follow=False))


def expand(scene: Scene) -> None:
    _expand(scene, scene.cluster)


def give_up(scene: Scene) -> None:
    assert give_up_expansions(scene.cluster, scene.application().checked, clock=scene.clock)


def take_over(scene: Scene) -> None:
    plan = scene.application().begin("run-5").plan
    if plan.tasks != {"0": 2}:
        raise Unseen("; ".join(plan.warnings))


def diagnose_all(scene: Scene) -> None:
    found = diagnose(
        scene.cluster,
        Subject(plan=scene.plan, settings=scene.application().checked),
        clock=scene.clock,
    )
    refused = [each.text for each in found if "cannot be looked at" in each.text]
    if refused:
        raise Unseen("; ".join(refused))


def explore(scene: Scene) -> None:
    assert take_sample(scene.cluster, scene.plan, 10, lambda *_: None).records


def reset(scene: Scene, **request: Any) -> None:
    asked = ResetRequest(application_id=scene.application_id, **request)
    with ApplicationReset(
        scene.cluster, asked, settings=scene.application().checked, clock=scene.clock
    ) as tool:
        tool.run()


def reset_all(scene: Scene) -> None:
    topics = {"input_topics": (scene.named("in"),), "intermediate_topics": (scene.named("middle"),)}
    reset(scene, delete_stop_offsets=True, **topics)


def accept(scene: Scene) -> None:
    earliest = scenario_of({"to-earliest": True})
    reset(scene, accept=(TopicPartition(scene.named("in"), 0),), scenario=earliest)


def delete_stop_offsets(scene: Scene) -> None:
    reset(scene, delete_stop_offsets=True)


def repair_ledger(scene: Scene) -> None:
    reset(scene, repair_ledger=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """One row.

    :param name: as a user knows it.
    :param purposes: what ``airflow-kstreams acls`` is asked for.
    :param prepare: makes the scene, as a super user.
    :param do: does the work, as the user.
    """

    name: str
    purposes: tuple[Purpose, ...]
    prepare: Callable[[Scene], None]
    do: Callable[[Scene], None]
    topology: Callable[[str], Topology] = everything
    settings: Mapping[str, object] = field(default_factory=lambda: dict(DEAD_LETTERS))

    def __str__(self) -> str:
        return self.name

    def settings_of(self, application_id: str) -> Mapping[str, object]:
        """Return the settings of an application; the live one beside it has its id and ``-live``."""
        beside = {"backfill.of": f"{application_id}-live"} if "backfill.of" in self.settings else {}
        return {**self.settings, **beside}

    def scene(self, application_id: str, owner: ClusterPort, clock: Clock | None = None) -> Scene:
        """Return its scene, prepared."""
        scene = Scene(
            application_id=application_id,
            topology=self.topology(application_id),
            settings=self.settings_of(application_id),
            owner=owner,
            clock=clock or SystemClock(),
        )
        self.prepare(scene)
        return scene


def _rows() -> Iterator[Work]:
    running, watching = (Purpose.RUN,), (Purpose.WATCH,)
    row = partial(Work, prepare=finished_and_waiting)
    yield Work(name="run", purposes=running, prepare=new, do=run)
    yield Work(
        name="run at least once",
        purposes=running,
        prepare=new,
        do=run,
        settings={**DEAD_LETTERS, "processing.guarantee": "at_least_once"},
    )
    yield Work(
        name="run continuously",
        purposes=(Purpose.CONTINUOUS,),
        prepare=new,
        do=run_continuously,
        topology=partial(everything, table=False),
    )
    yield Work(
        name="backfill",
        purposes=running,
        prepare=live,
        do=backfill,
        topology=copied,
        settings={"autostop.at": "interval", "backfill.of": "app-live"},
    )
    yield Work(name="take over", purposes=running, prepare=on_their_way, do=take_over, topology=by_key)
    yield row(name="RunFinishedSensor", purposes=watching, do=sense_finished)
    yield Work(name="NewDataSensor", prepare=finished, purposes=watching, do=sense_new_data)
    yield row(name="CaughtUpSensor", purposes=watching, do=sense_caught_up)
    yield row(name="StopOffsetsReachedSensor", purposes=watching, do=sense_stop_offsets)
    yield row(name="status", purposes=watching, do=show_status)
    yield row(name="finished_run", purposes=watching, do=look_at_run)
    yield row(name="state", purposes=(Purpose.STATE,), do=read_stores)
    yield row(name="dead-letters list", purposes=(Purpose.REPLAY,), do=list_letters)
    yield Work(
        name="dead-letters replay",
        purposes=(Purpose.REPLAY,),
        prepare=letters_from_everywhere,
        do=replay,
    )
    yield Work(name="doctor", purposes=(Purpose.DOCTOR,), prepare=looked_at, do=diagnose_all)
    yield Work(
        name="doctor of copies",
        purposes=(Purpose.DOCTOR,),
        prepare=on_their_way,
        do=diagnose_all,
        topology=by_key,
    )
    yield row(name="explore", purposes=(Purpose.EXPLORE,), do=explore)
    yield row(name="FinishedRunsTrigger", purposes=(Purpose.FOLLOW,), do=follow)
    for name, do in {
        "reset": reset_all,
        "reset --accept": accept,
        "reset --delete-stopoffsets": delete_stop_offsets,
    }.items():
        yield row(name=name, purposes=(Purpose.RESET,), do=do)
    yield Work(name="reset --repair-ledger", purposes=(Purpose.RESET,), prepare=poisoned, do=repair_ledger)
    yield Work(
        name="reset after continuous mode",
        purposes=(Purpose.RESET,),
        prepare=stopped,
        do=reset_all,
        topology=partial(everything, table=False),
    )
    yield Work(name="expand partitions", purposes=(Purpose.EXPAND,), prepare=finished, do=grow)
    yield Work(
        name="expand processors",
        purposes=(Purpose.EXPAND_PROCESSORS,),
        prepare=grown,
        do=expand,
        topology=by_key,
    )
    yield Work(
        name="expand abort",
        purposes=(Purpose.EXPAND_ABORT,),
        prepare=on_their_way,
        do=give_up,
        topology=by_key,
    )
    yield Work(
        name="status of copies", purposes=watching, prepare=on_their_way, do=show_expansion, topology=by_key
    )


WORK = tuple(_rows())
