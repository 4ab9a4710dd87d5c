"""Where a reset sets offsets: the scenarios of Kafka's own tool, on the in-memory Kafka."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_kstreams.batch.reset.scenario import (
    DEFAULT,
    TO_EARLIEST,
    TO_LATEST,
    Scenario,
    by_duration,
    duration_ms,
    epoch_ms,
    from_file,
    scenario_of,
    shift_by,
    to_datetime,
    to_offset,
)
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from tests.support.kafka.reset_scene import APP, ResetScene

EPOCH_MS = 1_700_000_000_000


@pytest.fixture
def scene() -> ResetScene:
    """Offsets 2 to 5 are there, dated 2 to 5 s after the epoch; offset 4 is the next."""
    scene = ResetScene(partitions=1)
    scene.clock.sleep(-1.0)
    for number in range(6):
        scene.kafka.append("in", b"v", partition=0, timestamp_ms=EPOCH_MS + 1000 * number)
    scene.clock.sleep(10.0)
    scene.kafka.expire({TopicPartition("in", 0): 2})
    scene.kafka.reader(group_id=APP).commit({TopicPartition("in", 0): CommittedOffset(4)})
    return scene


def at(seconds: float) -> str:
    moment = datetime.fromtimestamp(EPOCH_MS / 1000 + seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (TO_EARLIEST, 2),
        (DEFAULT, 2),
        (TO_LATEST, 6),
        (to_offset(3), 3),
        (to_offset(0), 2),
        (to_offset(-7), 2),
        (to_offset(6), 6),
        (to_offset(700), 6),
        (shift_by(-1), 3),
        (shift_by(1), 5),
        (shift_by(0), 4),
        (shift_by(-100), 2),
        (shift_by(100), 6),
        (to_datetime(at(3)), 3),
        (to_datetime(at(3.001)), 4),
        (to_datetime(at(-1000)), 2),
        (to_datetime(at(5.001)), 6),
        (by_duration("PT6.5S"), 4),
        (by_duration("PT0S"), 6),
        (by_duration("P20000D"), 2),
    ],
    ids=lambda value: value.option if not isinstance(value, int) else str(value),
)
def test_offset_is_in_the_log_whatever_is_asked_for(
    scene: ResetScene, scenario: Scenario, expected: int
) -> None:
    (change,) = scene.reset(inputs="in", scenario=scenario).offsets
    assert (change.before, change.after) == (4, expected)
    assert scene.offsets("in") == [expected]


def test_shift_is_refused_when_there_is_nothing_to_shift(scene: ResetScene) -> None:
    scene.kafka.create_topic("other", partitions=1)
    with pytest.raises(ConfigError, match="other-0 has no committed offset that could be shifted"):
        scene.reset(inputs="in other", scenario=shift_by(1))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:01.500", 1.5),
        ("1970-01-01T00:00:01", 1.0),
        ("1970-01-01T00:00:01.005Z", 1.005),
        ("1970-01-01T01:00:01.000+01:00", 1.0),
        ("1970-01-01T01:00:01.000+0100", 1.0),
        ("1970-01-01T01:00:01.000+01", 1.0),
        ("1969-12-31T22:00:00.250-02:30", 1800.25),
        ("2026-11-21T10:11:12.013", 1795255872.013),
    ],
)
def test_time_is_utc_unless_a_zone_follows(text: str, seconds: float) -> None:
    assert epoch_ms(text) == round(seconds * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-11-21",
        "2026-11-21 10:00:00.000",
        "2026-13-21T10:00:00.000",
        "2026-02-30T10:00:00.000",
        "2026-11-21T25:00:00.000",
        "2026-11-21T10:00:00.5",
        "2026-11-21T10:00",
        "2026-11-21T10:00:00.000+1",
        "2026-11-21T10:00:00.000 UTC",
    ],
)
def test_time_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a date and time"):
        to_datetime(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("P1D", 86400),
        ("PT1H", 3600),
        ("PT1M", 60),
        ("PT1.5S", 1.5),
        ("P2DT3H4M5.006S", 183845.006),
        ("pt90m", 5400),
    ],
)
def test_duration_is_read_as_iso_8601_says(text: str, seconds: float) -> None:
    assert duration_ms(text) == round(seconds * 1000)


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1D", "P1H", "PT1D", "P1M", "P1W", "PT-1H", "-PT1H", "PT1,5S"]
)
def test_duration_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a duration"):
        by_duration(text)


def test_offsets_are_those_of_the_file(scene: ResetScene, tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text("in,0,5\r\n\n")
    assert scene.reset(inputs="in", scenario=from_file(path)).offsets[0].after == 5
    path.write_text(" in , 0 , -5 \n")
    assert scene.reset(inputs="in", scenario=from_file(path)).offsets[0].after == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"in,0,5\nin;1;5\n", "plan.csv:2: 'in;1;5' is not a line of a reset plan"),
        (b"in,0,5\n\nin,1,5\n", "plan.csv:2: '' is not a line"),
        (b"topic,partition,offset\n", "plan.csv:1: 'topic,partition,offset' is not a line"),
        (b"in,0,5.0\n", "plan.csv:1: 'in,0,5.0' is not a line"),
        (b"in,-1,5\n", "plan.csv:1: 'in,-1,5' is not a line"),
        (b"in,0,--5\n", "plan.csv:1"),
        (b",0,5\n", "plan.csv:1"),
        (b"in,0,5\nin,0,6\n", "plan.csv:2: in-0 is on line 1, too"),
        (b"in,0,5\nin,1,6\n", "plan.csv:2: in-1 is not a partition of the input topics to reset"),
        (b"out,0,5\n", "plan.csv:1: out-0 is not a partition of the input topics to reset"),
        (b"\xff\xfe", "it is not UTF-8 text"),
    ],
)
def test_file_of_another_form_is_refused_with_its_line(
    scene: ResetScene, tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "plan.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        scene.reset(inputs="in", scenario=from_file(path))
    assert message in caught.value.cause


def test_file_is_refused_when_it_lacks_a_partition_or_does_not_exist(tmp_path: Path) -> None:
    scene = ResetScene()
    scene.kafka.reader(group_id=APP).commit({TopicPartition("in", 0): CommittedOffset(0)})
    (tmp_path / "plan.csv").write_text("in,1,5\n")
    with pytest.raises(ConfigError, match="says nothing of in-0"):
        scene.reset(inputs="in", scenario=from_file(tmp_path / "plan.csv"))
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        from_file(tmp_path / "none.csv")


def test_one_scenario_is_taken_and_several_are_refused() -> None:
    assert scenario_of({"to-latest": False}) is DEFAULT
    assert scenario_of({"to-latest": True, "to-offset": None}) is TO_LATEST
    with pytest.raises(ConfigError, match="--shift-by and --to-latest each say where"):
        scenario_of({"to-latest": True, "shift-by": 1})
