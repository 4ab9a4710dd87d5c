"""The test driver, when it is used as its errors say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.remedies import walked
from tests.support.topology.as_told import built


def counting(b: Any) -> None:
    stream = b.stream("in")
    stream.group_by_key().count(store="counts")
    stream.send_to("out")


TOPOLOGY = built(counting)


def topology() -> Any:
    return TOPOLOGY


def driver(made: Any = TOPOLOGY, **options: Any) -> Any:
    return TopologyTestDriver(made, application_id="app", **options)


def piped(d: Any, **more: Any) -> Any:
    d.pipe_input("in", **{"key": "a", "value": 1, "timestamp_ms": 0, **more})
    return [(record.key, record.value) for record in d.read_output("out")]


def failing(d: Any) -> None:
    """Have a task fail at a record."""
    with pytest.raises(KStreamsError):
        d.pipe_bytes("in", key=b"a", value=b"{", timestamp_ms=0)


def within(d: Any, act: Callable[[], object]) -> None:
    """Do something in a block of ``run()``."""
    with d.run():
        act()


def all_piped(d: Any, records: Any) -> Any:
    d.pipe_records("in", records)
    return [(record.key, record.value) for record in d.read_output("out")]


def both_ways(**options: Any) -> Any:
    """Read a topic that is written as text and as JSON."""
    with driver(built(lambda b: (as_json(b), as_text(b)))) as d:
        d.pipe_input("in", key="a", value=1, timestamp_ms=0)
        return [record.value for record in d.read_output("out", **options)]


def as_json(b: Any) -> None:
    b.stream("in").send_to("out")


def as_text(b: Any) -> None:
    b.stream("in").map_values(str).send_to("out", value_serde=serdes.string())


ONE = [("a", 1)]
USES = [
    walked(
        "topology_test_driver.TopologyTestDriver.__init__",
        lambda d: driver(partitions=2),
        lambda d: piped(driver(partitions={"in": 2})),
        ONE,
    ),
    walked(
        "topology_test_driver._check_topology: call builder.build()",
        lambda d: driver(builder()),
        lambda d: piped(driver(builder().build())),
        ONE,
    ),
    walked(
        "topology_test_driver._check_topology: call it",
        lambda d: driver(topology),
        lambda d: piped(driver(topology())),
        ONE,
    ),
    walked(
        "topology_test_driver._check_topology: pass what",
        lambda d: driver(7),
        lambda d: piped(driver(TOPOLOGY)),
        ONE,
    ),
    walked(
        "topology_test_driver.TopologyTestDriver.advance_wall_clock",
        lambda d: d.advance_wall_clock(-1),
        lambda d: (d.advance_wall_clock(1), piped(d))[1],
        ONE,
    ),
    walked(
        "topology_test_driver.TopologyTestDriver.read_output",
        lambda d: d.read_output("nowhere"),
        lambda d: piped(d),
        ONE,
    ),
    walked(
        "topology_test_driver.TopologyTestDriver.store: stores of this topology",
        lambda d: d.store("count"),
        lambda d: (piped(d), dict(d.store("counts").all()))[1],
        {"a": 1},
    ),
    walked(
        "topology_test_driver.TopologyTestDriver.store: ask for one of them",
        lambda d: d.store("counts", partition=3),
        lambda d: (piped(d), dict(d.store("counts", partition=0).all()))[1],
        {"a": 1},
    ),
    walked(
        "topology_test_driver.TopologyTestDriver._check_usable: make a new TopologyTestDriver",
        lambda d: (d.close(), piped(d)),
        lambda d: piped(driver()),
        ONE,
    ),
    walked(
        "in_memory_topics.topic_counts: give a whole number",
        lambda d: driver(partitions={"in": 0}),
        lambda d: piped(driver(partitions={"in": 1})),
        ONE,
    ),
    walked(
        "topology_test_driver.TopologyTestDriver._check_usable: make a new TopologyTestDriver; a run",
        lambda d: (failing(d), piped(d)),
        lambda d: (failing(d), piped(driver()))[1],
        ONE,
    ),
    walked(
        "topology_test_driver.TopologyTestDriver._refuse_in_block",
        lambda d: within(d, d.restart),
        lambda d: (within(d, lambda: None), d.restart(), piped(d))[2],
        ONE,
    ),
    walked(
        "topology_test_driver.TopologyTestDriver._refuse_in_block",
        lambda d: within(d, d.restart),
        lambda d: (d.restart(), within(d, lambda: None), piped(d))[2],
        ONE,
    ),
    walked(
        "in_memory_topics.topic_counts: give the number of partitions of the source topics",
        lambda d: driver(partitions={"app-counts-changelog": 2}),
        lambda d: piped(driver(partitions={"in": 2})),
        ONE,
    ),
    walked(
        "input_topics._triples",
        lambda d: d.pipe_records("in", [("a", 1)]),
        lambda d: all_piped(d, [("a", 1, 0)]),
        ONE,
    ),
    walked(
        "input_topics._triples",
        lambda d: d.pipe_records("in", {"a": 1}),
        lambda d: all_piped(d, [("a", 1, 0)]),
        ONE,
    ),
    walked(
        "output_topics.OutputTopics.read",
        lambda d: both_ways(),
        lambda d: both_ways(key_serde=serdes.string(), value_serde=serdes.bytes()),
        [b"1", b"1"],
    ),
    walked(
        "in_memory_topics.topic_counts: name topics",
        lambda d: driver(partitions={"inn": 2}),
        lambda d: piped(driver(partitions={"in": 2})),
        ONE,
    ),
    walked(
        "input_topics.InputTopics._source",
        lambda d: d.pipe_input("inn", key="a", value=1, timestamp_ms=0),
        lambda d: piped(d),
        ONE,
    ),
    walked(
        "input_topics.InputTopics._check_partition",
        lambda d: piped(d, partition=1),
        lambda d: piped(driver(partitions={"in": 2}), partition=1),
        ONE,
    ),
    walked("input_topics._serialized", lambda d: piped(d, key=7), lambda d: piped(d, key="a"), ONE),
    walked(
        "input_topics._check_timestamp",
        lambda d: piped(d, timestamp_ms="now"),
        lambda d: piped(d, timestamp_ms=1_700_000_000_000),
        ONE,
    ),
    walked(
        "input_topics._checked_headers",
        lambda d: piped(d, headers={"name": b"value"}),
        lambda d: piped(d, headers=[("name", b"value")]),
        ONE,
    ),
    walked(
        "output_topics._decoded",
        lambda d: (
            d.pipe_input("in", key="a", value="x", timestamp_ms=0),
            d.read_output("out", value_serde=serdes.int64()),
        ),
        lambda d: piped(d),
        ONE,
    ),
    walked(
        "output_topics.StoreView._read",
        lambda d: d.store("counts").get(7),
        lambda d: (piped(d), d.store("counts").get("a"))[1],
        1,
    ),
]


def builder() -> Any:
    made: Any = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counting(made)
    return made


@pytest.mark.parametrize(("fault", "told", "wanted"), USES)
def test_driver_is_used_as_the_error_says(
    fault: Callable[[Any], object], told: Callable[[Any], object], wanted: object
) -> None:
    with driver() as first, pytest.raises(KStreamsError):
        fault(first)
    with driver() as second:
        assert told(second) == wanted
