"""Runs by their data interval, on Kafka in memory and on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from tests.contract.conftest import Contract
from tests.simulation.crash_points import one_after_the_other
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("runs-end-with-their-interval")

#: The first interval's start, long before any clock: transaction markers are dated past every interval.
T0 = 1_600_000_000_000
HOUR = 3_600_000


class Scene:
    """An application that copies one partition."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.source, self.sink = (contract.topic(retention_ms="-1") for _ in range(2))
        self.tp = TopicPartition(self.source, 0)
        text = serdes.string()
        builder = KStreamBuilder(default_key_serde=text, default_value_serde=text)
        builder.stream(self.source).send_to(self.sink)
        self._topology = builder.build()

    def application(self, autostop: str, suffix: str = "") -> Application:
        return Application(
            application_id=f"{self.contract.group}-app{suffix}",
            topology=self._topology,
            on=self.contract.cluster,
            clock=self.contract.clock,
            settings={"autostop.at": autostop},
        )

    def publish(self, *records: tuple[str, float], end: str = "") -> None:
        """Write values dated so many hours after the first interval's start; ``end``: of a transaction."""
        writer = self.contract.writer("foreign" if end else None)
        if end:
            writer.begin()
        for value, hours in records:
            writer.produce(self.source, value.encode(), b"k", 0, T0 + round(hours * HOUR), None)
        writer.flush()
        if end:
            (writer.commit if end == "commit" else writer.abort)()

    def out(self) -> list[str]:
        tp = TopicPartition(self.sink, 0)
        return [value.decode() for value in self.contract.values(tp, self.contract.ends(tp)[0])]


@pytest.fixture
def scene(contract: Contract) -> Iterator[Scene]:
    made = Scene(contract)
    if isinstance(contract.cluster, InMemoryKafka):
        with one_after_the_other():
            yield made
    else:
        yield made


def interval(number: int) -> tuple[int, int]:
    return (T0 + number * HOUR, T0 + (number + 1) * HOUR)


def span(summary: RunSummary) -> tuple[int, int]:
    (part,) = summary.inputs
    return part.start_offset, part.stop_offset


def test_log_is_cut_by_time_whatever_transactions_lie_in_it(scene: Scene) -> None:
    scene.publish(("a", 0.1), ("b", 0.2), end="commit")
    scene.publish(("void", 7), end="abort")
    scene.publish(("c", 0.999), ("d", 1.0), ("late", 0.5))
    scene.contract.settled(scene.tp, 8)
    app = scene.application("interval_end")
    assert span(app.run("run-0", interval_ms=interval(0))) == (0, 6)
    assert scene.out() == ["a", "b", "c"]
    assert span(app.run("run-1", interval_ms=interval(1))) == (6, 8)
    assert scene.out() == ["a", "b", "c", "d", "late"]


def test_backfill_reads_from_its_start_to_the_end_and_says_how_much_is_gone(scene: Scene) -> None:
    scene.publish(("a", 0.1), ("b", 1.0), ("x", 2.0), end="commit")
    scene.publish(("void", 1.1), end="abort")
    scene.publish(("late", 1.999), ("y", 5), ("old", 0.9))
    scene.contract.settled(scene.tp, 9)
    summary = scene.application("interval", "-1").run("past", interval_ms=interval(1))
    assert (span(summary), summary.records_in, summary.records_skipped) == ((1, 9), 2, 3)
    assert scene.out() == ["b", "late"]
    scene.contract.admin.delete_records({scene.tp: 1})
    with pytest.raises(DataLossError, match="records from offset 0 to 1 are gone, at most 1"):
        scene.application("interval", "-2").begin("past", interval_ms=interval(1))
