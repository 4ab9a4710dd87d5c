"""Stream time on the real broker: it travels with the offsets, through crashes and from run to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    Topology,
    serdes,
)
from airflow_kstreams.streams.errors import RecordError
from tests.conftest import Row
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("punctuation-comes-once")

Produce = Callable[..., None]
Consume = Callable[..., list[Any]]


def ticking(source: str, target: str, on_value: Callable[[int], None]) -> Topology:
    class Ticking(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context
            context.schedule(10)

        def process(self, record: ProcessorRecord) -> None:
            on_value(record.value)
            if record.value % 4 == 0:
                self.context.commit()

        def punctuate(self, stream_time_ms: int) -> None:
            self.context.forward("tick", stream_time_ms)

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    builder.stream(source).process(Ticking).send_to(target)
    return builder.build()


@pytest.fixture
def target(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> str:
    return create_topic(topic_name("out"), 1)


def test_each_multiple_is_punctuated_once_when_runs_end_and_tasks_die_between(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    target: str,
    produce: Produce,
    consume_all: Consume,
) -> None:
    source = create_topic(topic_name("in"), 1)
    dying = [11]

    def dies(value: int) -> None:
        if value in dying:
            dying.remove(value)
            raise RecordError("power cut", topic="", partition=-1, offset=-1, node="")

    application = Application(
        bootstrap=kafka, application_id=application_id, topology=ticking(source, target, dies)
    )

    def publish(*values: int) -> None:
        produce(source, [Row(key=b"k", value=str(v).encode(), timestamp_ms=1_000 + 5 * v) for v in values])

    publish(*range(1, 8))  # stream time 1,005 to 1,035
    application.run("run-1")
    publish(*range(8, 16))  # 1,040 to 1,075; dies at 11, having committed 8
    slice_ = application.begin("run-2")
    with pytest.raises(RecordError, match="power cut"):
        application.tasks(slice_)
    application.run("run-2", (0, 2))
    application.run("run-3")  # nothing new: the times must survive that, too
    publish(16, 17)
    application.run("run-4")
    assert [row.json() for row in consume_all(target)] == list(range(1_010, 1_081, 10))
