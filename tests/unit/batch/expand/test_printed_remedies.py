"""Growth that was refused is asked for as the error says, and every key stays with its state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_kstreams.streams.errors import KStreamsError
from tests.support.remedies import walked
from tests.unit.batch.expand.test_growth import begun, expanded, grouped, modulo, not_run
from tests.unit.batch.expand.test_processor_expansion import expand, grown
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene


def settled(scene: Scene) -> bool:
    """Send more, run until nothing waits, and return whether every value is with its key."""
    scene.send(KEYS, 99)
    for _ in range(4):
        scene.run()
    return scene.listed == scene.sent


GROWN = [
    walked("growth.plan_growth", lambda: begun(4), ("in", 3), lambda scene: expanded(scene, 5)),
    walked("growth._whole", lambda: begun(4), ("in", 0), lambda scene: expanded(scene, 8)),
    walked("growth._reader: name one of", lambda: begun(4), ("out", 8), lambda scene: expanded(scene, 8)),
    walked(
        "growth._reader: name the input topic",
        lambda: begun(4),
        ("app-runs", 8),
        lambda scene: expanded(scene, 8),
    ),
    walked(
        "growth.last_topology: correct the application's id",
        not_run,
        ("in", 8),
        lambda scene: (scene.run(), expanded(scene, 8)),
    ),
]


@pytest.mark.parametrize(("made", "fault", "told"), GROWN)
def test_topic_grows_as_the_error_says(
    made: Callable[[], Scene], fault: tuple[str, int], told: Callable[[Scene], object]
) -> None:
    scene = made()
    with pytest.raises(KStreamsError):
        expanded(scene, fault[1], fault[0])
    told(scene)
    assert settled(scene)


@pytest.mark.remedy("growth._refuse_other_kind")
def test_topic_grows_to_the_multiple_that_the_error_names() -> None:
    scene = modulo()
    with pytest.raises(KStreamsError) as refused:
        expanded(scene, 8)
    expanded(scene, int(refused.value.fix.split("--to ")[1]))
    scene.send(KEYS, 9, modulo=True)
    for _ in range(4):
        scene.run()
    assert scene.listed == scene.sent


@pytest.mark.remedy("growth._refuse_unknown_beginning")
def test_topic_grows_when_the_command_and_the_runs_have_the_setting_that_the_error_names() -> None:
    scene = begun(2)
    scene.kafka.admin().delete_topics(["app-listed-changelog", "in"])
    scene.kafka.create_topic("in", partitions=2)
    scene.send(KEYS, 1)
    with pytest.raises(KStreamsError) as refused:
        expanded(scene, 3)
    setting = refused.value.fix.split("initial.partitions=")[1].split(",")[0]
    scene.app.settings = {**scene.app.settings, "initial.partitions": setting}
    assert expanded(scene, 3).grown is not None


@pytest.mark.remedy("growth.last_topology: leave partition_grouper out")
def test_topic_under_a_grouper_grows_by_kafkas_own_command_while_all_is_processed() -> None:
    scene = begun(2, grouped())
    with pytest.raises(KStreamsError):
        expanded(scene, 4)
    scene.grow(4)
    scene.send(KEYS, 1, modulo=True)
    scene.run()
    counted = {record.key(): record.value() for record in scene.kafka.records("out")}
    assert {int.from_bytes(count or b"", "big") for count in counted.values()} == {2}


PROCESSORS = [
    walked(
        "expansion_rules.expanded: give a number from", lambda: grown(), 1, lambda scene: expand(scene, 3)
    ),
    walked(
        "expansion_rules.expanded: give the topics more partitions first",
        lambda: grown(),
        5,
        lambda scene: (
            expanded(scene, 6),
            scene.send(KEYS, 5),
            [scene.run() for _ in range(4)],
            expand(scene, 5),
        ),
    ),
]


@pytest.mark.parametrize(("made", "fault", "told"), PROCESSORS)
def test_processors_are_added_as_the_error_says(
    made: Callable[[], Scene], fault: int, told: Callable[[Scene], object]
) -> None:
    scene = made()
    with pytest.raises(KStreamsError):
        expand(scene, fault)
    told(scene)
    assert settled(scene)
    assert len(scene.recorded.by_group) > 2
