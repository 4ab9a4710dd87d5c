"""What OpenLineage is told of a run, with the classes of Airflow's OpenLineage provider, and without them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.openlineage.extractors.base import DefaultExtractor
from airflow.sdk import Context
from openlineage.client.serde import Serde

from airflow_kstreams.batch.report.lineage import RunLineage, TopicUse, lineage_of
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.operators.incremental_batch import CaptureStopOffsetsOperator, FinishRunOperator
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.operators.work.lineage_facets import ReportsLineage
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("lineage-counts-are-exact")

_BOOTSTRAP = "b1:9092, b2:9092"


def _topology() -> Topology:
    """Orders are filtered and rekeyed, joined in one topic, and split into two."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("orders").filter(lambda _, value: value != "no").through("between").send_to("kept")
    others = builder.stream(["left", "right"])
    others.send_to("copy")
    others.send_to("copy-of-copy")
    return builder.build()


@pytest.fixture
def application() -> Application:
    kafka = InMemoryKafka()
    for topic in ("orders", "between", "kept", "left", "right", "copy", "copy-of-copy"):
        kafka.create_topic(topic, partitions=2)
    return Application(on=kafka, clock=kafka.clock, application_id="app", topology=_topology())


def _publish(application: Application) -> None:
    assert application.on is not None
    writer = application.on.writer(transactional_id=None)
    try:
        for n in range(10):
            writer.produce("orders", key=b"k", value=b"no" if n < 4 else b"yes", partition=n % 2)
        writer.produce("left", key=b"k", value=b"l", partition=0)
        writer.flush()
    finally:
        writer.close()


def _cluster(application: Application) -> Any:
    """Give the cluster in memory an address, as a real one has."""
    cluster: Any = application.on
    cluster.bootstrap = _BOOTSTRAP
    return cluster


def _operator(kind: type[Any]) -> Any:
    needed = {} if kind is FinishRunOperator else {"application": "app.py"}
    return kind(task_id="t", application_id="app", **needed)


_OPERATORS = [CaptureStopOffsetsOperator, RunTopologyOperator, FinishRunOperator]


def test_every_topic_has_its_count_when_a_run_is_finished(application: Application) -> None:
    _publish(application)

    lineage = lineage_of(application.run("one"), _BOOTSTRAP)

    assert lineage == RunLineage(
        namespace="kafka://b1:9092",
        application_id="app",
        run_id="one",
        generation=1,
        finished=True,
        inputs=(
            TopicUse("left", {"0": (0, 1), "1": (0, 0)}, 1),
            TopicUse("orders", {"0": (0, 5), "1": (0, 5)}, 10),
            TopicUse("right", {"0": (0, 0), "1": (0, 0)}, 0),
        ),
        outputs=(
            TopicUse("copy", {}, 1),
            TopicUse("copy-of-copy", {}, 1),
            TopicUse("kept", {}, 6),
        ),
        records_in=11,
        records_out=8,
    )


def test_topics_and_offsets_are_known_and_counts_are_not_when_a_run_has_begun(
    application: Application,
) -> None:
    _publish(application)

    lineage = lineage_of(application.begin("one"), _BOOTSTRAP)

    assert not lineage.finished
    assert {use.topic: use.offsets for use in lineage.inputs}["orders"] == {"0": (0, 5), "1": (0, 5)}
    assert [use.topic for use in lineage.outputs] == ["copy", "copy-of-copy", "kept"]
    assert {use.records for use in lineage.inputs + lineage.outputs} == {None}
    assert lineage.records_in is None


@pytest.mark.parametrize("kind", _OPERATORS)
def test_airflows_extractor_gets_datasets_and_facets_when_the_task_has_ended(
    kind: type[Any], application: Application
) -> None:
    _publish(application)
    operator = _operator(kind)
    operator.remember(application.run("one"), _cluster(application))

    told = DefaultExtractor(operator).extract_on_complete(None)

    assert isinstance(told, OperatorLineage)
    assert {(one.namespace, one.name) for one in told.inputs} == {
        ("kafka://b1:9092", topic) for topic in ("orders", "left", "right")
    }
    sent = json.loads(Serde.to_json(told))
    orders = next(one for one in sent["inputs"] if one["name"] == "orders")["inputFacets"]
    assert orders["kstreams_offsets"]["offsets"] == {"0": [0, 5], "1": [0, 5]}
    assert orders["inputStatistics"]["rowCount"] == 10
    kept = next(one for one in sent["outputs"] if one["name"] == "kept")["outputFacets"]
    assert kept["outputStatistics"]["rowCount"] == 6
    run = sent["run_facets"]["kstreams_run"]
    assert (run["application_id"], run["run_id"], run["records_in"]) == ("app", "one", 11)
    assert all("_schemaURL" in facet for facet in (run, orders["kstreams_offsets"]))


@pytest.mark.parametrize("kind", _OPERATORS)
def test_application_is_told_when_the_task_begins_or_ended_before_it_saw_the_run(kind: type[Any]) -> None:
    operator = _operator(kind)
    for told in (
        DefaultExtractor(operator).extract(),
        DefaultExtractor(operator).extract_on_failure(None),
    ):
        assert told is not None
        assert (told.inputs, told.outputs) == ([], [])
        assert told.run_facets["kstreams_run"].application_id == "app"


def test_failed_task_tells_what_it_saw(application: Application) -> None:
    operator = _operator(RunTopologyOperator)
    operator.remember(application.begin("one"), _cluster(application))
    operator.remember(None, _cluster(application))

    told = DefaultExtractor(operator).extract_on_failure(None)

    assert told is not None
    assert [one.name for one in told.inputs] == ["left", "orders", "right"]
    assert told.run_facets["kstreams_run"].finished is False


@pytest.fixture
def no_openlineage(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    hidden = ("openlineage", "airflow.providers.openlineage")
    for name in [name for name in sys.modules if name.startswith(tuple(f"{one}." for one in hidden))]:
        monkeypatch.delitem(sys.modules, name)
    for name in hidden:
        monkeypatch.setitem(sys.modules, name, None)
    yield


@pytest.mark.usefixtures("no_openlineage")
@pytest.mark.parametrize("kind", _OPERATORS)
def test_operators_work_and_tell_nothing_when_openlineage_is_not_installed(
    kind: type[Any], application: Application
) -> None:
    operator = _operator(kind)
    assert isinstance(operator, ReportsLineage)
    operator.remember(application.run("one"), _cluster(application))

    assert operator.get_openlineage_facets_on_start() is None
    assert operator.get_openlineage_facets_on_complete(None) is None
    with pytest.raises(ModuleNotFoundError):
        import openlineage.client  # noqa: F401  # it is really hidden


def test_operator_remembers_its_run_when_it_is_executed(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    _publish(application)
    slice_ = application.begin("one")
    application.tasks(slice_)
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: _cluster(application))
    operator = _operator(FinishRunOperator)
    context = Context(ti=_Attempt(), dag_run=_DagRun())  # type: ignore[typeddict-item]

    operator.execute(context)

    told = operator.get_openlineage_facets_on_complete(None)
    assert {one.name for one in told.outputs} == {"kept", "copy", "copy-of-copy"}
    assert told.run_facets["kstreams_run"].finished


class _Attempt:
    dag_id, task_id, try_number = "d", "t", 1


class _DagRun:
    run_id, clear_number, data_interval_start, data_interval_end = "one", 0, None, None
