"""Copies the flights of one carrier; both topics are Avro, and the registry is whatever the settings name."""

from __future__ import annotations

import os

from airflow_kstreams.kafka.schema_registry import SchemaRegistry
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from tests.support.kafka.registries import FLIGHT


def topology() -> Topology:
    """Keep the flights of UA."""
    registry = SchemaRegistry()
    builder = KStreamBuilder(default_key_serde=serdes.string())
    flights = builder.stream(os.environ["KSTREAMS_TEST_IN"], value_serde=registry.avro(FLIGHT))
    flights.filter(lambda key, flight: flight["carrier"] == "UA").send_to(os.environ["KSTREAMS_TEST_OUT"])
    return builder.build()


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
