"""An input that has gained partitions since the last run."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import FixedGroups, KStreamBuilder, Topology
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application


def counts() -> Topology:
    builder = KStreamBuilder(
        default_key_serde=serdes.string(),
        default_value_serde=serdes.string(),
        partition_grouper=FixedGroups(2),
    )
    counted = builder.stream("in").group_by_key().count(store="counts")
    counted.to_stream().send_to("out", value_serde=serdes.int64())
    return builder.build()


def grown(partitions: int, **settings: Any) -> tuple[Application, InMemoryKafka]:
    """Return an application that has run on two partitions, of which there are more now; the third has a
    record of a key whose state is in the first group.
    """
    kafka = InMemoryKafka()
    kafka.create_topic("in", partitions=2)
    kafka.create_topic("out")
    kafka.append("in", b"v", b"k", partition=0)
    app = Application(
        application_id="app", topology=counts(), on=kafka, settings={"settle.ms": 0, **settings}
    )
    app.run("run-1")
    kafka.add_partitions("in", partitions)
    kafka.append("in", b"v", b"k", partition=2)
    return app, kafka


def test_begin_refuses_when_growth_parts_keys_from_their_state() -> None:
    app, kafka = grown(3)
    with pytest.raises(TopologyError, match="topic in grew from 2 to 3 partitions") as refused:
        app.begin("run-2")
    assert "start over with empty state: airflow-kstreams reset" in refused.value.fix
    assert [record.value() for record in kafka.records("out")] == [(1).to_bytes(8)]


@pytest.mark.parametrize(("partitions", "settings"), [(4, {}), (3, {"growth.moves.keys": "warn"})])
def test_state_goes_on_when_growth_parts_no_keys_or_producers_place_them(
    partitions: int, settings: dict[str, str]
) -> None:
    app, kafka = grown(partitions, **settings)
    app.run("run-2")
    assert [record.value() for record in kafka.records("out")] == [(1).to_bytes(8), (2).to_bytes(8)]
