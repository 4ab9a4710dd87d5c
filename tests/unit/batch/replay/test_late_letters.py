"""A replay says how many of its records come too late for windows, and the next run drops as many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.replay_records import Replay
from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.batch.replay.selection import Selection
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes, timestamps
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.windows import HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.unit.batch.growing.test_partition_growth import KEYS
from tests.unit.batch.growing.test_partition_growth import Scene as GrowingScene

pytestmark = pytest.mark.promise("late-letters-are-counted")

HANDLER = {"processing.exception.handler": "dead-letter", "settle.ms": 0}
BAD = b"bad"


class Code:
    """Functions that fail for one value until they are mended, and windows behind them."""

    def __init__(self, behind: Callable[[Any, Any], Any], *, timestamps: Any = None) -> None:
        self.mended = False
        self._behind = behind
        self._timestamps = timestamps

    def check(self, value: str) -> str:
        if value == "bad" and not self.mended:
            raise ValueError("not yet")
        return value

    def topology(self) -> Topology:
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        streams = [
            builder.stream(
                topic, **({"timestamps": self._timestamps} if self._timestamps else {})
            ).map_values(self.check)
            for topic in ("in", "other")
        ]
        self._behind(*streams)
        return builder.build()


class Scene:
    """Two inputs, and an application that makes letters.

    :param partitions: of each input.
    """

    def __init__(self, code: Code, partitions: int = 1) -> None:
        self.clock = ManualClock(now_ms=1_700_000_000_000)
        self.kafka = InMemoryKafka(clock=self.clock)
        for topic in ("in", "other"):
            self.kafka.create_topic(topic, partitions=partitions)
        self.code = code
        self.runs = 0

    @property
    def app(self) -> SwitchingApplication:
        return SwitchingApplication(
            topology=self.code.topology(), cluster=self.kafka, clock=self.clock, settings=HANDLER
        )

    def send(
        self, topic: str, times_ms: Iterable[int], value: bytes = b"v", *, key: str = "a", partition: int = 0
    ) -> None:
        for time_ms in times_ms:
            self.kafka.append(topic, value, key.encode(), partition=partition, timestamp_ms=time_ms)

    def run(self) -> RunSummary:
        self.runs += 1
        return self.app.batch(f"run-{self.runs}")

    def tool(self, replay_id: str = "back", limit: int | None = None) -> DeadLetterReplay:
        selection = Selection.parse(None, limit)
        return DeadLetterReplay(
            self.kafka, self.app.checked, replay_id=replay_id, selection=selection, clock=self.clock
        )

    def replay(self) -> Replay:
        """Replay; what the plan said before is what is said afterwards."""
        planned, done = self.tool().plan(), self.tool().run()
        assert (planned.late, planned.late_unknown) == (done.late, done.late_unknown)
        return done

    def dropped(self) -> int:
        """Mend the functions, run, and return how many records the run dropped as late."""
        self.code.mended = True
        counts = self.run().counts
        assert counts is not None
        return counts.by("late")


def counted(window: Any) -> Callable[[Any, Any], Any]:
    return lambda stream, other: stream.group_by_key().windowed_by(window).count(store="x")


def rekeyed(window: Any) -> Callable[[Any, Any], Any]:
    return lambda stream, other: (
        stream.select_key(lambda key, value: key).group_by_key().windowed_by(window).count(store="x")
    )


def joined(left: int, right: int, grace: int = 0, *, kind: str = "join") -> Callable[[Any, Any], Any]:
    def behind(stream: Any, other: Any) -> None:
        ours, theirs = (
            each.with_window(SlidingWindow(size_ms=size, grace_ms=grace))
            for each, size in ((stream, left), (other, right))
        )
        getattr(ours, kind)(theirs, lambda a, b: "pair", name="x").send_to("out")

    return behind


WINDOWS = {
    "tumbling": TumblingWindow(size_ms=100, grace_ms=30),
    "hopping": HoppingWindow(size_ms=100, advance_ms=40, grace_ms=30),
    "sliding": SlidingWindow(size_ms=100, grace_ms=30),
    "session": SessionWindow(gap_ms=100, grace_ms=30),
}


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_every_record_of_a_closed_window_is_counted_and_no_other(window: Any) -> None:
    scene = Scene(Code(counted(window)))
    # Of keys of their own: no open session takes what is late by itself.
    for time_ms in range(900, 1_201):
        scene.send("in", [time_ms], BAD, key=f"k{time_ms}")
    scene.send("in", [1_230])
    scene.run()

    done = scene.replay()

    assert 0 < done.late["x"] < done.records == 301
    if isinstance(window, SlidingWindow):
        # Whether a window is open that holds a later one depends on the other records of its key.
        assert done.late == {"x": 200}
        assert scene.dropped() >= 200
    else:
        assert scene.dropped() == done.late["x"]


@pytest.mark.parametrize("topic", ["in", "other"])
@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_each_side_of_a_join_goes_by_its_own_window(topic: str, kind: str) -> None:
    scene = Scene(Code(joined(100, 40, 30, kind=kind)))
    scene.kafka.create_topic("out")
    scene.send(topic, range(900, 1_201), BAD)
    # Time is that of both sides.
    scene.send("other", [1_230])
    scene.run()

    done = scene.replay()

    assert done.late == {"x": 200 if topic == "in" else 260}
    assert scene.dropped() == done.late["x"]


def test_sides_of_a_join_are_told_apart_behind_a_repartition() -> None:
    def behind(stream: Any, other: Any) -> None:
        joined(100, 40, 30)(stream.select_key(lambda key, value: key), other)

    for topic, late in (("in", 200), ("other", 260)):
        scene = Scene(Code(behind))
        scene.kafka.create_topic("out")
        scene.send(topic, range(900, 1_201), BAD)
        scene.send("other", [1_230])
        scene.run()

        assert scene.replay().late == {"x": late}
        assert scene.dropped() == late


def test_record_that_comes_on_both_sides_is_late_when_it_is_on_both() -> None:
    scene = Scene(Code(lambda stream, other: joined(100, 40, 30)(stream, stream)))
    scene.kafka.create_topic("out")
    scene.send("in", range(900, 1_201), BAD)
    scene.send("in", [1_230])
    scene.run()

    assert scene.replay().late == {"x": 200}
    # Each of the two sides drops and counts its own.
    assert scene.dropped() == 200 + 260


def test_task_of_the_records_partition_decides() -> None:
    scene = Scene(Code(counted(WINDOWS["tumbling"])), partitions=2)
    ours, theirs = (next(k for k in KEYS if partition_of_key(k.encode(), 2, 2) == n) for n in (0, 1))
    scene.send("in", [900], BAD, key=ours, partition=0)
    scene.send("in", [900], BAD, key=theirs, partition=1)
    scene.send("in", [5_000], key=theirs, partition=1)
    scene.run()

    assert scene.replay().late == {"x": 1}
    assert scene.dropped() == 1


def test_record_behind_a_repartition_is_late_when_it_is_in_every_task() -> None:
    scene = Scene(Code(rekeyed(WINDOWS["tumbling"])), partitions=2)
    scene.send("in", [900, 4_000], BAD)
    # Both tasks behind the repartition get their time.
    for number, key in enumerate(KEYS[:20]):
        scene.send("in", [2_000 + number], key=key)
    first = next(key for key in KEYS if partition_of_key(key.encode(), 2, 2) == 0)
    scene.send("in", [9_000], key=first)
    scene.run()

    assert scene.replay().late == {"x": 1}
    assert scene.dropped() >= 1


def test_nothing_is_late_where_no_task_has_closed_a_window() -> None:
    scene = Scene(Code(counted(WINDOWS["tumbling"])))
    scene.send("in", [900], BAD)
    scene.run()
    done = scene.replay()
    assert (done.records, done.late, done.late_unknown) == (1, {}, 0)
    assert scene.dropped() == 0


def test_nothing_is_late_where_the_broker_dates_what_comes_back() -> None:
    scene = Scene(Code(counted(WINDOWS["tumbling"])))
    scene.kafka.alter_topic("in", message_timestamp_type="LogAppendTime")
    scene.send("in", [900], BAD)
    scene.clock.sleep(1.0)
    scene.send("in", [900])
    scene.run()
    scene.clock.sleep(1.0)

    done = scene.replay()

    assert (done.records, done.late, done.late_unknown) == (1, {}, 0)
    assert scene.dropped() == 0


def test_nothing_is_said_without_windows() -> None:
    scene = Scene(Code(lambda stream, other: stream.group_by_key().count(store="x")))
    scene.send("in", [900], BAD)
    scene.send("in", [90_000])
    scene.run()
    done = scene.replay()
    assert (done.records, done.late, done.late_unknown) == (1, {}, 0)


def test_windows_closed_under_less_grace_stay_closed() -> None:
    scene = Scene(Code(counted(TumblingWindow(size_ms=100, grace_ms=0))))
    scene.send("in", [900], BAD)
    scene.send("in", [1_050])
    scene.run()
    scene.code = Code(counted(TumblingWindow(size_ms=100, grace_ms=500)))
    scene.send("in", [1_060])
    scene.run()

    assert scene.replay().late == {"x": 1}
    assert scene.dropped() == 1


@pytest.mark.parametrize("way", ["extracted", "folded before", "continuous"])
def test_it_is_said_where_it_is_not_known(way: str) -> None:
    def twice(stream: Any, other: Any) -> None:
        first = stream.group_by_key().windowed_by(WINDOWS["tumbling"]).count(store="first")
        again = first.to_stream().select_key(lambda windowed, count: windowed.key)
        again.group_by_key(key_serde=serdes.string(), value_serde=serdes.json()).windowed_by(
            WINDOWS["tumbling"]
        ).count(store="x")

    behind = twice if way == "folded before" else counted(WINDOWS["tumbling"])
    own = timestamps.extract(lambda record: record.timestamp_ms + 1) if way == "extracted" else None
    scene = Scene(Code(behind, timestamps=own))
    scene.send("in", [900], BAD)
    scene.send("in", [5_000])
    scene.run()
    if way == "continuous":
        scene.app.run_continuously("endless").close()

    done = scene.replay()

    assert done.late_unknown == 1
    assert done.late == ({"first": 1} if way == "folded before" else {})


def test_record_is_judged_where_its_key_has_gone_since_the_topic_grew() -> None:
    code = Code(counted(WINDOWS["tumbling"]))
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    code._behind(builder.stream("in").map_values(code.check), None)
    scene = GrowingScene(1, builder.build(), settings=HANDLER)
    scene.send(KEYS, 0, timestamp_ms=900)
    for key in KEYS[:2]:
        scene.kafka.append("in", BAD, key.encode(), partition=0, timestamp_ms=900)
    scene.run()
    scene.grow(2)
    scene.send(KEYS, 1, timestamp_ms=9_000)
    for _ in range(3):
        scene.run()

    done = DeadLetterReplay(scene.kafka, scene.app.checked, replay_id="back").run()

    assert (done.records, done.late) == (2, {"x": 2})
    code.mended = True
    assert scene.run().counts.by("late") == 2


def test_counts_add_up_over_the_calls_of_one_replay() -> None:
    scene = Scene(Code(counted(WINDOWS["tumbling"])))
    scene.send("in", [900] * 5, BAD)
    scene.send("in", [5_000])
    scene.run()

    assert scene.tool("some", limit=2).run().late == {"x": 2}
    assert scene.tool("some", limit=2).run().late == {"x": 2}
    assert scene.tool("rest").run().late == {"x": 3}
