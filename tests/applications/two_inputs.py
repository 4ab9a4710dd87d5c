"""One processor with a store reads two topics, which therefore must be co-partitioned."""

from __future__ import annotations

import os

from airflow_kstreams.streams import (
    Processor,
    ProcessorContext,
    ProcessorRecord,
    StoreSpec,
    Topology,
    TopologyBuilder,
    serdes,
)


class Remember(Processor):
    """Keeps the last value of every key."""

    def init(self, context: ProcessorContext) -> None:
        """Look up the store."""
        self.context = context
        self.last = context.state_store("last")

    def process(self, record: ProcessorRecord) -> None:
        """Keep and pass on."""
        self.last.put(record.key, record.value)
        self.context.forward(record.key, record.value)


def topology() -> Topology:
    """Read two topics into one processor."""
    store = StoreSpec(name="last", key_serde=serdes.string(), value_serde=serdes.json())
    return (
        TopologyBuilder()
        .add_source(
            "left", os.environ["KSTREAMS_TEST_IN"], key_serde=serdes.string(), value_serde=serdes.json()
        )
        .add_source(
            "right", os.environ["KSTREAMS_TEST_IN_2"], key_serde=serdes.string(), value_serde=serdes.json()
        )
        .add_state_store(store)
        .add_processor("remember", Remember, "left", "right", stores=("last",))
        .add_sink(
            "sink",
            os.environ["KSTREAMS_TEST_OUT"],
            "remember",
            key_serde=serdes.string(),
            value_serde=serdes.json(),
        )
        .build()
    )


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
