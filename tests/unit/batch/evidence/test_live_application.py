"""A backfill asks the live application's ledger where its interval began in the logs."""

from __future__ import annotations

import pytest

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError, DataLossError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("half-gone-intervals-are-not-silent")

TEXT = serdes.string()
T0 = 1_600_000_000_000
HOUR = 3_600_000
IN = TopicPartition("in", 0)
#: Values and the hours at which they were written, with the hours that they are dated if they are others.
ARRIVED: tuple[tuple[str, float, float], ...] = (
    ("old", 0.2, 0.2),
    ("a", 0.5, 0.5),
    ("b", 1.1, 1.1),
    ("late", 1.2, 0.9),
    ("c", 1.5, 1.5),
    ("d", 1.6, 1.6),
    ("next", 2.1, 2.1),
)


def interval(number: int) -> tuple[int, int]:
    return (T0 + number * HOUR, T0 + (number + 1) * HOUR)


def copied(to: str) -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    builder.stream("in").send_to(to)
    return builder.build()


class Scene:
    """A live application that runs each hour, and backfills beside it."""

    def __init__(self, autostop: str, settings: dict[str, object] | None = None) -> None:
        self.kafka = InMemoryKafka(clock=ManualClock(now_ms=T0))
        for topic in ("in", "out", "again"):
            self.kafka.create_topic(topic)
        self.live = self.application(
            "live", copied("out"), {"autostop.at": autostop, "settle.ms": 0, **(settings or {})}
        )

    def application(self, name: str, topology: Topology, settings: dict[str, object]) -> Application:
        return Application(
            application_id=name, topology=topology, on=self.kafka, clock=self.kafka.clock, settings=settings
        )

    def backfill(self, live: str = "live") -> Application:
        return self.application(
            "live-backfill-1", copied("again"), {"autostop.at": "interval", "backfill.of": live}
        )

    def until(self, hour: float) -> None:
        """Write what arrives until then."""
        now = (self.kafka.clock.now_ms() - T0) / HOUR
        for value, at, dated in ARRIVED:
            if now <= at < hour:
                key = value.encode()
                self.kafka.append("in", key, key, partition=0, timestamp_ms=T0 + round(dated * HOUR))
        self.kafka.clock.sleep((hour - now) * 3_600)

    def live_run(self, number: int) -> RunSummary:
        return self.live.run(f"hour-{number}", interval_ms=interval(number))

    def hours(self, count: int = 3) -> None:
        """Run each hour shortly after its end."""
        for number in range(count):
            self.until(number + 1.003)
            self.live_run(number)

    @property
    def again(self) -> list[str]:
        return [(record.value() or b"").decode() for record in self.kafka.records("again")]


@pytest.mark.remedy("data_loss.interval_incomplete")
@pytest.mark.parametrize(("autostop", "first"), [("interval_end", 2), ("eol", 0)])
def test_error_says_what_is_gone_when_the_log_starts_with_a_late_record_and_its_command_accepts_it(
    autostop: str, first: int
) -> None:
    scene = Scene(autostop)
    scene.hours()
    scene.kafka.expire({IN: 3})
    backfill = scene.backfill()
    with pytest.raises(DataLossError) as caught:
        backfill.begin("past", interval_ms=interval(1))
    said = f"in-0: records from offset {first} to 3 are gone, at most {3 - first}; the log starts at 3"
    assert said in caught.value.cause
    assert "read from 2 on what came with the interval" in caught.value.cause
    assert "data interval [2020-09-13T13:26:40.000+00:00" in caught.value.cause
    accept_in_memory(caught.value, scene.kafka)
    summary = backfill.run("past", interval_ms=interval(1))
    assert (scene.again, summary.warnings) == (["c", "d"], ())


@pytest.mark.parametrize("autostop", ["interval_end", "eol"])
def test_nothing_is_said_when_the_log_starts_before_what_came_with_the_interval(autostop: str) -> None:
    scene = Scene(autostop)
    scene.kafka.append("in", b"older", b"older", partition=0, timestamp_ms=T0 - 2 * HOUR)
    scene.kafka.append("in", b"older", b"older", partition=0, timestamp_ms=T0 - HOUR)
    scene.hours()
    scene.kafka.expire({IN: 1})
    summary = scene.backfill().run("past", interval_ms=interval(2))
    assert (scene.again, summary.warnings) == (["next"], ())


@pytest.mark.parametrize("live", ["", "live", "nobody"])
def test_warning_names_log_start_and_first_time_when_no_run_says_where_the_interval_began(live: str) -> None:
    scene = Scene("interval_end")
    scene.until(3.003)
    scene.kafka.expire({IN: 3})
    (warning,) = scene.backfill(live).run("past", interval_ms=interval(1)).warnings
    assert "in-0 starts at offset 3 with a record dated 2020-09-13T13:20:40.000+00:00" in warning
    who = f"the ledger of application {live} does not say" if live else "nothing says"
    assert f"and {who} where the data interval [2020-09-13T13:26:40.000+00:00" in warning
    assert scene.again == ["c", "d"]


def test_warning_is_given_when_the_run_that_read_the_interval_read_what_came_before_it_too() -> None:
    scene = Scene("eol")
    scene.until(0.003)
    scene.live_run(-1)
    scene.until(3.003)
    scene.live_run(1)
    scene.kafka.expire({IN: 1})
    (warning,) = scene.backfill().run("past", interval_ms=interval(1)).warnings
    assert "in-0 starts at offset 1" in warning
    assert scene.again == ["b", "c", "d"]


def test_warning_is_given_when_the_offsets_of_the_runs_are_not_kept_any_more() -> None:
    scene = Scene("interval_end", {"ledger.details.kept": 1})
    scene.hours()
    scene.kafka.compact("live-runs")
    scene.kafka.expire({IN: 3})
    (warning,) = scene.backfill().run("past", interval_ms=interval(1)).warnings
    assert "the ledger of application live does not say" in warning


def test_interval_that_no_live_run_has_is_found_by_the_runs_around_it() -> None:
    scene = Scene("interval_end")
    scene.hours()
    scene.kafka.expire({IN: 3})
    with pytest.raises(DataLossError, match="records from offset 2 to 3 are gone, at most 1"):
        scene.backfill().begin("past", interval_ms=(T0 + HOUR, T0 + 3 * HOUR))


def test_topic_that_was_made_anew_since_the_live_run_is_an_error_that_can_be_accepted() -> None:
    scene = Scene("interval_end")
    scene.hours()
    scene.kafka.admin().delete_topics(["in"])
    scene.kafka.create_topic("in")
    scene.kafka.append("in", b"new", b"new", partition=0, timestamp_ms=T0 + HOUR)
    backfill = scene.backfill()
    with pytest.raises(DataLossError, match=r"created again since run 'hour-1' of the live appl") as caught:
        backfill.begin("past", interval_ms=interval(1))
    accept_in_memory(caught.value, scene.kafka)
    backfill.run("past", interval_ms=interval(1))
    assert scene.again == ["new"]


@pytest.mark.remedy("data_loss.interval_incomplete")
def test_log_that_ends_before_what_the_live_run_has_read_is_an_error_that_can_be_accepted() -> None:
    scene = Scene("interval_end")
    scene.hours()
    scene.kafka.truncate(IN, 5)
    backfill = scene.backfill()
    with pytest.raises(DataLossError, match="records from offset 5 to 6 are gone, at most 1") as caught:
        backfill.begin("past", interval_ms=interval(1))
    accept_in_memory(caught.value, scene.kafka)
    backfill.run("past", interval_ms=interval(1))
    assert scene.again == ["b", "c"]


@pytest.mark.parametrize(
    ("application_id", "autostop", "said"),
    [("live", "interval", "that is itself"), ("other", "eol", "it is no backfill"), ("x", "interval", "")],
)
def test_live_application_is_given_to_backfills_alone(application_id: str, autostop: str, said: str) -> None:
    settings = {"autostop.at": autostop, "backfill.of": "live" if said else "no/topic"}
    with pytest.raises(ConfigError, match=said or "cannot name Kafka topics"):
        ApplicationSettings.parse(application_id, settings)


@pytest.mark.remedy("settings.ApplicationSettings.parse: leave it out; or give the backfill an id")
def test_live_application_is_left_out_or_the_backfill_gets_an_id_of_its_own() -> None:
    with pytest.raises(ConfigError, match="that is itself"):
        ApplicationSettings.parse("live", {"autostop.at": "interval", "backfill.of": "live"})
    assert ApplicationSettings.parse("live", {"autostop.at": "interval"}).backfill_of == ""
    own = ApplicationSettings.parse("live-again", {"autostop.at": "interval", "backfill.of": "live"})
    assert own.backfill_of == "live"
