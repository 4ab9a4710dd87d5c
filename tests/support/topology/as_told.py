"""Topologies that were refused, defined again as the error says, and what they then give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, Processor, Topology, serdes
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.testing import TopologyTestDriver

TEXT, WHOLE, JSON = serdes.string(), serdes.int64(), serdes.json()
#: Defines a topology on a builder; what it is to give goes to the topic ``out``.
Define = Callable[[Any], object]


class Forwarding(Processor[Any, Any, Any, Any]):
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        self.context.forward(record.key, record.value)


class Keeping(Forwarding):
    def init(self, context: Any) -> None:
        super().init(context)
        self.kept = context.state_store("kept")

    def process(self, record: Any) -> None:
        self.kept.put(record.key, record.value)
        super().process(record)


def built(define: Define) -> Topology:
    """Build a topology of text keys and values in JSON."""
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=JSON)
    define(builder)
    return builder.build()


def given(topology: Topology) -> list[tuple[Any, Any]]:
    """Return what a topology writes to ``out`` of ``a``=1, ``b``=2, ``a``=3 in ``in``, and ``a``=10 in
    ``other`` before them.
    """
    with TopologyTestDriver(topology, application_id="app") as driver:
        read = {*topology.plan("app").sources, *topology.plan("app").globals}
        for topic, key, value in (("other", "a", 10), ("in", "a", 1), ("in", "b", 2), ("in", "a", 3)):
            if topic in read:
                driver.pipe_input(topic, key=key, value=value, timestamp_ms=1_000 * value)
        return [(record.key, record.value) for record in driver.read_output("out")]


def follow(fault: Define, told: Define, wanted: object) -> None:
    """Follow a refusal: a fault is refused, and the topology that the error asks for gives its results."""
    with pytest.raises(KStreamsError):
        given(built(fault))
    assert given(built(told)) == wanted
