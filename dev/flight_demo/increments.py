"""One increment: publish the next stretch of days, run the DAG through Airflow, show what it did."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.kafka.cluster import KafkaCluster
from dev.flight_demo.by_hand import ByHand
from dev.flight_demo.data import Stretch, records
from dev.flight_demo.kafka_look import KafkaLook
from dev.flight_demo.local_airflow import AirflowError, LocalAirflow
from dev.flight_demo.publisher import publish
from dev.flight_demo.view import View

if TYPE_CHECKING:
    from rich.progress import Progress

APPLICATION_ID = "flight-delays"
DAG_ID = "flight_delays_hourly"
_REPARTITION = f"{APPLICATION_ID}-delays-repartition"
_RUN_SECONDS = 300.0
_POLL_SECONDS = 0.3

#: Carrier -> its totals, as ``carrier-delays`` holds them.
CarrierTable = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Increments:
    """Runs increments of the demo.

    :param bootstrap: of the broker.
    :param airflow: a healthy Airflow with the DAG unpaused, or what runs the application file by hand.
    :param view: shows what happens.
    """

    bootstrap: str
    airflow: LocalAirflow | ByHand
    view: View

    def publish(self, stretch: Stretch) -> None:
        """Publish the flights and the weather of some days, and with the first of them the airlines."""
        batch = records(stretch)
        counts = Counter(record.topic for record in batch)
        with self.view.progress() as progress:
            bar = progress.add_task(f"publishing {stretch}", total=len(batch))
            started = time.monotonic()
            publish(self.bootstrap, batch, on_progress=lambda count: progress.advance(bar, count))
            seconds = time.monotonic() - started
        published = ", ".join(f"{count:,} records of {topic}" for topic, count in sorted(counts.items()))
        self.view.say(f"published {published}, of {stretch}, in {seconds:.1f} s")

    def run(self, run_id: str) -> tuple[RunSummary, float]:
        """Trigger the DAG, wait for its end and show the run.

        :return: the ledger's summary of the run, and the sum of the three operators' ``execute`` in seconds.
        :raises AirflowError: the dag run failed, or did not end in time.
        """
        look = KafkaLook(self.bootstrap)
        before = set(self.ledger())
        if isinstance(self.airflow, ByHand):
            self.airflow.trigger(APPLICATION_ID, run_id)
        else:
            self.airflow.trigger(DAG_ID, run_id)
        self._wait_for(run_id, look)
        runs = self.ledger()
        if run_id not in runs:
            raise AirflowError(f"dag run {run_id} succeeded, but the run ledger does not have it")
        # On the full hour the schedule itself may have got a run in between; what it did belongs here, too.
        for other in (run for name, run in runs.items() if name not in before and name != run_id):
            self.view.run(other, {}, {})
        seconds = {} if isinstance(self.airflow, ByHand) else self.airflow.execute_seconds(run_id)
        self.view.run(runs[run_id], look.last_values(f"{APPLICATION_ID}-metadata"), seconds)
        return runs[run_id], sum(seconds.values())

    def carriers(self) -> CarrierTable:
        """Return the carrier table as it is now."""
        values = KafkaLook(self.bootstrap).last_values("carrier-delays")
        return {carrier: json.loads(value) for carrier, value in values.items()}

    def ledger(self) -> dict[str, RunSummary]:
        """Return the finished runs."""
        cluster = KafkaCluster({"bootstrap.servers": self.bootstrap})
        ledger = read_ledger(cluster, APPLICATION_ID)
        return {run_id: ledger.detailed(run) for run_id, run in ledger.all_runs().items()}

    def _wait_for(self, run_id: str, look: KafkaLook) -> None:
        deadline = time.monotonic() + _RUN_SECONDS
        with self.view.progress() as progress:
            bars = _CommittedBars(progress, look)
            while (state := self._state(run_id)) in ("queued", "running"):
                if time.monotonic() > deadline:
                    raise AirflowError(f"dag run {run_id} did not end within {_RUN_SECONDS:.0f} s")
                bars.update()
                time.sleep(_POLL_SECONDS)
            bars.update()
        if state != "success":
            for line in self._log_tail(run_id):
                self.view.console.print(f"  {line}", highlight=False, markup=False)
            raise AirflowError(
                f"dag run {run_id} ended as {state}; the end of its failed task's log is above"
            )

    def _state(self, run_id: str) -> str:
        if isinstance(self.airflow, ByHand):
            return self.airflow.run_state(run_id)
        return self.airflow.run_state(DAG_ID, run_id)

    def _log_tail(self, run_id: str) -> list[str]:
        if isinstance(self.airflow, ByHand):
            return self.airflow.log_tail(run_id)
        return self.airflow.log_tail(DAG_ID, run_id)


class _CommittedBars:
    """One bar per stage: committed offsets on their way to the end of what there is to read."""

    def __init__(self, progress: Progress, look: KafkaLook) -> None:
        self._progress = progress
        self._look = look
        self._starts = look.committed(APPLICATION_ID, ["flights", _REPARTITION])
        self._bars = {
            "flights": progress.add_task("flights with weather -> repartition topic", total=None),
            _REPARTITION: progress.add_task("departures with airlines -> carrier-delays", total=None),
        }

    def update(self) -> None:
        """Look once."""
        topics = list(self._bars)
        committed = self._look.committed(APPLICATION_ID, topics)
        ends = self._look.ends(topics)
        for topic, bar in self._bars.items():
            start = sum(offset for (name, _), offset in self._starts.items() if name == topic)
            done = sum(offset for (name, _), offset in committed.items() if name == topic) - start
            total = sum(offset for (name, _), offset in ends.items() if name == topic) - start
            self._progress.update(bar, completed=done, total=total or None)
