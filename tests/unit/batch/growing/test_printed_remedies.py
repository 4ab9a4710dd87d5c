"""A begin that refused how a topic has grown goes on as its error says, and every key is with its state."""

from __future__ import annotations

import pytest

from airflow_kstreams.streams.errors import ConfigError, DataLossError, TopologyError
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.ports import TopicPartition
from tests.support.kafka.printed_commands import accept_in_memory
from tests.support.remedies import walked
from tests.unit.batch.expand.test_growth import grouped
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene, listing

FIRST = [
    walked("grown_groups.known_growth: name some of", "other=1", "in=2"),
    walked("grown_groups.known_growth: write the count", "in=4", "in=2"),
]


@pytest.mark.parametrize(("fault", "told"), FIRST)
def test_state_begins_by_the_first_count_that_the_error_asks_for(fault: str, told: str) -> None:
    scene = Scene(2, settings={"initial.partitions": fault})
    scene.send(KEYS, 0)
    with pytest.raises(ConfigError):
        scene.run()
    scene.app.settings = {**scene.app.settings, "initial.partitions": told}
    scene.run()
    assert scene.listed == scene.sent


@pytest.mark.remedy("grown_groups.known_growth: leave the setting out")
@pytest.mark.parametrize("way", ["setting", "grouper"])
def test_run_goes_on_when_the_setting_or_the_grouper_is_left_out(way: str) -> None:
    scene = Scene(2, grouped(), settings={"initial.partitions": "in=2"})
    scene.send(KEYS, 0)
    with pytest.raises(ConfigError, match="cannot be used with the partition grouper"):
        scene.run()
    if way == "setting":
        scene.app.settings = {"settle.ms": 0}
    else:
        scene.app.topology = listing("counted")
    scene.run()
    assert len(scene.kafka.values("out")) == len(KEYS)


also = pytest.mark.parametrize("also", ["", "more"], ids=["", "a topic more"])


@pytest.mark.remedy("grown_groups.grown_groups")
@also
def test_everything_is_counted_anew_when_a_topic_came_back_with_fewer_partitions(also: str) -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(3)
    scene.send(KEYS, 1)
    for _ in range(2):
        scene.run()
    scene.kafka.admin().delete_topics(["in"])
    scene.kafka.create_topic("in", partitions=2)
    scene.count = 2
    scene.sent.clear()
    scene.send(KEYS, 2)
    scene.kafka.create_topic("more")
    scene.app.topology = listing(also=also)
    for kind in (DataLossError, TopologyError):
        with pytest.raises(kind) as refused:
            scene.run()
        accept_in_memory(refused.value, scene.kafka)
    scene.run()
    assert scene.listed == scene.sent


@pytest.mark.remedy("grown_groups.mixed_kinds")
@pytest.mark.parametrize("way", ["repartition", "initial.partitions"])
@also
def test_mixed_keys_are_with_their_state_when_it_is_begun_anew_by_the_command(way: str, also: str) -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(6)
    with pytest.raises(
        TopologyError, match="grew over 2 -> 6 partitions, and its keys lie neither"
    ) as refused:
        for value in range(1, 6):
            for key in KEYS:
                scene.send([key], value, modulo=partition_of_key(key.encode(), 2, 2) == 0)
            scene.run()
    scene.kafka.create_topic("more")
    scene.app.topology = listing(also=also)
    with pytest.raises(TopologyError, match="its keys lie neither") as refused:
        scene.run()
    if way == "repartition":
        scene.app.settings = {"settle.ms": 0}
        scene.app.topology = listing(partitions=3, also=also)
    else:
        # Retention has taken all that was written before the topic grew, or by linear hashing.
        partitions = [TopicPartition("in", number) for number in range(scene.count)]
        scene.kafka.expire(scene.kafka.admin().end_offsets(partitions, isolation="read_committed"))
        scene.sent.clear()
        assert "set initial.partitions=in=6 instead" in refused.value.fix
        scene.app.settings = {**scene.app.settings, "initial.partitions": "in=6"}
        scene.send(KEYS, 9, modulo=True)
    accept_in_memory(refused.value, scene.kafka)
    for _ in range(2):
        scene.run()
    assert {key: sorted(values) for key, values in scene.listed.items()} == scene.sent
