"""Runs by Airflow's own cron intervals where a zone's clocks are changed, on a Kafka in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
from zoneinfo import ZoneInfo

import pendulum
import pytest
from airflow.timetables.base import DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from airflow.utils.types import DagRunType

from airflow_kstreams.operators.work.run_settings import RunIdentity, settings_of_run
from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.streams.topology.outputs import with_outputs
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application

if TYPE_CHECKING:
    from airflow.sdk import Context

pytestmark = pytest.mark.promise("backfills-keep-to-their-interval", "runs-end-with-their-interval")

BERLIN = "Europe/Berlin"
#: The day whose third hour is missing, and the one on which it comes twice.
SHORT, LONG = "2026-03-29", "2026-10-25"
STEP = timedelta(minutes=10)
HOUR_MS = 3_600_000
OUTPUTS = {"out": "out-again"}
TEXT = serdes.string()


@dataclass(frozen=True)
class DagRun:
    """A dag run as Airflow makes it.

    :ivar run_id: as the timetable gives it.
    :ivar interval: its data interval.
    """

    run_id: str
    interval: DataInterval
    run_type: str

    def identity(self, backfill: str) -> RunIdentity:
        instance = SimpleNamespace(dag_id="d", task_id="t", try_number=1, map_index=-1)
        dag_run = SimpleNamespace(
            run_id=self.run_id,
            run_type=self.run_type,
            conf={"backfill": backfill} if backfill else None,
            clear_number=0,
            data_interval_start=self.interval.start,
            data_interval_end=self.interval.end,
        )
        return RunIdentity.of(cast("Context", {"ti": instance, "dag_run": dag_run}))


def bounds(day: str) -> tuple[pendulum.DateTime, pendulum.DateTime]:
    """Return a day's first moment in Berlin, and its seventh hour's."""
    begins = pendulum.parse(day, tz=BERLIN)
    assert isinstance(begins, pendulum.DateTime)
    return begins.in_timezone("UTC"), begins.at(6).in_timezone("UTC")


def dag_runs(day: str, kind: DagRunType, cron: str = "0 * * * *") -> Iterator[DagRun]:
    """Yield the runs of a night, as the scheduler makes them and a backfill does."""
    timetable, last = CronDataIntervalTimetable(cron, BERLIN), None
    begins, ends = bounds(day)
    restriction = TimeRestriction(earliest=begins, latest=ends.subtract(seconds=1), catchup=True)
    while info := timetable.next_dagrun_info(last_automated_data_interval=last, restriction=restriction):
        last = info.data_interval
        assert last is not None
        run_id = timetable.generate_run_id(run_type=kind, run_after=info.run_after, data_interval=last)
        yield DagRun(run_id, last, kind.value)


def copied() -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    builder.stream("in").send_to("out")
    return builder.build()


def joined() -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    hours = builder.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=HOUR_MS, grace_ms=0))
    hours.reduce(lambda one, other: f"{one} {other}", store="joined").suppress().to_stream().map(
        lambda key, value: (key.key, value)
    ).send_to("out")
    return builder.build()


class Night:
    """A night's records in one topic, and what runs make of them."""

    def __init__(self, day: str) -> None:
        self.begins, self.ends = bounds(day)
        self.kafka = InMemoryKafka(clock=ManualClock(now_ms=_ms(self.ends + timedelta(hours=2))))
        for topic in ("in", "out", "out-again"):
            self.kafka.create_topic(topic)
        self.times = []
        at: datetime = self.begins
        while at < self.ends:
            self.times.append(at)
            self.kafka.append("in", self.local(at).encode(), b"k", timestamp_ms=_ms(at))
            at += STEP

    @staticmethod
    def local(at: datetime) -> str:
        """Return a moment as the clocks of Berlin show it."""
        return at.astimezone(ZoneInfo(BERLIN)).strftime("%H:%M%z")

    def run(self, run: DagRun, topology: Topology, *, backfill: str = "") -> str:
        """Run a dag run with the settings that the operators give it, and return its application id."""
        identity = run.identity(backfill)
        settings = settings_of_run(
            identity,
            "app",
            {"autostop.at": "interval_end"},
            outputs=OUTPUTS,
            in_order=bool(backfill),
        )
        Application(
            application_id=settings.application_id,
            topology=with_outputs(topology, settings),
            on=self.kafka,
            clock=self.kafka.clock,
            settings=settings.to_dict(),
        ).run(identity.run_id, identity.order, identity.interval_ms)
        return settings.application_id

    def values(self, topic: str) -> list[str]:
        return [(value or b"").decode() for value in self.kafka.values(topic)]

    def of(self, interval: DataInterval) -> list[str]:
        """Return the records dated in an interval."""
        return [self.local(at) for at in self.times if interval.start <= at < interval.end]


def _ms(at: datetime) -> int:
    return round(at.astimezone(UTC).timestamp() * 1000)


@pytest.mark.parametrize(("day", "hours"), [(SHORT, 5), (LONG, 7)])
def test_each_record_comes_once_in_its_hour_when_clocks_are_changed(day: str, hours: int) -> None:
    made = Night(day)
    live = list(dag_runs(day, DagRunType.SCHEDULED))
    for run in live:
        before = len(made.values("out"))
        made.run(run, copied())
        assert made.values("out")[before:] == made.of(run.interval)
    assert made.values("out") == made.values("in")

    past = list(dag_runs(day, DagRunType.BACKFILL_JOB))
    assert len({made.run(run, copied()) for run in reversed(past)}) == hours
    assert sorted(made.values("out-again")) == sorted(made.values("in"))
    assert len({run.run_id for run in (*live, *past)}) == 2 * hours


@pytest.mark.parametrize(("day", "hours"), [(SHORT, 5), (LONG, 7)])
def test_each_hours_window_comes_once_and_in_order_when_clocks_are_changed(day: str, hours: int) -> None:
    made = Night(day)
    for run in dag_runs(day, DagRunType.SCHEDULED):
        before = len(made.values("out"))
        made.run(run, joined())
        assert made.values("out")[before:] == [" ".join(made.of(run.interval))]
    for run in dag_runs(day, DagRunType.BACKFILL_JOB):
        made.run(run, joined(), backfill="again")
    assert made.values("out-again") == made.values("out")
    assert len(made.values("out")) == hours
