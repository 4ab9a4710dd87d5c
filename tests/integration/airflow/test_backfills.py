"""Airflow's own backfill, on SQLite and a real broker: which runs it makes, and what they do.

``airflow backfill create`` makes the dag runs, which are then executed in this process. Their tasks on Spark
run here, too, but for the first ones.
"""

from __future__ import annotations

import importlib.util
import json
import signal
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.launch.run_spec import RunSpec
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.loader import load_topology
from airflow_kstreams.streams.topology.outputs import with_outputs
from tests.conftest import Row
from tests.integration.airflow.dag_run_process import going_on
from tests.support.airflow.airflow_environment import TEST_DAGS
from tests.support.kafka.in_process import Application

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(400),
    pytest.mark.promise(
        "backfills-keep-to-their-interval", "assets-after-the-marker", "backfills-leave-the-live-application"
    ),
]

HOURS = 3
HOUR = timedelta(hours=1)
STATELESS, STATEFUL = "live_and_backfilled", "backfilled_in_order"
_FILE = """
from airflow_kstreams.streams import KStreamBuilder, serdes

def topology():
    text = serdes.string()
    builder = KStreamBuilder(default_key_serde=text, default_value_serde=text)
    {stream}.send_to("{sink}")
    return builder.build()

if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
"""
_STREAMS = {
    STATELESS: 'builder.stream("{source}")',
    STATEFUL: 'builder.stream("{source}").group_by_key().reduce(lambda a, b: a + b, store="s").to_stream()',
}


class Backfills:
    """One of the DAGs, an application with topics of its own, and Airflow's command."""

    def __init__(self, dag_id: str, module: ModuleType, application_id: str, topics: tuple[str, ...]) -> None:
        self.dag_id = dag_id
        self.module = module
        self.application_id = application_id
        self.source, self.live, self.again = topics
        self.start: datetime = module.START

    def create(self, *options: str, first: int = 0, hours: int = HOURS) -> None:
        """``airflow backfill create`` over the hours from one to another."""
        from airflow.cli.cli_parser import get_parser

        to = self.start + (hours - 1) * HOUR
        dates = ["--from-date", (self.start + first * HOUR).isoformat(), "--to-date", to.isoformat()]
        args = get_parser().parse_args(["backfill", "create", "--dag-id", self.dag_id, *dates, *options])
        handler = signal.getsignal(signal.SIGTERM)
        try:
            args.func(args)
        finally:
            signal.signal(signal.SIGTERM, handler)  # the command takes it for its process

    def execute(self) -> dict[str, str]:
        """Execute the dag runs that may run, by logical date, end the backfill, and return all states."""
        for run_id, logical_date in self._queued():
            if self._may_begin(run_id):
                with going_on():
                    getattr(self.module, self.dag_id).test(
                        run_after=logical_date + HOUR, logical_date=logical_date, run_conf=self._conf(run_id)
                    )
        self._end()
        return {run_id: state for run_id, (state, _) in self.runs().items()}

    def cancel(self) -> None:
        """Cancel the backfill as Airflow's page does: what waits fails, and it is over."""
        from airflow.models.dagrun import DagRun
        from airflow.utils.session import create_session

        with create_session() as session:
            waiting = session.query(DagRun).filter_by(dag_id=self.dag_id, state="queued")
            waiting.update({"state": "failed"})
        self._end()

    def runs(self) -> dict[str, tuple[str, str]]:
        """Return (state, type) of every dag run, by logical date."""
        return {run.run_id: (str(run.state), str(run.run_type)) for run in self._all()}

    def number_of(self, run_id: str) -> int:
        """Return the hour of a dag run."""
        (run,) = (run for run in self._all() if run.run_id == run_id)
        return int((run.logical_date - self.start) / HOUR)

    def schedule(self, hour: int) -> str:
        """Make the dag run of an hour as the scheduler does, and return its id."""
        from airflow.models.serialized_dag import SerializedDagModel
        from airflow.utils.session import create_session
        from airflow.utils.state import DagRunState
        from airflow.utils.types import DagRunTriggeredByType, DagRunType

        start = self.start + hour * HOUR
        with create_session() as session:
            stored = SerializedDagModel.get(self.dag_id, session=session)
            assert stored is not None
            made = stored.dag.create_dagrun(
                run_id=f"scheduled__{(start + HOUR).isoformat()}",
                logical_date=start,
                data_interval=(start, start + HOUR),
                run_after=start + HOUR,
                run_type=DagRunType.SCHEDULED,
                triggered_by=DagRunTriggeredByType.TIMETABLE,
                state=DagRunState.QUEUED,
                session=session,
            )
            return str(made.run_id)

    def announced(self) -> list[str]:
        """Return the run of the application that each asset event of the DAG tells of."""
        from airflow.models.asset import AssetEvent
        from airflow.utils.session import create_session

        with create_session() as session:
            found = session.query(AssetEvent).filter_by(source_dag_id=self.dag_id).order_by(AssetEvent.id)
            return [f"{event.extra['application_id']} {event.extra['run_id']}" for event in found]

    def _all(self) -> list[Any]:
        from airflow.models.dagrun import DagRun
        from airflow.utils.session import create_session

        with create_session() as session:
            found = session.query(DagRun).filter_by(dag_id=self.dag_id).order_by(DagRun.logical_date).all()
            session.expunge_all()
            return list(found)

    def _queued(self) -> list[tuple[str, datetime]]:
        return [(run.run_id, run.logical_date) for run in self._all() if run.state == "queued"]

    def _may_begin(self, run_id: str) -> bool:
        """Ask Airflow whether a task of a dag run may be scheduled now."""
        from airflow.models.dagrun import DagRun
        from airflow.models.serialized_dag import SerializedDagModel
        from airflow.utils.session import create_session

        with create_session() as session:
            run = session.query(DagRun).filter_by(dag_id=self.dag_id, run_id=run_id).one()
            stored = SerializedDagModel.get(self.dag_id, session=session)
            assert stored is not None
            run.dag = stored.dag
            found = bool(run.task_instance_scheduling_decisions(session=session).schedulable_tis)
            session.rollback()
            return found

    def _conf(self, run_id: str) -> dict[str, Any]:
        (run,) = (run for run in self._all() if run.run_id == run_id)
        return dict(run.conf or {})

    def _end(self) -> None:
        from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
        from airflow.utils.session import create_session

        with create_session() as session:
            runner = SchedulerJobRunner.__new__(SchedulerJobRunner)
            SchedulerJobRunner._mark_backfills_complete(runner, session=session)


@pytest.fixture
def backfills(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    airflow_database: Path,
    connections: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
) -> Iterator[Backfills]:
    """The DAG that the test names, known to Airflow, without any dag run."""
    source, live, again = (create_topic(topic_name(name)) for name in ("in", "out", "again"))
    file = tmp_path / "backfilled_application.py"
    file.write_text(_FILE.format(stream=_STREAMS[request.param].format(source=source), sink=live))
    given = {"application_id": application_id, "application": str(file), "outputs": {live: again}}
    monkeypatch.setenv("KSTREAMS_TEST_BACKFILLS", json.dumps(given))
    spec = importlib.util.spec_from_file_location("kstreams_backfilled", TEST_DAGS / "backfills.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    _tell_airflow()
    yield Backfills(request.param, module, application_id, (source, live, again))


def _tell_airflow() -> None:
    """Write the DAGs into Airflow's database, as its processor does."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
    from airflow.utils.session import create_session

    manager = cast("Any", DagBundlesManager)()
    with create_session() as session:
        manager.sync_bundles_to_db(session=session)
    for bundle in manager.get_all_dag_bundles():
        bundle.initialize()
        bag = BundleDagBag(dag_folder=bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
        sync_bag_to_db(bag, bundle.name, bundle.version)


class InThisProcess:
    """Stands in for Spark: runs the tasks here.

    :ivar failing: hours whose tasks fail once begun.
    :ivar began: the hours that were worked on, in order.
    """

    def __init__(self, kafka: str, backfills: Backfills) -> None:
        self._kafka = kafka
        self._backfills = backfills
        self.failing: set[int] = set()
        self.began: list[int] = []

    def fail(self, *hours: int) -> None:
        """Let the tasks of these hours fail from now on, and begin to remember anew."""
        self.failing, self.began = set(hours), []

    def submit(self, operator: Any, context: Any, spec: RunSpec, client_config: Any) -> None:
        """Take the place of ``RunTopologyOperator._submit``."""
        settings = ApplicationSettings.parse(spec.application_id, spec.settings)
        application = Application(
            application_id=spec.application_id,
            topology=with_outputs(load_topology(operator.application), settings),
            bootstrap=self._kafka,
            settings=spec.settings,
        )
        begun = application.begin(spec.run_id, spec.order, spec.interval_ms)
        assert spec.interval_ms is not None
        hour = round((spec.interval_ms[0] / 1000 - self._backfills.start.timestamp()) / HOUR.total_seconds())
        self.began.append(hour)
        if hour in self.failing:
            raise RuntimeError("the cluster is gone")
        application.tasks(begun)


@pytest.fixture
def in_this_process(kafka: str, backfills: Backfills, monkeypatch: pytest.MonkeyPatch) -> InThisProcess:
    from airflow_kstreams.operators.run_topology import RunTopologyOperator

    made = InThisProcess(kafka, backfills)
    monkeypatch.setattr(RunTopologyOperator, "_submit", lambda *given: made.submit(*given))
    return made


def publish(produce: Callable[..., None], backfills: Backfills, *records: tuple[str, float]) -> None:
    """Write values dated so many hours after the first interval's start."""
    rows = [
        Row(key="k", value=value, timestamp_ms=round((backfills.start + hours * HOUR).timestamp() * 1000))
        for value, hours in records
    ]
    produce(backfills.source, rows)


def values(rows: list[Row]) -> list[str]:
    return [row.value.decode() for row in rows]


@pytest.mark.parametrize("backfills", [STATELESS], indirect=True)
def test_backfill_beside_the_live_runs_reprocesses_what_its_behavior_says(
    backfills: Backfills,
    in_this_process: InThisProcess,
    kafka: str,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
) -> None:
    publish(produce, backfills, ("a", 0.1), ("b", 1.1), ("late a", 0.2), ("c", 2.1), ("d", 3.1))
    live = backfills.schedule(0)
    assert backfills.execute() == {live: "success"}
    assert values(consume_all(backfills.live)) == ["a"]

    # none: the live run's hour is left alone. One of the others fails once its end is frozen.
    in_this_process.fail(2)
    backfills.create()
    states = backfills.execute()
    assert {backfills.number_of(run_id): state for run_id, state in states.items()} == {
        0: "success",
        1: "success",
        2: "failed",
    }
    assert in_this_process.began == [1, 2]
    assert values(consume_all(backfills.again)) == ["b"]

    # failed: that one alone, to the end that it froze when it first began.
    publish(produce, backfills, ("late c", 2.2))
    in_this_process.fail()
    backfills.create("--reprocess-behavior", "failed")
    assert set(backfills.execute().values()) == {"success"}
    assert in_this_process.began == [2]
    assert values(consume_all(backfills.again)) == ["b", "c"]
    assert backfills.runs()[live] == ("success", "scheduled")

    # completed: what the backfill has finished is found so; the live run's hour was never backfilled.
    in_this_process.fail()
    backfills.create("--reprocess-behavior", "completed", hours=2)
    assert set(backfills.execute().values()) == {"success"}
    assert backfills.runs()[live] == ("success", "backfill"), "Airflow takes the live dag run for it"
    assert in_this_process.began == [0]
    assert values(consume_all(backfills.again)) == ["b", "c", "a", "late a"]

    # completed, under another name: once more, with what came too late before.
    in_this_process.fail()
    name = ["--dag-run-conf", json.dumps({"backfill": "again"})]
    backfills.create("--reprocess-behavior", "completed", *name, first=2)
    assert set(backfills.execute().values()) == {"success"}
    assert in_this_process.began == [2]
    assert values(consume_all(backfills.again))[4:] == ["c", "late c"]

    # Whatever was backfilled, the live application is where it was.
    ledger = read_ledger(KafkaCluster({"bootstrap.servers": kafka}), backfills.application_id)
    assert list(ledger.all_runs()) == [live]
    assert values(consume_all(backfills.live)) == ["a"]
    assert backfills.announced() == [f"{backfills.application_id} {live}"], "the live topic is as it was"


@pytest.mark.prove  # dev/test has the order without dag runs (unit/airflow/test_backfill.py)
@pytest.mark.parametrize("backfills", [STATEFUL], indirect=True)
def test_stateful_topology_is_backfilled_in_order_and_airflow_refuses_the_rest(
    backfills: Backfills,
    in_this_process: InThisProcess,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
) -> None:
    from airflow.models.backfill import InvalidBackfillDirection, InvalidReprocessBehavior

    publish(produce, backfills, ("a", 0.1), ("c", 2.1), ("b", 1.1), ("A", 0.9))
    conf = ["--dag-run-conf", json.dumps({"backfill": "first"})]
    with pytest.raises(InvalidBackfillDirection, match="in reverse"):
        backfills.create("--reprocess-behavior", "failed", "--run-backwards", *conf)
    for options in ((), ("--reprocess-behavior", "none")):
        with pytest.raises(InvalidReprocessBehavior, match="depends_on_past"):
            backfills.create(*options, *conf)
    assert backfills.runs() == {}

    backfills.create("--reprocess-behavior", "failed", *conf)
    in_this_process.fail(1)
    states = list(backfills.execute().values())
    assert in_this_process.began == [0, 1], "the third waits for the second"
    assert states == ["success", "failed", "queued"]
    backfills.cancel()

    in_this_process.fail()
    backfills.create("--reprocess-behavior", "failed", *conf)
    assert set(backfills.execute().values()) == {"success"}
    assert in_this_process.began == [1, 2]
    assert values(consume_all(backfills.again)) == ["aA", "aAb", "aAbc"]

    # completed: under its name all is found finished, under another one state begins empty.
    again = ["--reprocess-behavior", "completed", "--dag-run-conf"]
    in_this_process.fail()
    backfills.create(*again, json.dumps({"backfill": "first"}))
    assert set(backfills.execute().values()) == {"success"}
    assert in_this_process.began == []
    assert values(consume_all(backfills.again)) == ["aA", "aAb", "aAbc"]
    publish(produce, backfills, ("late B", 1.3))
    backfills.create(*again, json.dumps({"backfill": "second"}))
    assert set(backfills.execute().values()) == {"success"}
    assert in_this_process.began == [0, 1, 2]
    assert values(consume_all(backfills.again))[3:] == ["aA", "aAblate B", "aAblate Bc"]
    assert consume_all(backfills.live) == []


@pytest.mark.parametrize("backfills", [STATELESS], indirect=True)
def test_backfill_run_keeps_to_its_hour_and_topic_on_spark(
    backfills: Backfills, produce: Callable[..., None], consume_all: Callable[..., list[Row]]
) -> None:
    # An hour of which no other test has made a dag run.
    publish(produce, backfills, ("before", 9.9), ("a", 10), ("b", 11), ("late a", 10.2))
    backfills.create(first=10, hours=11)
    (run_id,) = (run_id for run_id in backfills.execute() if backfills.number_of(run_id) == 10)
    assert backfills.runs()[run_id] == ("success", "backfill")
    assert values(consume_all(backfills.again)) == ["a", "late a"]
    assert consume_all(backfills.live) == []
