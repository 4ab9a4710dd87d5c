"""A replay that was refused is asked for as the error says, and each letter is back once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.dead_letters import DeadLetterTopic
from airflow_kstreams.batch.protocol import replay_records
from airflow_kstreams.batch.protocol.checked_reading import UnreadableError, read_json
from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.batch.replay.selection import Selection
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import FaultyCluster
from tests.support.crash import Crash
from tests.support.kafka.dead_letter_scene import DEAD, SETTINGS, Scene
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import CrashingAt
from tests.support.kafka.printed_commands import accept_in_memory
from tests.support.remedies import walked

REPLAYS = f"{DEAD}-replays"

SELECTED = [
    walked("selection._limit", {}, "many", {}, 1, ["a"]),
    walked("selection._limit", {}, "many", {}, None, ["a", "b"]),
    walked("selection._text: give a {}", {"offset": "first"}, None, {"offset": "1"}, None, ["b"]),
    walked("selection._text: use {}", {"exeption": "ValueError"}, None, {"message": "b"}, None, ["b"]),
    walked(
        "selection._text: write what the field must be equal to as text",
        {"value.n": 1.5},
        None,
        {"value.n": "1.5"},
        None,
        ['{"n": 1.5}'],
    ),
]


@pytest.mark.parametrize(("fault", "limit", "told", "told_limit", "back"), SELECTED)
def test_letters_come_back_that_are_asked_for_as_the_error_says(
    fault: Mapping[str, object], limit: Any, told: Mapping[str, object], told_limit: Any, back: list[str]
) -> None:
    scene = Scene()
    for value in ("a", "b") if "value.n" not in told else ("a", '{"n": 1.5}'):
        scene.letter(value)
    with pytest.raises(ConfigError):
        scene.replay(where=fault, limit=limit)
    scene.replay(where=told, limit=told_limit)
    assert scene.values_back() == back


@pytest.mark.remedy("dead_letters.DeadLetterTopic.letters_at")
def test_letter_is_shown_when_its_place_is_taken_from_the_list() -> None:
    scene = Scene()
    scene.letter("a")
    looks = DeadLetterTopic(scene.kafka, SETTINGS, clock=scene.clock)
    with pytest.raises(ConfigError, match="has no dead letter"):
        looks.letters_at(TopicPartition("in", 2), 0 + 5)
    (listed,) = looks.survey(Selection(), newest=9).newest
    topic, _, place = listed.letter.place.rpartition("-")
    partition, _, offset = place.partition("@")
    (shown,) = looks.letters_at(TopicPartition(topic, int(partition)), int(offset))
    assert shown.letter.record.value() == b"a"


@pytest.mark.remedy("destinations.Destinations.look_up")
@pytest.mark.parametrize("begun", [False, True])
def test_each_letter_is_back_once_when_its_topic_was_created_and_the_replay_run_again(
    begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_kstreams.batch.replay.replay._BATCH_RECORDS", 1)
    scene = Scene()
    if begun:
        scene.letter("a", "in")
    scene.letter("b", "mid", 0)
    scene.kafka.admin().delete_topics(["mid"])
    with pytest.raises(ConfigError, match="came from topic 'mid', which does not exist any more"):
        scene.replay()
    scene.kafka.create_topic("mid")
    scene.replay()
    assert scene.values_back() == (["a", "b"] if begun else ["b"])


@pytest.mark.remedy("replay.DeadLetterReplay._current")
def test_letters_of_a_topic_that_was_made_anew_are_back_by_another_replay() -> None:
    scene = Scene()
    scene.letter("a")
    with pytest.raises(Crash):
        scene.replay(cluster=CrashingAt(1, name="writer.commit").cluster(scene.kafka))
    scene.kafka.admin().delete_topics([DEAD])
    scene.kafka.create_topic(DEAD)
    scene.letter("b")
    with pytest.raises(ConfigError, match="was created again while replay 'r1' was unfinished"):
        scene.replay()
    scene.replay("r2")
    assert scene.values_back() == ["b"]


class Repeats:
    """An interceptor after one of whose commits the writer may have repeated a request."""

    def __init__(self, number: int) -> None:
        self._left = number

    def call(self, name: str, client: Any, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        result = effect()
        if name == "writer.commit":
            self._left -= 1
            if self._left == 0:
                client.spoil()
        return result


@pytest.mark.remedy("replay.ReplayOutput.write")
@pytest.mark.parametrize("number", [1, 2])
def test_each_letter_is_back_once_when_a_commit_may_have_been_repeated(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_kstreams.batch.replay.replay._BATCH_RECORDS", 1)
    scene = Scene()
    for value in "abc":
        scene.letter(value)
    done = scene.replay(cluster=FaultyCluster(scene.kafka, Repeats(number)))
    assert done.finished_ms
    assert scene.values_back() == ["a", "b", "c"]


@pytest.mark.remedy("replay_records.decode_replays: install the airflow_kstreams version")
def test_each_letter_is_back_once_when_the_version_that_wrote_the_replays_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.letter("a")
    scene.replay("r1")
    scene.letter("b")
    scene.replay("r2", where={"offset": "7"})

    def older(value: bytes, kind: type[Any]) -> object:
        found: object = read_json(value, kind)
        if isinstance(found, replay_records.Replay) and found.replay_id == "r2":
            raise UnreadableError("a value that came with a later version")
        return found

    with monkeypatch.context() as installed:
        installed.setattr(replay_records, "read_json", older)
        with pytest.raises(KafkaClientError, match="is not a replay's record that this version reads"):
            scene.replay("r3")
    scene.replay("r3")
    assert scene.values_back() == ["a", "b"]


@pytest.mark.remedy("replay_records.decode_replays: name the dead-letter topic otherwise")
def test_letter_is_back_when_the_dead_letter_topic_is_named_otherwise() -> None:
    scene = Scene()
    scene.kafka.create_topic(REPLAYS, cleanup_policy="compact")
    scene.kafka.append(REPLAYS, b"theirs", b"mine")
    scene.letter("a")
    with pytest.raises(ConfigError, match="holds records of another program") as refused:
        scene.replay()
    name = "errors.dead.letter.queue.topic.name"
    assert name in refused.value.fix
    named = ApplicationSettings.parse("app", {name: "letters", "settle.ms": 100})
    app = Application(
        application_id="app",
        topology=failing(),
        on=scene.kafka,
        clock=scene.clock,
        settings={"processing.exception.handler": "dead-letter", name: "letters"},
    )
    scene.kafka.append("consumed", b"bad", b"k")
    with pytest.raises(ConfigError, match="the dead-letter topic 'letters' does not exist") as missing:
        app.run("one")
    accept_in_memory(missing.value, scene.kafka)
    for letter in scene.kafka.records(DEAD):
        scene.kafka.append("letters", letter.value(), letter.key(), headers=letter.headers())
    app.run("one")
    replay = DeadLetterReplay(scene.kafka, named, replay_id="r1", clock=scene.clock)
    assert replay.run().records == 2
    assert [record.value() for record in scene.kafka.records("consumed")].count(b"bad") == 2
    assert [record.value() for record in scene.kafka.records(REPLAYS)] == [b"theirs"]
    assert scene.came_back()["in", 2, "a"] == 1


def failing() -> Any:
    def refuse(value: str) -> str:
        if value == "bad":
            raise ValueError(value)
        return value

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("consumed").map_values(refuse).send_to("mid")
    return builder.build()


@pytest.mark.remedy("selection.described_letters")
def test_letter_is_back_when_a_run_with_the_handler_has_made_the_topic(tmp_path: Path) -> None:
    scene = Scene()
    scene.kafka.admin().delete_topics([DEAD])
    app = Application(application_id="app", topology=failing(), on=scene.kafka, clock=scene.clock)
    app.run("one")
    with pytest.raises(ConfigError, match="the dead-letter topic 'app-dead-letter' does not exist"):
        scene.replay()
    app.settings = {"processing.exception.handler": "dead-letter"}
    scene.kafka.append("consumed", b"bad", b"k")
    app.run("two")
    assert scene.replay().records == 1
    assert [record.value() for record in scene.kafka.records("consumed")].count(b"bad") == 2
