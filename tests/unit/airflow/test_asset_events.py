"""Which asset events a task leaves, and when: only once its run is finished, with run id and offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import DAG, Asset, BaseOperator, Context, task

from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.operators.incremental_batch import (
    CaptureStopOffsetsOperator,
    FinishRunOperator,
    incremental_batch,
)
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.streams.errors import ConfigError, RunError
from tests.support.airflow.loaded_here import load_here
from tests.support.kafka.reset_scene import APP, ResetScene

pytestmark = pytest.mark.promise("assets-after-the-marker")

TOTALS = Asset("totals")


class Events:
    """As Airflow's, which asks for an asset's names: no release before 3.3 can hash an asset."""

    def __init__(self) -> None:
        self._of: dict[str, Any] = defaultdict(lambda: SimpleNamespace(extra={}))

    def __getitem__(self, asset: Asset) -> Any:
        return self._of[asset.name]


class Scene:
    """An application on an in-memory Kafka, and operators that Airflow executes for one run of it."""

    def __init__(self) -> None:
        self.kafka = ResetScene(partitions=1)

    def execute(self, operator: BaseOperator) -> tuple[list[Any], dict[str, Any]]:
        """Execute an operator; return the outlets that Airflow updates, and the extra of the event."""
        events = Events()
        instance = SimpleNamespace(dag_id="d", task_id="t", try_number=1, map_index=-1)
        dag_run = SimpleNamespace(
            run_id="r", clear_number=0, data_interval_start=None, data_interval_end=None
        )
        given = {"ti": instance, "dag_run": dag_run, "outlet_events": events}
        operator.execute(cast("Context", given))
        return list(operator.outlets), events[TOTALS].extra


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene()
    made.kafka.send("a")
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: made.kafka.kafka)
    monkeypatch.setattr(KafkaHook, "client_config", lambda self: {})
    load_here(monkeypatch, lambda self, app: made.kafka.topology.plan(app))
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", "kafka://in-memory:9092")
    return made


def _run(*outlets: Asset, finish: bool = True) -> RunTopologyOperator:
    return RunTopologyOperator(
        task_id="t", application_id=APP, application="a.py", finish=finish, outlets=list(outlets)
    )


def _decorated() -> BaseOperator:
    with DAG("d", schedule=None) as dag:

        @task.kstreams(application_id=APP, outlets=[TOTALS])
        def topology():  # type: ignore[no-untyped-def]
            raise NotImplementedError("it is not called here")

        topology()
    return cast("BaseOperator", dag.get_task("topology"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: FinishRunOperator(task_id="t", application_id=APP, outlets=[TOTALS]),
        lambda: _run(TOTALS),
        _decorated,
    ],
    ids=["finish", "run", "decorator"],
)
def test_event_names_run_and_offsets_whichever_operator_finds_the_run_finished(
    scene: Scene, make: Callable[[], BaseOperator]
) -> None:
    scene.kafka.run("r")

    outlets, extra = scene.execute(make())

    assert outlets == [TOTALS]
    assert (extra["application_id"], extra["run_id"], extra["offsets"]) == (APP, "r", {"in": {"0": [0, 1]}})
    assert "backfill" not in extra


def test_event_names_run_and_offsets_when_the_driver_has_finished_the_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunTopologyOperator, "_submit", lambda *_: scene.kafka.run("r"))

    _, extra = scene.execute(_run(TOTALS))

    assert (extra["run_id"], extra["offsets"]) == ("r", {"in": {"0": [0, 1]}})


def test_task_fails_when_its_driver_has_not_finished_the_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks are at their stop offsets, but nobody has written the finished marker."""
    monkeypatch.setattr(RunTopologyOperator, "_submit", lambda *_: scene.kafka.tasks(scene.kafka.begin("r")))

    with pytest.raises(RunError, match="run 'r' is not finished"):
        scene.execute(_run(TOTALS))


@pytest.mark.parametrize(
    "make",
    [
        lambda **more: CaptureStopOffsetsOperator(
            task_id="t", application_id=APP, application="a.py", **more
        ),
        lambda **more: RunTopologyOperator(task_id="t", application_id=APP, application="a.py", **more),
    ],
    ids=["capture", "run"],
)
@pytest.mark.remedy("lineage_facets.refuse_outlets")
def test_outlets_are_refused_where_the_run_is_not_finished(
    scene: Scene, make: Callable[..., BaseOperator]
) -> None:
    with pytest.raises(ConfigError, match="task 't' has outlets and does not finish the run") as caught:
        make(outlets=[TOTALS])
    added = make()
    added.add_outlets([TOTALS])
    with pytest.raises(Exception, match="does not finish the run"):
        scene.execute(added)
    scene.kafka.tasks(scene.kafka.begin("r"))
    for told in (
        FinishRunOperator(task_id="t", application_id=APP, outlets=[TOTALS]),
        _run(TOTALS, finish=True),
    ):
        assert type(told).__name__ in caught.value.fix
        assert scene.execute(told)[0] == [TOTALS]


def test_only_the_last_task_has_the_outlets_of_a_batch() -> None:
    with DAG("d", schedule=None) as dag:
        incremental_batch(application_id=APP, application="a.py", outlets=[TOTALS])
    assert {name: list(one.outlets) for name, one in dag.task_dict.items()} == {
        "incremental_batch.capture_stop_offsets": [],
        "incremental_batch.run_topology": [],
        "incremental_batch.finish_run": [TOTALS],
    }
