"""Another program has a transaction open on a topic between, while a run's tasks write it.

What they write lies behind that transaction, so the last stable offset stays before it. The stop must not.
"""

from __future__ import annotations

from collections import Counter

from airflow_kstreams.batch.protocol.slice.metadata import read_metadata
from airflow_kstreams.streams.ports import TopicPartition
from tests.simulation.protections import PROTECTIONS
from tests.support.kafka.reset_scene import APP, ResetScene

MID = TopicPartition("mid", 0)


def play() -> tuple[int, Counter[str]]:
    """Run once; return the stop of the topic between, and how often the run counted each value."""
    scene = ResetScene(partitions=1)
    scene.send("a", "b", "a")
    stranger = scene.kafka.writer(transactional_id="stranger")
    stranger.init_transactions()
    stranger.begin()
    stranger.produce("mid", b"x", b"k", 0)
    stranger.flush()
    driver = scene.coordinator()
    slice_ = scene.begin("r1", coordinator=driver)
    for subtopology in range(3):
        for share in driver.unfinished(slice_, subtopology):
            if subtopology == 1:
                stranger.commit()
            scene.application().launched(slice_, share)
    stop = read_metadata(scene.kafka, APP, clock=scene.clock).intermediate_stops[MID]
    driver.finish("r1")
    driver.close()
    return stop, Counter(dict(scene.counts()))


def test_run_reads_all_that_its_tasks_wrote_when_a_transaction_is_open_before_it() -> None:
    stop, counts = play()
    assert stop == 1 + 3 + 3, "the record of the stranger, and those of the task, each with its marker"
    assert counts == {"a": 2, "b": 1, "x": 1}


def test_records_are_left_behind_when_the_stop_is_the_stable_offset() -> None:
    with PROTECTIONS["freeze the high watermark"].missing():
        stop, counts = play()
    assert stop == 0
    assert counts.total() == 0
