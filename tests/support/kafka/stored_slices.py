"""Slices as a version stored them whose tasks notified once per pair of partitions, byte for byte.

``stored/slices_with_pairs.json`` holds, by how far the slice had come, every record, topic id and committed
offset of the application of ``reset_scene`` after that version had worked on it: two input partitions, two
of each intermediate topic, an outsider's record between. Its driver was killed there, so its lease is not let
go. Texts stand for bytes, one character each.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airflow_kstreams.streams.ports import CommittedOffset, Headers, TopicPartition
from airflow_kstreams.testing import ManualClock
from airflow_kstreams.testing.in_memory_kafka.log import LogRecord
from tests.support.kafka.reset_scene import APP, ResetScene

_FILE = Path(__file__).parent / "stored" / "slices_with_pairs.json"
#: The run that is under way in each of them.
RUN = "run-1"


def stored_slice(how_far: str) -> ResetScene:
    """Return a scene in which a slice of that version is under way.

    :param how_far: ``begun``; ``one of two`` or ``all of the first``: tasks of the first subtopology are
        done; ``half of the second``: of the second, too.
    """
    stored = json.loads(_FILE.read_text())[how_far]
    scene = ResetScene(clock=ManualClock(now_ms=stored["now_ms"]))
    scene.kafka.admin().delete_topics(scene.kafka.topics())
    for name, topic in stored["topics"].items():
        _restore(scene, name, topic)
    reader = scene.kafka.reader(group_id=APP)
    reader.commit(
        {TopicPartition(t, number): CommittedOffset(at, text) for t, number, at, text in stored["offsets"]}
    )
    reader.close()
    return scene


def _restore(scene: ResetScene, name: str, stored: dict[str, Any]) -> None:
    configs = {config.replace(".", "_"): value for config, value in stored["configs"].items()}
    scene.kafka.create_topic(name, partitions=len(stored["logs"]), **configs)
    topic = scene.kafka._broker.topics[name]
    topic.topic_id = stored["id"]
    for log, kept in zip(topic.logs, stored["logs"], strict=True):
        log.start, log.high_watermark = kept["start"], kept["end"]
        # What lies between them were transaction markers.
        log._entries = [
            LogRecord(log.at, at, (_bytes(key), _bytes(value), dated_ms, _headers(headers)), None)
            for at, key, value, dated_ms, headers in kept["records"]
        ]


def _headers(stored: list[tuple[str, str | None]]) -> Headers | None:
    return [(name, _bytes(content)) for name, content in stored] or None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")
