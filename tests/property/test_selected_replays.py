"""Replays of drawn selections, some of which die or overtake each other, over a dead-letter topic that grows,
is compacted and expires: each letter comes back at most once, only for a replay that selects it, and the last
replay, of all letters, brings back all that is left.

The oracle knows letters by their numbers and counts what came back; it knows nothing of positions or marks.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams.errors import RunBusyError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import FaultyCluster
from tests.support.crash import Crash
from tests.support.examples import examples
from tests.support.kafka.dead_letter_scene import DEAD, Scene
from tests.support.kafka.interception import CrashingAt, Meanwhile

pytestmark = pytest.mark.promise("dead-letters-come-back-once", "unselected-letters-stay")

PARTITIONS = 2
NODES = ("a", "b", "c")

WHERE = st.sampled_from([None, *({"node": node} for node in NODES)])
LIMIT = st.none() | st.integers(1, 6)
LETTERS = st.lists(st.tuples(st.sampled_from(NODES), st.integers(0, PARTITIONS - 1)), min_size=0, max_size=12)
#: (which selection, how it ends: the number of a call at which it dies, or another one comes between).
REPLAYS = st.lists(
    st.tuples(
        st.sampled_from(["whole", "dies", "overtaken"]),
        st.tuples(WHERE, LIMIT),
        st.tuples(WHERE, LIMIT),
        st.integers(0, 40),
        st.booleans(),
        LETTERS,
        st.sampled_from(["", "compact", "expire", "offsets"]),
    ),
    min_size=1,
    max_size=6,
)


class Letters:
    """The letters that were sent, by number, and what of them may be gone."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.nodes: dict[int, str] = {}
        self.places: dict[int, tuple[int, int]] = {}
        self.gone: set[int] = set()

    def send(self, letters: list[tuple[str, int]]) -> None:
        for node, partition in letters:
            number = len(self.nodes)
            offset = self.scene.letter(f"{number:03}", "in", 0, node=node, into=partition)
            self.nodes[number], self.places[number] = node, (partition, offset)

    def expire(self) -> None:
        """Let retention take the older half of each partition."""
        for partition in range(PARTITIONS):
            offsets = sorted(offset for at, offset in self.places.values() if at == partition)
            if offsets:
                before = offsets[len(offsets) // 2]
                self.scene.kafka.expire({TopicPartition(DEAD, partition): before})
                self.gone |= {
                    n for n, (at, offset) in self.places.items() if at == partition and offset < before
                }

    def back(self) -> list[int]:
        return [int(value) for value in self.scene.values_back()]


@given(first=LETTERS, replays=REPLAYS)
@settings(max_examples=examples(150), deadline=None)
def test_each_letter_comes_back_once_whatever_is_selected_and_dies(
    first: list[tuple[str, int]], replays: list[Any]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_kstreams.batch.replay.replay._BATCH_RECORDS", 3)
        patch.setattr("airflow_kstreams.batch.protocol.replay_records.BLOCK_OFFSETS", 4)
        scene = Scene(PARTITIONS)
        letters = Letters(scene)
        letters.send(first)
        for number, (how, mine, others, call, after, later, upkeep) in enumerate(replays):
            before = letters.back()
            one_round(scene, number, how, mine, others, call, after)
            back = letters.back()
            assert len(back) == len({*back}), "twice"
            wanted = {node for where, _ in (mine, others) for node in ([where["node"]] if where else NODES)}
            assert {letters.nodes[n] for n in {*back} - {*before}} <= wanted
            letters.send(later)
            keep_up(scene, letters, upkeep)

        waiting = {*letters.nodes} - {*letters.back()} - letters.gone
        event(f"marks: {bool(marks(scene))}")
        done = scene.replay("the last")
        assert done.records == len(waiting)
        back = letters.back()
        assert len(back) == len({*back})
        assert {*letters.nodes} - {*back} <= letters.gone
        assert not marks(scene)


def one_round(scene: Scene, number: int, how: str, mine: Any, others: Any, call: int, after: bool) -> None:
    """Run a replay that ends in the drawn way, then again to its end: it may bring back what is missing."""
    replay_id = f"r{number}"
    if how == "dies":
        with suppress(Crash):
            scene.replay(replay_id, CrashingAt(call, after=after).cluster(scene.kafka), *mine)
    elif how == "overtaken":
        meanwhile = Meanwhile(call, lambda: scene.replay(f"other{number}", None, *others))
        with suppress(RunBusyError):
            scene.replay(replay_id, FaultyCluster(scene.kafka, meanwhile), *mine)
    event(how)
    done = scene.replay(replay_id, None, *mine)
    limit = mine[1]
    assert limit is None or done.records <= limit


def keep_up(scene: Scene, letters: Letters, upkeep: str) -> None:
    if upkeep == "compact":
        scene.kafka.compact(f"{DEAD}-replays", drop_tombstones=True)
    elif upkeep == "expire":
        letters.expire()
    elif upkeep == "offsets":
        scene.kafka.expire_offsets(f"{DEAD}-replay")


def marks(scene: Scene) -> set[bytes]:
    newest = {record.key() or b"": record.value() for record in scene.kafka.records(f"{DEAD}-replays")}
    return {key for key, value in newest.items() if key.startswith(b"__done/") and value is not None}
