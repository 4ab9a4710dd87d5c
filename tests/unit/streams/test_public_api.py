from __future__ import annotations

from airflow_kstreams import streams
from airflow_kstreams.streams import KStreamBuilder, serdes
from tests.support.topology.bound_topology import BoundTopology, Output


def test_every_public_name_is_documented_when_exported() -> None:
    for name in streams.__all__:
        assert getattr(streams, name).__doc__, name


def test_branch_and_count_run_when_written_as_users_write_them() -> None:
    builder = KStreamBuilder()
    left = builder.stream("left", key_serde=serdes.string(), value_serde=serdes.json())
    small, rest = left.branch(lambda k, v: v < 10, lambda k, v: True)
    small.group_by_key().count(store="small-counts").to_stream().send_to(
        "counts", key_serde=serdes.string(), value_serde=serdes.int64()
    )
    rest.send_to("rest")
    bound = BoundTopology(builder.build())
    bound.pipe("left", "a", 1, timestamp_ms=100)
    bound.pipe("left", "a", 11, timestamp_ms=101)
    bound.flush()
    assert bound.stores["small-counts"].get("a") == 1
    assert bound.read("counts") == [Output("a", 1, 100)]
    assert bound.read("rest") == [Output("a", 11, 101)]
