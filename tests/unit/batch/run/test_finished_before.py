"""A run that has finished and is asked for again: the same work is found done, other work is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.report.results import result_of_summary
from airflow_kstreams.batch.run.coordinator import BeginResult
from airflow_kstreams.batch.run.finished_before import nothing_processed
from airflow_kstreams.streams import KStreamBuilder, Topology
from airflow_kstreams.streams.errors import ConfigError, TopologyError
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("finished-runs-process-nothing", "other-work-is-refused")

APP = "app"
HOUR_MS = 3_600_000
INTERVAL = (1_699_999_200_000, 1_699_999_200_000 + HOUR_MS)
NEXT = (INTERVAL[1], INTERVAL[1] + HOUR_MS)


def topology(source: str = "in", target: str = "out", *, mended: bool = False) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    stream = builder.stream(source)
    (stream.map_values(str.upper) if mended else stream).send_to(target)
    return builder.build()


class Scene:
    """An application whose run ``r`` has finished."""

    def __init__(self, **settings: Any) -> None:
        self.kafka = InMemoryKafka(clock=ManualClock(now_ms=1_700_000_000_000))
        for topic in ("in", "in-2", "out", "out-2"):
            self.kafka.create_topic(topic)
        self.kafka.append("in", b"v", b"k", timestamp_ms=INTERVAL[0])
        self.settings = {"autostop.at": "eol", **settings}
        first = self.application(topology())
        slice_ = self._begin(first, dag_id="daily", interval_ms=INTERVAL).slice
        assert slice_ is not None
        first.tasks(slice_)
        self.summary = first.finish("r")
        self.kafka.append("in", b"later", b"k")

    def application(self, built: Topology, **settings: Any) -> Application:
        return Application(
            application_id=APP,
            topology=built,
            on=self.kafka,
            clock=self.kafka.clock,
            settings={"settle.ms": 0, **self.settings, **settings},
        )

    def begin(
        self,
        built: Topology | None = None,
        *,
        dag_id: str = "daily",
        interval_ms: tuple[int, int] | None = INTERVAL,
        **settings: Any,
    ) -> BeginResult:
        """Ask for the run again."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return self._begin(self.application(built or topology(), **named), dag_id, interval_ms)

    @staticmethod
    def _begin(application: Application, dag_id: str, interval_ms: tuple[int, int] | None) -> BeginResult:
        coordinator = application.coordinator()
        try:
            return coordinator.begin(
                "r", application.topology.plan(APP), hold_lease=False, dag_id=dag_id, interval_ms=interval_ms
            )
        finally:
            coordinator.close()


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_run_is_found_finished_when_it_is_the_same_work(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    with caplog.at_level(logging.WARNING):
        assert scene.begin().finished == scene.summary
        assert scene.begin(dag_id="").finished == scene.summary, "by hand"
        assert scene.begin(interval_ms=NEXT).finished == scene.summary, "the interval cuts nothing"
    assert not warnings_in(caplog)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda scene: scene.begin(dag_id="hourly"), "it belonged to DAG 'daily', this one to 'hourly'"),
        (lambda scene: scene.begin(topology("in-2")), "it read in, this one reads in-2"),
        (lambda scene: scene.begin(topology(target="out-2")), "it wrote out, this one writes out-2"),
        (
            lambda scene: scene.begin(autostop_at="interval_end"),
            "its cut was autostop.at=eol, this one is interval_end",
        ),
    ],
    ids=["DAG", "inputs", "outputs", "cut"],
)
def test_finished_run_is_refused_for_good_when_it_was_other_work(
    ask: Callable[[Scene], object], said: str
) -> None:
    scene = Scene()
    with pytest.raises(ConfigError, match="run 'r' of application 'app' is already finished") as caught:
        ask(scene)
    assert said in caught.value.cause
    assert not caught.value.is_retriable
    assert "give this work a run id or an application id of its own" in caught.value.fix
    assert "backfill" in caught.value.fix


def counting(*, mended: bool = False) -> Topology:
    """``in`` -> ``mid`` -> counted -> ``out``."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    stream = builder.stream("in").through("mid")
    counted = (stream.filter(lambda k, v: True) if mended else stream).group_by_key().count(store="counts")
    counted.to_stream().send_to("out", value_serde=serdes.int64())
    return builder.build()


@pytest.mark.remedy("finished_before.check_finished: give this work a run id")
def test_other_work_runs_under_a_run_id_of_its_own() -> None:
    scene = Scene()
    with pytest.raises(ConfigError):
        scene.begin(dag_id="hourly")
    other = scene.application(topology())
    assert other.run("of its own").records_in == 1
    assert scene.kafka.values("out") == [b"v", b"later"]


@pytest.mark.remedy("finished_before.check_finished: to process the run's records once more")
def test_run_is_processed_again_with_the_counts_of_all_records_after_the_command() -> None:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=1_700_000_000_000))
    for topic in ("in", "mid", "out"):
        kafka.create_topic(topic)

    def application(*, mended: bool) -> Application:
        settings = {"settle.ms": 0, "finished.with.other.topology": "fail"}
        built = counting(mended=mended)
        return Application(application_id=APP, topology=built, on=kafka, clock=kafka.clock, settings=settings)

    for run in ("r1", "r2"):
        kafka.append("in", b"v", b"k")
        application(mended=False).run(run)
    before = len(kafka.values("out"))
    again = application(mended=True)
    with pytest.raises(TopologyError) as caught:
        again.run("r2")
    accept_in_memory(caught.value, kafka)

    assert again.run("r2").records_in == 2
    counted = [int.from_bytes(value or b"", "big") for value in kafka.values("out")[before:]]
    assert counted in ([1, 2], [2]), "the state of the runs before is no part that is missing"


@pytest.mark.parametrize("cut", ["interval_end", "interval"])
def test_finished_run_is_refused_when_its_data_interval_was_another(cut: str) -> None:
    scene = Scene(**{"autostop.at": cut})
    assert scene.begin().finished == scene.summary
    with pytest.raises(ConfigError, match="its cut was the data interval"):
        scene.begin(interval_ms=NEXT)


def test_other_topology_is_warned_of_when_the_run_has_finished_by_an_earlier_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    with caplog.at_level(logging.WARNING):
        assert scene.begin(topology(mended=True)).finished == scene.summary
    (warning,) = warnings_in(caplog)
    assert f"by topology {scene.summary.topology_hash[:12]}" in warning
    assert f"now builds {topology(mended=True).topology_hash()[:12]}" in warning
    assert "reset --bootstrap-server" in warning and "by a backfill" in warning


def test_other_topology_is_refused_for_good_when_the_settings_say_so() -> None:
    scene = Scene()
    with pytest.raises(TopologyError, match="by which nothing was processed") as caught:
        scene.begin(topology(mended=True), finished_with_other_topology="fail")
    assert not caught.value.is_retriable
    assert "reset --bootstrap-server" in caught.value.fix
    assert scene.begin(finished_with_other_topology="fail").finished == scene.summary


def test_topology_is_the_same_when_partitions_were_added(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    for topic in ("in", "out"):
        scene.kafka.add_partitions(topic, 5)
    with caplog.at_level(logging.WARNING):
        assert scene.begin(finished_with_other_topology="fail").finished == scene.summary
    assert not warnings_in(caplog)
    assert scene.application(topology()).run("next").topology_hash == scene.summary.topology_hash


def test_it_is_said_that_nothing_was_processed_now() -> None:
    scene = Scene()
    shown = scene.summary.topology_hash[:12]
    result = result_of_summary(scene.summary, already=True)
    assert result["already_finished"]
    assert result["topology"] == shown
    said = f"nothing was processed now, finished at {result['finished_at']} by topology {shown}"
    assert nothing_processed(scene.summary) == f"Run r was already finished: {said}"
    assert not result_of_summary(scene.summary)["already_finished"]
