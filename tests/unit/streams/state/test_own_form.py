"""A store with a form of its own: its file alone makes it known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams import KStreamBuilder, Processor, ProcessorContext, ProcessorRecord, serdes
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.state.stores.making import make_store
from airflow_kstreams.streams.state.stores.memory.in_memory import InMemoryKeyValueStore
from airflow_kstreams.testing import TopologyTestDriver


@dataclass(frozen=True, slots=True, kw_only=True)
class TallySpec(StoreSpec):
    type: ClassVar[str] = "tally"


class Tally(InMemoryKeyValueStore):
    def move(self, key: Any, amount: int) -> int:
        total: int = (self.get(key) or 0) + amount
        self.put(key, total)
        return total


make_store.register(TallySpec, Tally)


class Stock(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context, self.pieces = context, context.state_store("pieces")

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, self.pieces.move(record.key, record.value))


def test_store_of_its_own_form_is_made_and_logged_when_its_spec_is_registered() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
    spec = TallySpec(name="pieces", key_serde=serdes.string(), value_serde=serdes.int64())
    moves = builder.stream("moves").process(Stock, spec)
    moves.send_to("stock", value_serde=serdes.int64())
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for amount in (5, 2):
            driver.pipe_input("moves", key="nut", value=amount, timestamp_ms=0)
        assert [record.value for record in driver.read_output("stock")] == [5, 7]
        changes = driver.read_output("app-pieces-changelog")
        assert [(record.key, record.value) for record in changes][-1] == ("nut", 7)
