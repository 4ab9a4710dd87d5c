"""The operators as Airflow's scheduler and templates see them."""

from __future__ import annotations

import inspect
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, BaseOperator, Context

from airflow_kstreams import operators
from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.ledger import ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.logs.log_read import read_log
from airflow_kstreams.batch.protocol.slice import metadata
from airflow_kstreams.batch.protocol.slice.slice import LedgerSeen, RunPlan, Slice
from airflow_kstreams.batch.run.coordinator import BeginResult, Coordinator
from airflow_kstreams.hooks.airflow_versions import AirflowFailException
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.launch.run_spec import RunSpec
from airflow_kstreams.operators.backfill import BackfillOperator
from airflow_kstreams.operators.expand import ExpandPartitionsOperator, ExpandProcessorsOperator
from airflow_kstreams.operators.incremental_batch import (
    CaptureStopOffsetsOperator,
    FinishRunOperator,
    incremental_batch,
)
from airflow_kstreams.operators.replay_dead_letters import ReplayDeadLettersOperator
from airflow_kstreams.operators.reset_application import ResetApplicationOperator
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.operators.work.application_work import ApplicationLoader
from airflow_kstreams.operators.work.run_settings import RunIdentity, batch_settings
from airflow_kstreams.sensors.run_finished import RunFinishedSensor
from airflow_kstreams.streams.errors import ConfigError, RunError
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.windows import TumblingWindow
from airflow_kstreams.testing import InMemoryKafka
from tests.support.airflow.loaded_here import load_here
from tests.support.airflow.serialized_dags import DagSerialization
from tests.support.airflow.task_log import said, unbroken
from tests.support.kafka.reset_scene import APP, ResetScene, counting
from tests.support.kafka.waiting import WaitingClock
from tests.unit.batch.replay import test_late_letters as late_letters


def _operators(**arguments: Any) -> list[BaseOperator]:
    common = {"application_id": "app", **arguments}
    return [
        CaptureStopOffsetsOperator(task_id="capture", application="app.py", **common),
        RunTopologyOperator(task_id="run", application="app.py", **common),
        FinishRunOperator(task_id="finish", **common),
        ResetApplicationOperator(task_id="reset", **common),
        ReplayDeadLettersOperator(task_id="replay", **common),
        ExpandPartitionsOperator(task_id="grow", topic="in", partitions=4, **common),
        ExpandProcessorsOperator(task_id="more", processors=4, **common),
        BackfillOperator(
            task_id="again", application="app.py", backfill_outputs={"out": "out-again"}, **common
        ),
    ]


@pytest.mark.parametrize("index", range(8))
def test_user_facing_fields_are_templates_when_rendered(index: int) -> None:
    with DAG(dag_id="d", schedule=None):
        operator = _operators(
            application_id="{{ app }}",
            kafka_conn_id="{{ conn }}",
            settings={"commit.interval.ms": "{{ ms }}"},
        )[index]

    operator.render_template_fields(Context(app="mine", conn="k", ms=7))  # type: ignore[typeddict-unknown-key]

    assert operator.application_id == "mine"  # type: ignore[attr-defined]
    assert operator.kafka_conn_id == "k"  # type: ignore[attr-defined]
    assert operator.settings == {"commit.interval.ms": "7"}  # type: ignore[attr-defined]


@pytest.mark.remedy("run_settings.RunIdentity.of")
@pytest.mark.parametrize("index", range(8))
def test_operator_fails_for_good_and_says_how_to_run_it_when_there_is_no_dag_run(index: int) -> None:
    with pytest.raises(AirflowFailException, match=r"without a dag run"):
        _operators()[index].execute(Context())
    instance = SimpleNamespace(dag_id="d", task_id="t", try_number=1, map_index=-1)
    dag_run = SimpleNamespace(run_id="r", data_interval_start=None, data_interval_end=None)
    assert RunIdentity.of(cast("Context", {"ti": instance, "dag_run": dag_run})).run_id == "r"


@pytest.mark.promise("operators-run-batches")
@pytest.mark.remedy("run_settings.batch_settings: leave")
@pytest.mark.parametrize("unset", [None, ""])
def test_continuous_mode_is_refused_when_an_operator_is_asked_for_it(unset: str | None) -> None:
    with pytest.raises(ConfigError, match="cannot run continuously") as caught:
        batch_settings("app", {"autostop.at": unset})
    assert "outside Airflow" in caught.value.fix
    for told in ({}, {"autostop.at": "eol"}):
        assert not batch_settings("app", told).continuous


@pytest.mark.promise("operators-run-batches")
@pytest.mark.parametrize("given", [None, {}, {"autostop.at": "eol"}])
def test_operators_run_batches_when_nothing_is_said(given: dict[str, str] | None) -> None:
    settings = batch_settings("app", given)
    assert not settings.continuous
    assert settings.to_dict() == {"autostop.at": "eol"}, "the driver is told"


def test_run_operator_keeps_the_providers_templates_when_it_adds_its_own() -> None:
    own = set(RunTopologyOperator.template_fields)

    assert own >= set(SparkSubmitOperator.template_fields) - {"application_args"}
    assert own >= {"application_id", "settings", "kafka_conn_id"}


def test_run_operator_refuses_application_args_when_given() -> None:
    with pytest.raises(TypeError, match="application_args"):
        RunTopologyOperator(task_id="run", application_id="a", application="a.py", application_args=["x"])


def test_run_operator_takes_the_providers_parameters_when_given() -> None:
    operator = RunTopologyOperator(
        task_id="run", application_id="app", application="a.py", conf={"spark.x": "y"}, executor_memory="3g"
    )

    assert operator.name == "app"
    assert operator.conf == {"spark.x": "y"}
    assert operator._executor_memory == "3g"


@pytest.mark.promise("drivers-list-holds")
def test_driver_is_told_what_the_deployment_allows_when_a_dag_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW__KSTREAMS__ALLOWED_CLIENT_SETTINGS", "ssl.providers")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    operator = RunTopologyOperator(
        task_id="run",
        application_id="app",
        application="a.py",
        env_vars={"KSTREAMS_ALLOWED_CLIENT_SETTINGS": "oauth_cb", "OTHER": "kept"},
    )
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(
        SparkSubmitOperator, "execute", lambda self, _: seen.append(dict(self.env_vars or {}))
    )

    operator._submit(Context(), RunSpec(application_id="app", run_id="r"), {"bootstrap.servers": "b:1"})

    assert seen[0]["KSTREAMS_ALLOWED_CLIENT_SETTINGS"] == "ssl.providers"
    assert seen[0]["OTHER"] == "kept"


def test_spark_keeps_the_file_of_client_settings_when_the_worker_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It inherits the file's lock, and its driver is told to remove the file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    operator = RunTopologyOperator(task_id="run", application_id="app", application="a.py")
    files: list[str] = []

    def start(*_: Any, pass_fds: Sequence[int], env: dict[str, str], **more: Any) -> Any:
        file = Path(env["KSTREAMS_KAFKA_CONFIG_FILE"])
        assert env["KSTREAMS_KAFKA_CONFIG_FILE_IS_TEMPORARY"] == "1"
        assert [os.fstat(descriptor).st_ino for descriptor in pass_fds] == [file.stat().st_ino]
        files.append(file.read_text())
        raise OSError("it is not started here")

    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.subprocess.Popen", start)
    with pytest.raises(OSError, match="not started here"):
        operator._submit(Context(), RunSpec(application_id="app", run_id="r"), {"bootstrap.servers": "b:1"})

    assert files == ['{"bootstrap.servers": "b:1"}']
    assert list(tmp_path.iterdir()) == []


def test_file_of_ones_own_is_left_alone_when_it_is_named_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    operator = RunTopologyOperator(
        task_id="run",
        application_id="app",
        application="a.py",
        env_vars={"KSTREAMS_KAFKA_CONFIG_FILE": "/etc/kstreams/kafka.json"},
    )
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(
        SparkSubmitOperator, "execute", lambda self, _: seen.append(dict(self.env_vars or {}))
    )

    operator._submit(Context(), RunSpec(application_id="app", run_id="r"), {"bootstrap.servers": "b:1"})

    assert seen[0]["KSTREAMS_KAFKA_CONFIG_FILE"] == "/etc/kstreams/kafka.json"
    assert "KSTREAMS_KAFKA_CONFIG_FILE_IS_TEMPORARY" not in seen[0]


def _dag() -> DAG:
    with DAG(dag_id="d", schedule=None, default_args={"retries": 2}) as dag:
        batch = incremental_batch(
            group_id="batch",
            application_id="app",
            application="app.py",
            settings={"processing.guarantee": "exactly_once"},
            conf={"spark.x": "y"},
        )
        batch >> RunFinishedSensor(task_id="wait", application_id="app", deferrable=True)
    return dag


def test_task_group_lays_out_capture_run_finish_when_used_in_a_dag() -> None:
    tasks = _dag().task_dict

    assert {name: sorted(task.downstream_task_ids) for name, task in tasks.items()} == {
        "batch.capture_stop_offsets": ["batch.run_topology"],
        "batch.run_topology": ["batch.finish_run"],
        "batch.finish_run": ["wait"],
        "wait": [],
    }
    assert {task.retries for task in tasks.values()} == {2}
    assert tasks["batch.run_topology"].conf == {"spark.x": "y"}  # type: ignore[union-attr]


def test_dag_is_the_same_when_airflow_serialized_it() -> None:
    serialized = DagSerialization.serialize_dag(_dag())
    again = DagSerialization.deserialize_dag(serialized)

    assert sorted(again.task_dict) == sorted(_dag().task_dict)
    settings = getattr(again.task_dict["batch.run_topology"], "settings", None)
    assert settings == {"processing.guarantee": "exactly_once"}


@pytest.mark.parametrize("index", range(8))
def test_every_parameter_is_documented(index: int) -> None:
    operator = type(_operators()[index])
    text = inspect.getdoc(operator) or ""

    parameters = set(inspect.signature(operator.__init__).parameters) - {"self"}

    assert {name for name in parameters if f":param {name}:" not in text} == set()
    assert ":return:" in text


def _parameters(index: int) -> dict[str, str]:
    """The parameters of an operator's own documentation, with what it says of them."""
    text = inspect.getdoc(type(_operators()[index])) or ""
    return dict(re.findall(r":param (\w+):(.*?)(?=\n:|\n\n|\Z)", text, re.DOTALL))


@pytest.mark.parametrize("index", range(8))
def test_parameters_are_templates_when_their_documentation_says_so_and_only_then(index: int) -> None:
    operator = _operators()[index]
    documented = _parameters(index)
    said = {name for name, text in documented.items() if "(templated)" in text}

    assert len(said) >= 3
    assert not {name for name in operator.template_fields if re.search(r"password|secret|auth", name)}
    assert said == set(operator.template_fields) & documented.keys()


@pytest.mark.parametrize("index", range(8))
def test_every_template_is_rendered_whatever_it_is_called(index: int) -> None:
    kind = type(_operators()[index])
    names = [name for name in _parameters(index) if name in kind.template_fields]
    given: dict[str, Any] = {"application": "app.py", **{name: f"{{{{ {name} }}}}" for name in names}}
    taken = {name: value for name, value in given.items() if name in (*_parameters(index), "application")}
    if kind not in (CaptureStopOffsetsOperator, RunTopologyOperator, BackfillOperator):
        taken.pop("application")
    with DAG(dag_id="d", schedule=None):
        operator = kind(task_id="t", **taken)

    operator.render_template_fields(cast("Context", {name: f"rendered {name}" for name in names}))

    assert {name: getattr(operator, name) for name in names} == {name: f"rendered {name}" for name in names}


def _parts(
    application: str, per_subtopology: bool | list[int], application_id: str = "app"
) -> dict[str, Any]:
    with DAG(dag_id="d", schedule=None) as dag:
        incremental_batch(
            group_id="batch",
            application_id=application_id,
            application=application,
            per_subtopology=per_subtopology,
        )
    return dag.task_dict


def test_application_file_is_not_touched_when_the_subtopologies_are_given(tmp_path: Path) -> None:
    tasks = _parts(str(tmp_path / "nowhere.py"), [0, 1])

    assert [name for name in tasks if "subtopology" in name] == [
        "batch.run_subtopology_0",
        "batch.run_subtopology_1",
    ]


@pytest.mark.remedy("incremental_batch._parts")
def test_parsing_says_what_to_do_when_the_application_file_cannot_be_known() -> None:
    with pytest.raises(ConfigError, match="is a template") as caught:
        _parts("{{ params.file }}", True)
    assert "per_subtopology=[0, 1]" in caught.value.fix
    assert {"batch.run_subtopology_0", "batch.run_subtopology_1"} <= {*_parts("{{ params.file }}", [0, 1])}


@pytest.mark.parametrize(
    ("given", "found"), [('{"commit.interval.ms": 7}', 7), ({"commit.interval.ms": "7"}, 7), ("", 5_000)]
)
def test_settings_may_be_the_text_that_a_template_rendered(given: Any, found: int) -> None:
    assert batch_settings("app", given).commit_interval_ms == found


@pytest.mark.parametrize("given", ["{'a': 1}", "[1]", "7", "None", 7])
def test_parameter_that_is_no_object_is_refused_for_good_and_says_how_to_template_it(given: Any) -> None:
    with pytest.raises(ConfigError, match="settings is neither an object") as caught:
        batch_settings("app", given)
    assert "tojson" in caught.value.fix
    assert not caught.value.is_retriable


def test_default_args_reach_what_the_task_group_does_not_take_itself() -> None:
    defaults = {"env_vars": {"A": "b"}, "yarn_track_via_rm_api": True, "py_files": "p.zip", "retries": 3}
    with DAG("d", schedule=None, default_args=defaults) as dag:
        incremental_batch(application_id="app", application="app.py")
    run: Any = dag.get_task("incremental_batch.run_topology")

    assert (run.env_vars, run.py_files, run.retries) == ({"A": "b"}, "p.zip", 3)
    assert run._yarn_track_via_rm_api


class Scenes:
    """Operators on an in-memory Kafka, as Airflow executes them."""

    def __init__(self, scene: ResetScene) -> None:
        self.scene = scene

    def execute(self, operator: BaseOperator, *, try_number: int = 1, clear_number: int = 0) -> Any:
        instance = SimpleNamespace(dag_id="d", task_id=operator.task_id, try_number=try_number, map_index=-1)
        dag_run = SimpleNamespace(
            run_id="r", clear_number=clear_number, data_interval_start=None, data_interval_end=None
        )
        return operator.execute(cast("Context", {"ti": instance, "dag_run": dag_run}))


@pytest.fixture
def scenes(monkeypatch: pytest.MonkeyPatch) -> Scenes:
    scene = ResetScene(partitions=1)
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: scene.kafka)
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: scene.clock.now_ms())
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", "kafka://in-memory:9092")
    return Scenes(scene)


@pytest.mark.promise("resets-shift-once")
def test_offsets_are_shifted_once_however_often_the_task_is_tried(scenes: Scenes) -> None:
    scene = scenes.scene
    scene.send("a", "b", "c")
    scene.run("r1")

    def reset() -> BaseOperator:
        return ResetApplicationOperator(
            task_id="reset",
            application_id=APP,
            input_topics="in",
            intermediate_topics=["mid"],
            offsets={"shift-by": "-1"},
        )

    first = scenes.execute(reset())
    again = scenes.execute(reset(), try_number=2)

    assert scene.offsets("in") == [2]
    assert first["partitions_per_topic"] == {"in": 1, "mid": 1}
    assert (first["topics_deleted"], first["runs_taken_back"], first["done_before"]) == (2, 1, False)
    assert again["done_before"]
    scenes.execute(reset(), clear_number=1)
    assert scene.offsets("in") == [1]


def test_reset_is_refused_for_good_or_for_now_as_the_command_does(scenes: Scenes) -> None:
    scene = scenes.scene
    scene.send("a")
    scene.begin("r1")
    reset = ResetApplicationOperator(task_id="reset", application_id=APP, input_topics=["in"])
    with pytest.raises(RunError, match="is unfinished"):
        scenes.execute(reset)
    reset = ResetApplicationOperator(
        task_id="reset", application_id=APP, input_topics="in, ", delete_stop_offsets=True
    )
    assert scenes.execute(reset)["dropped_run"] == "r1"
    wrong = ResetApplicationOperator(task_id="reset", application_id=APP, input_topics="nowhere")
    with pytest.raises(AirflowFailException, match="nowhere"):
        scenes.execute(wrong)


@pytest.mark.promise("topics-grow-once-by-the-operator")
def test_topic_grows_once_however_often_the_task_is_tried(scenes: Scenes) -> None:
    scene = scenes.scene
    scene.send("a")
    scene.run("r1")
    with DAG(dag_id="d", schedule=None):
        grow = ExpandPartitionsOperator(
            task_id="grow", application_id=APP, topic="{{ topic }}", partitions="{{ count }}"
        )
    grow.render_template_fields(Context(topic="in", count=4))  # type: ignore[typeddict-unknown-key]

    first = scenes.execute(grow)
    again = scenes.execute(grow, try_number=2)

    assert len(scene.kafka.partitions("in")) == 4
    assert first == {
        "application_id": APP,
        "topic": "in",
        "partitions_before": 1,
        "partitions": 4,
        "kinds": [],
        "tasks": 4,
        "would_wait": 0,
    }
    assert again == {**first, "partitions_before": 4}
    scenes.execute(grow, clear_number=1)
    assert len(scene.kafka.partitions("in")) == 4
    fewer = ExpandPartitionsOperator(task_id="grow", application_id=APP, topic="in", partitions=2)
    with pytest.raises(AirflowFailException, match="a topic never loses any"):
        scenes.execute(fewer)
    internal = ExpandPartitionsOperator(task_id="grow", application_id=APP, topic=f"{APP}-runs", partitions=2)
    with pytest.raises(AirflowFailException, match="is an internal one"):
        scenes.execute(internal)


def test_letters_are_back_once_however_often_the_task_is_tried(scenes: Scenes) -> None:
    kafka = scenes.scene.kafka
    kafka.create_topic("app-dead-letter")
    headers: Headers = [("__streams.errors.topic", b"in"), ("__streams.errors.partition", b"0")]

    def letter(value: bytes) -> None:
        kafka.append("app-dead-letter", value, b"k", headers=headers)

    letter(b"a")
    replay = ReplayDeadLettersOperator(task_id="replay", application_id=APP)
    first = scenes.execute(replay)
    letter(b"b")

    assert scenes.execute(replay, try_number=2) == first
    assert kafka.values("in") == [b"a"]
    assert (first["records"], first["records_per_topic"]) == (1, {"in": 1})
    assert scenes.execute(replay, clear_number=1)["records"] == 1
    assert kafka.values("in") == [b"a", b"b"]


def test_task_brings_back_the_letters_that_fit_up_to_its_limit_and_the_rest_stays(scenes: Scenes) -> None:
    kafka = scenes.scene.kafka
    kafka.create_topic("app-dead-letter")
    headers: Headers = [("__streams.errors.topic", b"in"), ("__streams.errors.partition", b"0")]
    for value in (b'{"n": 1}', b'{"n": 2}', b'{"n": 1}', b'{"n": 1}'):
        kafka.append("app-dead-letter", value, b"k", headers=headers)
    # Both are templates, so they may come as text.
    given: list[Any] = [({"value.n": 1}, 2), ('{"value.n": "1", "topic": "in"}', "2")]
    for number, (where, limit) in enumerate(given):
        replay = ReplayDeadLettersOperator(
            task_id=f"replay{number}", application_id=APP, where=where, limit=limit
        )
        done = scenes.execute(replay)
        assert (done["records"], done["limit_reached"]) == [(2, True), (1, False)][number]
        assert scenes.execute(replay, try_number=2) == done

    assert done["unselected"] == 1
    assert kafka.values("in") == [b'{"n": 1}'] * 3
    rest = ReplayDeadLettersOperator(task_id="rest", application_id=APP)
    assert scenes.execute(rest)["records"] == 1
    nothing = ReplayDeadLettersOperator(task_id="none", application_id=APP, where={"node": "x"})
    assert scenes.execute(nothing)["records"] == 0, "a schedule may find nothing"


@pytest.mark.promise("late-letters-are-counted")
def test_task_says_how_many_records_come_back_too_late(
    scenes: Scenes, caplog: pytest.LogCaptureFixture
) -> None:
    scene = late_letters.Scene(late_letters.Code(late_letters.counted(TumblingWindow(size_ms=100))))
    scene.send("in", [1_000_000] * 3, late_letters.BAD)
    scene.send("in", [100_000_000])
    scene.run()
    scenes.scene.kafka = scene.kafka

    done = scenes.execute(ReplayDeadLettersOperator(task_id="replay", application_id="app"))

    assert (done["records"], done["late_per_store"], done["late_unknown"]) == (3, {"x": 3}, 0)
    assert "3 records came back after all their windows of 'x' had closed" in caplog.text


def test_letters_whose_marks_are_lost_come_back_when_the_operator_accepts_that(scenes: Scenes) -> None:
    kafka = scenes.scene.kafka
    kafka.create_topic("app-dead-letter")
    headers: Headers = [("__streams.errors.topic", b"in"), ("__streams.errors.partition", b"0")]
    for value in (b'{"n": 1}', b'{"n": 2}'):
        kafka.append("app-dead-letter", value, b"k", headers=headers)
    two = {"value.n": 2}
    scenes.execute(ReplayDeadLettersOperator(task_id="first", application_id=APP, where=two))
    kafka.admin().delete_topics(["app-dead-letter-replays"])

    replay = ReplayDeadLettersOperator(task_id="replay", application_id=APP)
    with pytest.raises(AirflowFailException, match="accept_repeats=True to ReplayDeadLettersOperator"):
        scenes.execute(replay)
    accepting = ReplayDeadLettersOperator(task_id="again", application_id=APP, accept_repeats=True)
    assert scenes.execute(accepting)["records"] == 2
    assert kafka.values("in") == [b'{"n": 2}', b'{"n": 1}', b'{"n": 2}']


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"where": {"airline": "UA"}}, "no field 'airline'"),
        ({"where": "node=x"}, "where is neither an object"),
        ({"limit": "some"}, "whole number of 1 or more"),
    ],
)
def test_task_fails_without_retry_when_it_is_not_clear_which_letters_are_meant(
    scenes: Scenes, arguments: dict[str, Any], said: str
) -> None:
    replay = ReplayDeadLettersOperator(task_id="replay", application_id=APP, **arguments)
    with pytest.raises(AirflowFailException, match=said):
        scenes.execute(replay)


def _run_operator(subtopology: int | str | None, **more: Any) -> BaseOperator:
    return RunTopologyOperator(
        task_id="run",
        application_id=APP,
        application="nowhere.py",
        spark_conn_id="undefined",
        subtopology=subtopology,
        **more,
    )


#: What an operator says that would start Spark.
SPARK_IS_STARTED = "'undefined' is not defined"


def test_spark_is_not_started_when_the_subtopology_is_at_its_stop_offsets(scenes: Scenes) -> None:
    scene = scenes.scene
    scene.send("a", "b")
    scene.tasks(scene.begin("r"), [0])

    result = scenes.execute(_run_operator("0"))

    assert (result["finished"], result["records_in"], result["records_out"]) == (False, 2, 2)
    with pytest.raises(AirflowFailException, match=SPARK_IS_STARTED):
        scenes.execute(_run_operator(1))
    with pytest.raises(AirflowFailException, match="no subtopology 9"):
        scenes.execute(_run_operator(9))


@pytest.mark.parametrize("subtopology", [0, None])
def test_spark_is_started_to_relieve_a_driver_that_died_with_its_lease_when_its_tasks_were_done(
    scenes: Scenes, subtopology: int | None
) -> None:
    scene = scenes.scene
    scene.send("a", "b")
    killed = scene.coordinator()  # never closed: it died
    scene.tasks(scene.begin("r", coordinator=killed), [0] if subtopology == 0 else (0, 1, 2))

    with pytest.raises(AirflowFailException, match=SPARK_IS_STARTED):
        scenes.execute(_run_operator(subtopology), try_number=2)

    # The driver of the retry does nothing but take the lease and let it go.
    scene.begin("r", order=2)
    assert scenes.execute(_run_operator(subtopology), try_number=2)["records_in"] > 0


@pytest.mark.parametrize("ahead_hours", [12, -12])
def test_driver_that_died_is_relieved_when_its_clock_differs_from_the_workers(
    scenes: Scenes, ahead_hours: int
) -> None:
    scene = scenes.scene
    scene.send("a")
    clock = WaitingClock(scene.clock, ahead_ms=ahead_hours * 3_600_000)
    killed = Coordinator(scene.kafka, scene.checked, clock=clock)
    scene.tasks(scene.begin("r", coordinator=killed), [0])

    with pytest.raises(AirflowFailException, match=SPARK_IS_STARTED):
        scenes.execute(_run_operator(0), try_number=2)
    scene.begin("r", order=2)
    assert scenes.execute(_run_operator(0), try_number=2)["records_in"] == 1


@pytest.mark.parametrize("done", [False, True])
def test_ledger_and_metadata_are_read_once_when_an_operator_looks_at_a_run(
    scenes: Scenes, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    scene = scenes.scene
    scene.send("a")
    slice_ = scene.begin("r")
    if done:
        scene.tasks(slice_, [0])
    read: list[str] = []

    def counting(*args: Any, **more: Any) -> Any:
        read.append(args[1])
        return read_log(*args, **more)

    for module in (ledger, metadata):
        monkeypatch.setattr(module, "read_log", counting)
    with nullcontext() if done else pytest.raises(AirflowFailException, match=SPARK_IS_STARTED):
        scenes.execute(_run_operator(0))

    once = [f"{APP}-runs", f"{APP}-metadata"]
    assert read == (once if done else [*once, *once]), "the report of a failure looks once, too"


@pytest.mark.remedy("run_state.refuse_unfinished")
def test_tasks_that_are_left_are_named_when_spark_ended_well_all_the_same_and_a_retry_processes_them(
    scenes: Scenes, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scenes.scene
    scene.send("a")
    slice_ = scene.begin("r")
    monkeypatch.setattr(RunTopologyOperator, "_submit", lambda *_: None)

    with pytest.raises(RunError, match="tasks 0_0 of run 'r' are not at their stop offsets"):
        scenes.execute(_run_operator(None))

    monkeypatch.setattr(RunTopologyOperator, "_submit", lambda *_: scene.tasks(slice_, (0, 1, 2)))
    assert scenes.execute(_run_operator(None), try_number=2)["records_in"] > 0


@pytest.mark.remedy("run_topology.RunTopologyOperator._result: read the driver's log")
def test_retry_finishes_the_run_when_spark_ended_well_before_its_end(
    scenes: Scenes, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scenes.scene
    scene.send("a")
    slice_ = scene.begin("r")
    operator = _run_operator(None, finish=True)
    monkeypatch.setattr(RunTopologyOperator, "_submit", lambda *_: scene.tasks(slice_, (0, 1, 2)))

    with pytest.raises(RunError, match="run 'r' is not finished"):
        scenes.execute(operator)

    monkeypatch.setattr(RunTopologyOperator, "_submit", lambda *_: scene.finish("r"))
    assert scenes.execute(operator, try_number=2)["finished"]


@pytest.mark.remedy("run_topology.RunTopologyOperator._result: check that the driver")
def test_run_is_seen_when_the_driver_reads_the_cluster_of_the_operators_connection(
    scenes: Scenes, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = scenes.scene, ResetScene(partitions=1)
    for scene in (here, elsewhere):
        scene.send("a")
    operator = _run_operator(None, finish=True)
    monkeypatch.setattr(RunTopologyOperator, "_look_ahead", lambda *_: None)
    monkeypatch.setattr(RunTopologyOperator, "_submit", lambda *_: elsewhere.run("r"))

    with pytest.raises(AirflowFailException, match="never began in Kafka"):
        scenes.execute(operator)

    monkeypatch.setattr(RunTopologyOperator, "_submit", lambda *_: here.run("r"))
    assert scenes.execute(operator)["finished"]


WARNING = "in-0: a transaction open for 12 min holds the last stable offset at 2"


def test_warnings_of_a_slice_are_in_the_log_when_capture_has_frozen_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = RunPlan(
        topology=TopologyPlan(application_id="app", topology_hash="h", subtopologies=()),
        partitions={},
        topic_ids={},
        tasks={},
        stop_hash="s",
        begun_ms=1,
        ledger=LedgerSeen(topic_id="id", end=0),
        warnings=(WARNING,),
    )
    begun = BeginResult(slice=Slice(run_id="r", generation=0, plan=plan, inputs=()), created=True)
    capture = CaptureStopOffsetsOperator(task_id="capture", application="app.py", application_id="app")

    capture._report("r", begun)

    assert f"Run r: {WARNING}" in caplog.messages


def test_file_is_loaded_while_capture_makes_its_clients(
    scenes: Scenes, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, happened = scenes.scene, list[str]()
    make = KafkaHook.cluster

    def cluster(*given: Any, **named: Any) -> Any:
        happened.append("cluster")
        return make(*given, **named)

    def plan() -> TopologyPlan:
        happened.append("plan")
        return scene.topology.plan(APP)

    @contextmanager
    def loading(_: ApplicationLoader, __: str) -> Iterator[Callable[[], TopologyPlan]]:
        happened.append("loading")
        yield plan

    monkeypatch.setattr(KafkaHook, "cluster", cluster)
    monkeypatch.setattr(ApplicationLoader, "loading", loading)
    scenes.execute(CaptureStopOffsetsOperator(task_id="capture", application="app.py", application_id=APP))

    assert happened == ["loading", "cluster", "plan"]


@pytest.mark.promise("unfinished-runs-come-first")
def test_capture_says_that_an_unfinished_run_comes_first(
    scenes: Scenes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scenes.scene
    scene.send("a")
    scene.begin("given up")
    load_here(monkeypatch, lambda *_: scene.topology.plan(APP))
    capture = CaptureStopOffsetsOperator(task_id="capture", application="app.py", application_id=APP)

    result = scenes.execute(capture)

    assert result["run_id"] == "given up"
    said = "Run given up is unfinished: it is finished before run r begins"
    assert said in caplog.messages


def test_warnings_of_a_run_are_in_the_log_when_it_is_finished(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = RunSummary(
        run_id="r",
        application_id="app",
        begun_ms=1,
        finished_ms=2,
        generation=1,
        empty=True,
        inputs=(),
        warnings=(WARNING,),
    )
    identity = RunIdentity(run_id="r", clear_number=0, try_number=1, owner="test")
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: InMemoryKafka())
    monkeypatch.setattr(RunIdentity, "of", lambda context: identity)
    monkeypatch.setattr(Coordinator, "finish", lambda *_, **__: summary)

    FinishRunOperator(task_id="finish", application_id="app").execute(Context())

    assert f"Run r: {WARNING}" in caplog.messages


def _all_operators(application: str) -> list[BaseOperator]:
    return [
        CaptureStopOffsetsOperator(task_id="capture", application_id=APP, application=application),
        RunTopologyOperator(task_id="run", application_id=APP, application=application),
        RunTopologyOperator(task_id="run_all", application_id=APP, application=application, finish=True),
        FinishRunOperator(task_id="finish", application_id=APP),
    ]


@pytest.fixture
def finished(scenes: Scenes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scenes:
    """The run of dag ``d`` has finished, and its topology was mended since."""
    scene = scenes.scene
    scene.send("a")
    scene.run("r")
    mended = ResetScene(topology=counting("counts-2"))
    load_here(monkeypatch, lambda self, app: mended.topology.plan(app))
    (tmp_path / "app.py").touch()
    return scenes


@pytest.mark.promise("finished-runs-process-nothing")
def test_last_line_and_result_say_that_nothing_was_processed_now_when_a_run_is_cleared(
    finished: Scenes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    summary = finished.scene.ledger.detailed(finished.scene.ledger.all_runs()["r"])
    shown = summary.topology_hash[:12]
    for operator in _all_operators(str(tmp_path / "app.py")):
        caplog.clear()
        result = finished.execute(operator, clear_number=1)
        lines = [each.getMessage() for each in caplog.records if each.name.startswith(operators.__name__)]
        assert (result["already_finished"], result["topology"]) == (True, shown)
        assert unbroken(lines[-1]) == (
            "Run r was already finished: nothing was processed now, finished at "
            f"{result['finished_at']} by topology {shown}"
        )


def test_cleared_run_fails_without_retry_when_the_topology_was_mended_and_the_settings_say_so(
    finished: Scenes, tmp_path: Path
) -> None:
    for operator in _all_operators(str(tmp_path / "app.py"))[:3]:
        operator.settings = {"finished.with.other.topology": "fail"}
        with pytest.raises(AirflowFailException, match=said("by which nothing was processed")):
            finished.execute(operator, clear_number=1)


@pytest.mark.promise("other-work-is-refused")
def test_run_is_refused_without_retry_when_another_dag_has_finished_one_of_its_name(scenes: Scenes) -> None:
    scene = scenes.scene
    scene.send("a")
    coordinator = scene.coordinator()
    begun = coordinator.begin("r", scene.topology.plan(APP), hold_lease=False, dag_id="another")
    assert begun.slice is not None
    scene.tasks(begun.slice)
    coordinator.finish("r")
    with pytest.raises(AirflowFailException, match="it belonged to DAG 'another', this one to 'd'"):
        scenes.execute(_run_operator(None))
