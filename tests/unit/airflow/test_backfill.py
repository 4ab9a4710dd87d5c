"""Operators in the dag runs of a backfill, on a Kafka in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest
from airflow.sdk import DAG, Asset, BaseOperator, Context

from airflow_kstreams.hooks.airflow_versions import (
    AirflowFailException,
    AirflowSkipException,
    cron_intervals,
    next_interval,
)
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.launch.run_spec import RunSpec
from airflow_kstreams.operators.backfill import BackfillOperator
from airflow_kstreams.operators.backfill_dag import backfill_dag
from airflow_kstreams.operators.expand import ExpandPartitionsOperator, ExpandProcessorsOperator
from airflow_kstreams.operators.incremental_batch import CaptureStopOffsetsOperator, FinishRunOperator
from airflow_kstreams.operators.replay_dead_letters import ReplayDeadLettersOperator
from airflow_kstreams.operators.reset_application import ResetApplicationOperator
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.operators.work.application_work import ApplicationLoader
from airflow_kstreams.operators.work.run_settings import RunIdentity, backfill_id, settings_of_run
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.loader import load_topology
from airflow_kstreams.streams.topology.outputs import with_outputs
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.airflow.loaded_here import load_here
from tests.support.airflow.serialized_dags import DagSerialization
from tests.support.airflow.task_log import said
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("backfills-keep-to-their-interval", "assets-after-the-marker")

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
OUTPUTS = {"out": "out-again"}
TOTALS = Asset("totals")
_FILE = """
from airflow_kstreams.streams import KStreamBuilder, serdes

def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    {stream}.send_to("out")
    return builder.build()
"""
STATELESS = _FILE.format(stream='builder.stream("in")')
STATEFUL = _FILE.format(
    stream='builder.stream("in").group_by_key().reduce(lambda a, b: a + b, store="joined").to_stream()'
)


def identity(run_id: str = "backfill__1", *, backfill: bool = True, name: str = "") -> RunIdentity:
    return RunIdentity(
        run_id=run_id, clear_number=0, try_number=1, owner="o", backfill=backfill, backfill_name=name
    )


def settings_for(
    who: RunIdentity,
    settings: Mapping[str, Any] | None = None,
    *,
    outputs: Mapping[str, str] | None = OUTPUTS,
    in_order: bool = False,
) -> ApplicationSettings:
    return settings_of_run(who, "app", settings, outputs=outputs, in_order=in_order)


def test_scheduled_run_works_on_the_live_application() -> None:
    live = settings_for(identity("scheduled__1", backfill=False), {"autostop.at": "interval_end"})
    assert live.to_dict() == {"autostop.at": "interval_end"}
    assert live.application_id == "app"


@pytest.mark.promise("backfills-leave-the-live-application")
def test_backfill_run_works_on_an_application_of_its_own() -> None:
    found = settings_for(identity(), {"processing.guarantee": "exactly_once"})
    assert re.fullmatch("app-backfill-[0-9a-f]{12}", found.application_id)
    assert found.to_dict() == {
        "processing.guarantee": "exactly_once",
        "autostop.at": "interval",
        "output.topics": "out=out-again",
        "backfill.of": "app",
        "backfill.runs": "one",
    }


def test_application_id_is_the_same_for_every_try_and_another_for_another_run_or_name() -> None:
    def application_id(*given: str) -> str:
        return settings_for(identity(given[0], name=given[1])).application_id

    ids = {application_id(run, name) for run in ("r1", "r2") for name in ("", "again", "once more")}
    assert len(ids) == 6
    assert application_id("r1", "again") == application_id("r1", "again")


def test_runs_of_a_stateful_backfill_share_the_application_that_the_conf_names() -> None:
    ids = {settings_for(identity(run, name="jan"), in_order=True).application_id for run in ("r1", "r2")}
    assert ids == {"app-backfill-jan"}


@pytest.mark.parametrize(("name", "said"), [("", "has no name"), ("no/topic", "cannot name Kafka topics")])
def test_stateful_backfill_is_refused_without_a_name_that_fits(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        backfill_id(identity(name=name), "app", in_order=True, written=OUTPUTS)


@pytest.mark.promise("backfill-outputs-are-named")
@pytest.mark.remedy("run_settings.settings_of_run")
def test_backfill_is_refused_when_nothing_says_what_it_may_write() -> None:
    with pytest.raises(ConfigError, match="which topics it may write") as caught:
        settings_for(identity(), outputs=None)
    assert "give backfill_outputs={'topic': 'other topic'}" in caught.value.fix
    told = settings_for(identity(), outputs={"topic": "other topic"})
    assert told.to_dict()["output.topics"] == "topic=other topic"


def test_outputs_may_be_the_text_that_a_template_rendered() -> None:
    assert settings_of_run(
        identity(), "app", '{"commit.interval.ms": 7}', outputs='{"out": "out-again"}', in_order=False
    ).to_dict() == {
        "commit.interval.ms": 7,
        "autostop.at": "interval",
        "output.topics": "out=out-again",
        "backfill.of": "app",
        "backfill.runs": "one",
    }
    with pytest.raises(ConfigError, match="backfill_outputs is neither an object"):
        settings_of_run(identity(), "app", None, outputs="out=out-again", in_order=False)


@pytest.mark.parametrize(("outputs", "letters"), [(OUTPUTS, ""), ({**OUTPUTS, "letters": "l2"}, "l2")])
def test_dead_letters_of_a_backfill_stay_out_of_the_live_topic(outputs: dict[str, str], letters: str) -> None:
    given = {"errors.dead.letter.queue.topic.name": "letters", "processing.exception.handler": "dead-letter"}
    found = settings_for(identity(), given, outputs=outputs)
    assert found.dead_letter_topic == (letters or f"{found.application_id}-dead-letter")


def test_run_that_is_no_backfill_is_skipped_in_a_dag_for_backfills() -> None:
    with pytest.raises(AirflowSkipException, match="is no backfill"):
        settings_for(identity(backfill=False), in_order=True)


@pytest.mark.remedy("run_settings.batch_settings: set {} to 'interval_end'")
def test_live_runs_may_not_keep_to_their_interval() -> None:
    with pytest.raises(ConfigError, match="set by themselves in a backfill"):
        settings_for(identity(backfill=False), {"autostop.at": "interval"})
    told = settings_for(identity(backfill=False), {"autostop.at": "interval_end"})
    assert not told.keeps_to_interval


def test_dag_for_backfills_runs_one_interval_after_the_other() -> None:
    dag = backfill_dag(
        "again",
        application_id="app",
        application="app.py",
        schedule="0 * * * *",
        outputs=OUTPUTS,
        settings={"processing.guarantee": "exactly_once"},
        per_subtopology=[0, 1],
        dag_arguments={"tags": ["kafka"], "default_args": {"retries": 5}},
    )
    assert isinstance(dag.timetable, type(cron_intervals("@hourly", "UTC")))
    assert (dag.max_active_runs, dag.catchup, dag.tags) == (1, False, {"kafka"})
    for task in dag.tasks:
        assert (task.depends_on_past, task.wait_for_downstream, task.retries) == (True, True, 5)
        assert (getattr(task, "backfill_in_order"), getattr(task, "backfill_outputs")) == (True, OUTPUTS)  # noqa: B009
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert all(task.depends_on_past for task in stored.tasks)


class Events:
    """As Airflow's, for any asset: no release before 3.3 can hash one."""

    def __init__(self, extra: dict[str, Any]) -> None:
        self._event = SimpleNamespace(extra=extra)

    def __getitem__(self, _: Asset) -> Any:
        return self._event


class Scene:
    """A live application and its backfills on one Kafka."""

    def __init__(self, folder: Path, text: str) -> None:
        self.kafka = InMemoryKafka(clock=ManualClock(now_ms=round((START + 50 * HOUR).timestamp() * 1000)))
        for topic in ("in", "out", "out-again"):
            self.kafka.create_topic(topic)
        self.extra: dict[str, Any] = {}
        self.file = folder / "application_of_scene.py"
        self.file.write_text(text)

    def publish(self, *records: tuple[str, float]) -> None:
        for value, hours in records:
            at_ms = round((START + hours * HOUR).timestamp() * 1000)
            self.kafka.append("in", value.encode(), b"k", timestamp_ms=at_ms)

    def context(self, hour: int, *, run_type: str, conf: dict[str, str] | None = None) -> Context:
        instance = SimpleNamespace(dag_id="d", task_id="t", try_number=1, map_index=-1)
        self.extra.clear()
        dag_run = SimpleNamespace(
            run_id=f"{run_type}__{hour}",
            run_type=run_type,
            conf=conf,
            clear_number=0,
            data_interval_start=START + hour * HOUR,
            data_interval_end=START + (hour + 1) * HOUR,
        )
        events = Events(self.extra)
        return cast("Context", {"ti": instance, "dag_run": dag_run, "outlet_events": events})

    def operator(self, kind: Callable[..., Any], **more: Any) -> BaseOperator:
        given = {"settings": {"autostop.at": "interval_end"}, "backfill_outputs": OUTPUTS, **more}
        if kind is not FinishRunOperator:
            given["application"] = str(self.file)
        return cast("BaseOperator", kind(task_id="t", application_id="app", **given))

    def capture(self, context: Context, **more: Any) -> Any:
        return self.operator(CaptureStopOffsetsOperator, **more).execute(context)

    def process(self, captured: Any, context: Context, **more: Any) -> Any:
        """What Spark does after capture, and then finish."""
        settings = settings_of_run(
            RunIdentity.of(context),
            "app",
            {"autostop.at": "interval_end"},
            outputs=more.get("backfill_outputs", OUTPUTS),
            in_order=more.get("backfill_in_order", False),
        )
        application = Application(
            application_id=captured["application_id"],
            topology=with_outputs(load_topology(self.file), settings),
            on=self.kafka,
            clock=self.kafka.clock,
            settings=settings.to_dict(),
        )
        application.tasks(
            application.begin(captured["run_id"], interval_ms=RunIdentity.of(context).interval_ms)
        )
        finish = self.operator(FinishRunOperator, outlets=[TOTALS], **more)
        result = finish.execute(context)
        self.updated = list(finish.outlets)
        return result

    def values(self, topic: str) -> list[bytes | None]:
        return self.kafka.values(topic)


def _plan(loader: ApplicationLoader, application_id: str) -> TopologyPlan:
    assert loader.settings is not None
    return with_outputs(load_topology(loader.application), loader.settings).plan(application_id)


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], Scene]:
    def make(text: str) -> Scene:
        made = Scene(tmp_path, text)
        monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: made.kafka)
        load_here(monkeypatch, _plan)
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", "kafka://in-memory:9092")
        return made

    return make


def test_backfill_runs_go_side_by_side_and_beside_the_live_one(scene: Callable[[str], Scene]) -> None:
    made = scene(STATELESS)
    made.publish(("a", 0.5), ("b", 1.5), ("late", 0.9), ("c", 2.5))
    live = made.context(0, run_type="scheduled")
    past = [made.context(hour, run_type="backfill") for hour in (0, 1)]
    captured = [made.capture(context) for context in (past[1], live, past[0])]
    assert [found["finished"] for found in captured] == [False] * 3
    finished = [
        made.process(found, context)
        for found, context in zip(captured, (past[1], live, past[0]), strict=True)
    ]
    assert made.values("out") == [b"a"]
    assert made.values("out-again") == [b"b", b"a", b"late"]
    assert [run["records_skipped"] for run in finished] == [2, 0, 2]
    assert len({run["application_id"] for run in finished}) == 3
    again = made.capture(past[0])
    assert (again["finished"], again["records_in"]) == (True, 2), "a cleared run opens no second slice"


@pytest.mark.promise("backfills-update-no-live-asset")
@pytest.mark.parametrize(
    ("run_type", "outputs", "updated"),
    [("scheduled", OUTPUTS, True), ("backfill", OUTPUTS, False), ("backfill", {"out": "out"}, True)],
)
def test_asset_of_the_live_topics_is_updated_by_whoever_writes_them(
    scene: Callable[[str], Scene], run_type: str, outputs: dict[str, str], updated: bool
) -> None:
    made = scene(STATELESS)
    made.publish(("a", 0.5))
    context = made.context(0, run_type=run_type)
    captured = made.capture(context, backfill_outputs=outputs)

    made.process(captured, context, backfill_outputs=outputs)

    assert made.updated == ([TOTALS] if updated else [])
    assert made.extra.get("application_id") == (captured["application_id"] if updated else None)
    assert made.extra.get("backfill", False) == (updated and run_type == "backfill")


def test_asset_of_a_dag_for_backfills_is_updated_and_its_event_says_that_it_is_one(
    scene: Callable[[str], Scene],
) -> None:
    made = scene(STATEFUL)
    made.publish(("a", 0.5))
    context = made.context(0, run_type="backfill", conf={"backfill": "first"})

    made.process(made.capture(context, backfill_in_order=True), context, backfill_in_order=True)

    assert made.updated == [TOTALS]
    assert (made.extra["application_id"], made.extra["backfill"]) == ("app-backfill-first", True)


def test_finished_run_runs_again_under_another_name_of_the_backfill(scene: Callable[[str], Scene]) -> None:
    made = scene(STATELESS)
    made.publish(("a", 0.5))
    for conf in (None, {"backfill": "again"}, {"backfill": "again"}):
        context = made.context(0, run_type="backfill", conf=conf)
        found = made.capture(context)
        if not found["finished"]:
            made.process(found, context)
    assert made.values("out-again") == [b"a", b"a"]


@pytest.mark.promise("state-is-backfilled-apart")
@pytest.mark.remedy("intervals.refuse_backwards", "run_settings.refuse_state_side_by_side")
def test_stateful_topology_is_backfilled_in_order_and_only_so(scene: Callable[[str], Scene]) -> None:
    made = scene(STATEFUL)
    made.publish(("a", 0.5), ("b", 1.5), ("c", 0.6))
    with pytest.raises(AirflowFailException, match=r"keeps state \(joined\)") as caught:
        made.capture(made.context(0, run_type="backfill"))
    assert "backfill_dag" in str(caught.value)
    run = made.operator(RunTopologyOperator)
    with pytest.raises(AirflowFailException, match=r"keeps state \(joined\)"):
        run.execute(made.context(0, run_type="backfill"))
    with pytest.raises(AirflowSkipException):
        made.capture(made.context(0, run_type="scheduled"), backfill_in_order=True)
    for hour in (0, 1):
        context = made.context(hour, run_type="backfill", conf={"backfill": "first"})
        found = made.capture(context, backfill_in_order=True)
        assert found["application_id"] == "app-backfill-first"
        made.process(found, context, backfill_in_order=True)
    assert made.values("out-again") == [b"ac", b"acb"]
    other = made.context(-1, run_type="backfill", conf={"backfill": "first"})
    with pytest.raises(AirflowFailException, match="cannot come after that"):
        made.capture(other, backfill_in_order=True)
    other = made.context(-1, run_type="backfill", conf={"backfill": "second"})
    assert made.capture(other, backfill_in_order=True)["application_id"] == "app-backfill-second"


class Driver:
    """Stands in for Spark: a driver that begins, processes and finishes the run it is told of.

    :ivar specs: what it was told.
    """

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        self._scene = scene
        self.specs: list[RunSpec] = []
        monkeypatch.setattr(KafkaHook, "client_config", lambda _: {})
        monkeypatch.setattr(RunTopologyOperator, "_submit", lambda _, __, spec, ___: self.drive(spec))

    def drive(self, spec: RunSpec) -> None:
        self.specs.append(spec)
        settings = ApplicationSettings.parse(spec.application_id, spec.settings)
        Application(
            application_id=spec.application_id,
            topology=with_outputs(load_topology(self._scene.file), settings),
            on=self._scene.kafka,
            clock=self._scene.kafka.clock,
            settings=spec.settings,
        ).run(spec.run_id, spec.order, spec.interval_ms)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], Driver]:
    return lambda scene: Driver(scene, monkeypatch)


def _again(made: Scene, hour: int, **more: Any) -> BaseOperator:
    """An operator for one hour, given as text, without and with a zone."""
    start, end = START + hour * HOUR, START + (hour + 1) * HOUR
    return made.operator(
        BackfillOperator,
        **{"interval_start": start.replace(tzinfo=None).isoformat(), "interval_end": end.isoformat(), **more},
    )


def test_one_interval_is_processed_once_more_by_one_task(
    scene: Callable[[str], Scene], driver: Callable[[Scene], Driver]
) -> None:
    made = scene(STATELESS)
    told = driver(made)
    made.publish(("a", 0.5), ("b", 1.5), ("late b", 1.2), ("c", 2.5))
    context = made.context(9, run_type="manual")
    operator = _again(made, 1, outlets=[TOTALS])

    first: Any = operator.execute(context)

    assert made.values("out-again") == [b"b", b"late b"]
    assert made.values("out") == []
    assert (first["finished"], first["records_skipped"]) == (True, 1)
    assert first["run_id"] == "manual__9__2026-01-01T01:00:00+00:00__2026-01-01T02:00:00+00:00"
    assert re.fullmatch("app-backfill-[0-9a-f]{12}", first["application_id"])
    assert operator.outlets == [TOTALS]
    assert (made.extra["run_id"], made.extra["backfill"]) == (first["run_id"], True)
    (spec,) = told.specs
    assert spec.finish

    again: Any = _again(made, 1).execute(context)
    assert again == {**first, "already_finished": True}, "a task that is cleared finds it finished"
    other_hour: Any = _again(made, 2).execute(context)
    other_dag_run: Any = _again(made, 1).execute(made.context(8, run_type="manual"))
    assert made.values("out-again") == [b"b", b"late b", b"c", b"b", b"late b"]
    assert len({run["application_id"] for run in (first, other_hour, other_dag_run)}) == 3


def test_rows_of_tables_are_replaced_when_the_operator_says_so(
    scene: Callable[[str], Scene], driver: Callable[[Scene], Driver]
) -> None:
    made = scene(STATELESS)
    told = driver(made)
    made.publish(("a", 0.5))
    for replace, setting in (("interval", "interval"), ("", None)):
        _again(made, 0, replace=replace, backfill_name=f"b{replace}").execute(
            made.context(9, run_type="manual")
        )
        assert told.specs[-1].settings.get("backfill.replace") == setting
    with pytest.raises(AirflowFailException, match=r"backfill\.replace"):
        _again(made, 0, replace="day").execute(made.context(9, run_type="manual"))
    assert len(told.specs) == 2


def test_interval_of_the_dag_run_is_taken_when_none_is_given(
    scene: Callable[[str], Scene], driver: Callable[[Scene], Driver]
) -> None:
    made = scene(STATELESS)
    driver(made)
    made.publish(("a", 0.5), ("b", 1.5))
    context = made.context(1, run_type="scheduled")

    result: Any = made.operator(BackfillOperator).execute(context)

    assert result["run_id"] == "scheduled__1"
    assert made.values("out-again") == [b"b"]


@pytest.mark.remedy("run_settings.backfill_id", "run_settings.refuse_state_side_by_side")
def test_intervals_of_one_name_share_their_state_and_come_in_order(
    scene: Callable[[str], Scene], driver: Callable[[Scene], Driver]
) -> None:
    made = scene(STATEFUL)
    driver(made)
    made.publish(("a", 0.5), ("b", 1.5))
    context = made.context(9, run_type="manual")
    named: dict[str, Any] = {"backfill_in_order": True, "backfill_name": "january"}
    with pytest.raises(AirflowFailException, match=r"keeps state \(joined\)(?s:.)*backfill_in_order"):
        _again(made, 0).execute(context)
    with pytest.raises(AirflowFailException, match=r"has no name(?s:.)*backfill_name"):
        _again(made, 0, backfill_in_order=True).execute(context)

    for hour in (0, 1):
        result: Any = _again(made, hour, **named).execute(context)
        assert result["application_id"] == "app-backfill-january"

    assert made.values("out-again") == [b"a", b"ab"]


@pytest.mark.remedy("backfill._in_utc")
def test_interval_is_processed_when_both_of_its_ends_are_given(
    scene: Callable[[str], Scene], driver: Callable[[Scene], Driver]
) -> None:
    made = scene(STATELESS)
    driver(made)
    made.publish(("a", 0.5), ("b", 1.5))
    with pytest.raises(AirflowFailException, match="give both ends"):
        _again(made, 1, interval_end=None).execute(made.context(9, run_type="manual"))
    _again(made, 1).execute(made.context(9, run_type="manual"))
    assert made.values("out-again") == [b"b"]


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ({"interval_end": None}, "interval_end is left out"),
        ({"interval_start": "yesterday"}, "interval_start='yesterday' is not a time"),
        ({"interval_start": START + 2 * HOUR}, "is empty"),
    ],
)
def test_task_fails_for_good_before_spark_is_started_when_its_interval_is_none(
    scene: Callable[[str], Scene], driver: Callable[[Scene], Driver], interval: dict[str, Any], said: str
) -> None:
    made = scene(STATELESS)
    told = driver(made)
    with pytest.raises(AirflowFailException, match=said):
        _again(made, 1, **interval).execute(made.context(9, run_type="manual"))
    assert told.specs == []


@pytest.mark.parametrize("given", [{"finish": False}, {"subtopology": 0}])
def test_backfill_of_an_interval_is_always_a_whole_run(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"takes no {min(given)}"):
        BackfillOperator(
            task_id="t", application_id="app", application="a.py", backfill_outputs=OUTPUTS, **given
        )


@pytest.mark.promise("live-actions-are-refused-in-backfills")
@pytest.mark.parametrize(
    "operator",
    [
        ResetApplicationOperator(task_id="t", application_id="app", input_topics="in"),
        ReplayDeadLettersOperator(task_id="t", application_id="app"),
        ExpandPartitionsOperator(task_id="t", application_id="app", topic="in", partitions=4),
        ExpandProcessorsOperator(task_id="t", application_id="app", processors=4),
    ],
)
@pytest.mark.remedy("run_settings.RunIdentity.refuse_backfill")
def test_what_acts_on_the_live_application_is_refused_in_a_backfill(
    scene: Callable[[str], Scene], operator: BaseOperator
) -> None:
    made = scene(STATELESS)
    context = made.context(0, run_type="backfill")
    with pytest.raises(AirflowFailException, match=said("must not touch the live application")):
        operator.execute(context)
    RunIdentity.of(made.context(0, run_type="manual")).refuse_backfill("acts")
    captured = made.capture(context)
    made.process(captured, context)
    reset = ResetApplicationOperator(
        task_id="t", application_id=captured["application_id"], input_topics="in"
    )
    reset.execute(made.context(1, run_type="manual"))


@pytest.mark.promise("empty-intervals-fail")
def test_interval_that_is_empty_fails_for_good_and_says_which_timetable_helps(
    scene: Callable[[str], Scene],
) -> None:
    made = scene(STATELESS)
    context = made.context(0, run_type="scheduled")
    context["dag_run"].data_interval_end = context["dag_run"].data_interval_start
    with pytest.raises(AirflowFailException, match=said(r"is empty(?s:.)*CronDataIntervalTimetable")):
        made.capture(context)


@pytest.mark.promise("unfinished-runs-come-first")
def test_run_operator_says_that_an_unfinished_run_comes_first(
    scene: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = scene(STATELESS)
    made.publish(("a", 0.5), ("b", 1.5))
    made.capture(made.context(0, run_type="scheduled"))
    run = made.operator(RunTopologyOperator)
    monkeypatch.setattr(KafkaHook, "client_config", lambda self: {})
    submitted: list[Any] = []
    monkeypatch.setattr(RunTopologyOperator, "_submit", lambda self, _, spec, __: submitted.append(spec))
    monkeypatch.setattr(RunTopologyOperator, "_result", lambda *_: {})
    run.execute(made.context(1, run_type="scheduled"))
    assert (
        caplog.messages[-1] == "Run scheduled__0 is unfinished: it is finished before run scheduled__1 begins"
    )
    (spec,) = submitted
    assert spec.interval_ms == RunIdentity.of(made.context(1, run_type="scheduled")).interval_ms


@dataclass(frozen=True)
class CronDay:
    """The backfill runs of a DAG whose schedule is in a zone with summer time."""

    scene: Scene
    begins: datetime

    def publish(self, *values: str) -> None:
        """Write a record for each quarter of an hour."""
        before = (self.begins - START) / HOUR
        self.scene.kafka.clock.sleep(before * 3_600)
        self.scene.publish(*((value, before + 0.25 * number + 0.1) for number, value in enumerate(values)))

    def backfill(self, cron: str, zone: str, *, name: str = "") -> None:
        """Process the intervals that begin within two hours."""
        timetable = cron_intervals(cron, zone)
        interval = (self.begins - timedelta(minutes=30), self.begins)
        while True:
            found = next_interval(timetable, *interval)
            assert found is not None
            interval = found
            if interval[0] >= self.begins + 2 * HOUR:
                return
            context = self.scene.context(0, run_type="backfill", conf={"backfill": name} if name else None)
            dag_run = context["dag_run"]
            dag_run.run_id, dag_run.data_interval_start, dag_run.data_interval_end = (
                f"backfill__{interval[1].isoformat()}",
                *interval,
            )
            self.scene.process(self.scene.capture(context, dag=DAG("d", schedule=timetable)), context)


def warned_of_intervals(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = (" ".join(text.split()) for text in caplog.messages)
    return [text for text in texts if text.startswith("the records dated in ")]


@pytest.mark.promise("intervals-that-do-not-meet-are-said")
@pytest.mark.remedy("run_settings.warn_of_next_interval: give a")
def test_backfill_says_which_records_are_in_none_of_the_intervals(
    scene: Callable[[str], Scene], driver: Callable[[Scene], Driver], caplog: pytest.LogCaptureFixture
) -> None:
    made = scene(STATELESS)
    driver(made)
    day = CronDay(made, datetime(2026, 3, 29, tzinfo=UTC))
    day.publish(*"abcdefgh")

    day.backfill("*/30 1-4 * * *", "Europe/Berlin")

    assert made.values("out-again") == [value.encode() for value in "abcdgh"]
    (warning,) = warned_of_intervals(caplog)
    assert warning.startswith(
        "the records dated in [2026-03-29T01:00:00+00:00, 2026-03-29T01:30:00+00:00) are between "
    )
    given = dict(re.findall(r'(interval_\w+)="([^"]+)"', warning))
    cast("Any", made.operator(BackfillOperator, **given)).execute(made.context(9, run_type="manual"))
    assert made.values("out-again")[-2:] == [b"e", b"f"]


@pytest.mark.promise("intervals-that-do-not-meet-are-said")
@pytest.mark.remedy("run_settings.warn_of_next_interval: give its")
def test_backfill_says_which_records_are_in_two_of_the_intervals(
    scene: Callable[[str], Scene], caplog: pytest.LogCaptureFixture
) -> None:
    made = scene(STATELESS)
    day = CronDay(made, datetime(2026, 4, 4, 13, 30, tzinfo=UTC))
    day.publish(*"abcdefghij")

    day.backfill("30 * * * *", "Australia/Lord_Howe")

    assert made.values("out-again") == [value.encode() for value in "abcdefghghij"]
    (warning,) = warned_of_intervals(caplog)
    assert warning.startswith(
        "the records dated in [2026-04-04T15:00:00+00:00, 2026-04-04T15:30:00+00:00) are in this "
    )
    assert 'timezone="UTC"' in warning
    day.backfill("30 * * * *", "UTC", name="anew")
    assert made.values("out-again")[12:] == [value.encode() for value in "abcdefgh"]
    assert warned_of_intervals(caplog) == [warning]


@pytest.mark.promise("intervals-that-do-not-meet-are-said")
def test_nothing_is_said_of_an_interval_that_the_task_was_given(
    scene: Callable[[str], Scene], driver: Callable[[Scene], Driver], caplog: pytest.LogCaptureFixture
) -> None:
    made = scene(STATELESS)
    driver(made)
    dag = DAG("d", schedule=cron_intervals("0 * * * *", "UTC"))
    given = {"interval_start": START.isoformat(), "interval_end": (START + HOUR / 2).isoformat()}

    cast("Any", made.operator(BackfillOperator, dag=dag, **given)).execute(
        made.context(9, run_type="scheduled")
    )

    assert warned_of_intervals(caplog) == []


@pytest.mark.parametrize(("fold", "run_id"), [(0, "T00:00:00+00:00"), (1, "T01:00:00+00:00")])
def test_hour_that_comes_twice_is_the_one_that_a_time_of_its_zone_says(
    scene: Callable[[str], Scene], driver: Callable[[Scene], Driver], fold: int, run_id: str
) -> None:
    made = scene(STATELESS)
    driver(made)
    starts = datetime(2026, 10, 25, 2, fold=fold, tzinfo=ZoneInfo("Europe/Berlin"))
    ends = starts.replace(minute=59)
    operator: Any = made.operator(BackfillOperator, interval_start=starts, interval_end=ends)

    found = operator.execute(made.context(9, run_type="manual"))

    assert run_id in found["run_id"]


def test_tasks_that_write_other_topics_for_one_interval_are_two_runs(scene: Callable[[str], Scene]) -> None:
    made = scene(STATELESS)
    made.kafka.create_topic("out-2")
    made.publish(("a", 0.5))
    context = made.context(0, run_type="backfill")
    other = {"backfill_outputs": {"out": "out-2"}}
    first = made.process(made.capture(context), context)
    second = made.process(made.capture(context, **other), context, **other)
    assert (made.values("out-again"), made.values("out-2")) == ([b"a"], [b"a"])
    assert first["application_id"] != second["application_id"]
