"""A run whose attempts begin, fail, are taken over and finish, on Kafka in memory, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.batch.ledger.history import RunHistory
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.support.kafka.ledger_history import APP


def copying(source: str = "in") -> Topology:
    """Return a topology that copies a topic."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream(source).send_to("out")
    return builder.build()


def copying_twice() -> Topology:
    """Return a topology that copies a topic by a repartition topic: two subtopologies."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").repartition(1, name="again").send_to("out")
    return builder.build()


class AttemptsScene:
    """An application on Kafka in memory, with a record to read."""

    def __init__(self, topology: Topology | None = None) -> None:
        self.topology = topology or copying()
        self.kafka = InMemoryKafka()
        self.kafka.create_topic("in")
        self.kafka.create_topic("out")
        self.kafka.append("in", b"x", b"x")
        self.app = Application(
            application_id=APP, topology=self.topology, on=self.kafka, clock=self.kafka.clock
        )
        self.settings = ApplicationSettings.parse(APP, {"autostop.at": "eol"})

    @property
    def ledger(self) -> Ledger:
        """The ledger as it is now."""
        return read_ledger(self.kafka, APP, clock=self.kafka.clock)

    def history(self, run_id: str = "r") -> RunHistory:
        """Return what the ledger keeps of a run."""
        found = self.ledger.history(run_id)
        assert found is not None
        return found

    def coordinator(self, cluster: ClusterPort | None = None) -> Coordinator:
        """Make a coordinator.

        :param cluster: where its calls go; straight to the Kafka in memory unless given.
        """
        return Coordinator(cluster or self.kafka, self.settings, clock=self.kafka.clock)

    def begin(self, coordinator: Coordinator, number: int = 1, run_id: str = "r", **more: Any) -> Any:
        """Let a driver, or a capture without a lease, begin a run; return the slice."""
        given = {"topology": self.topology, "hold_lease": True, "dag_id": "", **more}
        return coordinator.begin(
            run_id,
            given["topology"].plan(APP),
            order=(0, number),
            owner=f"try {number}",
            hold_lease=given["hold_lease"],
            dag_id=given["dag_id"],
        ).slice

    def fail(self, number: int, error: BaseException, **more: Any) -> None:
        """Let a driver begin, and fail with an error while it holds the lease."""
        coordinator = self.coordinator()
        self.begin(coordinator, number, **more)
        with (
            pytest.raises(type(error)),
            coordinator.lease.keep(),
            coordinator.attempt.ending(),
        ):
            self.kafka.clock.sleep(2)
            raise error
        coordinator.close()

    def finish(self, number: int = 9, run_id: str = "r") -> None:
        """Let a driver begin, process and finish a run."""
        coordinator = self.coordinator()
        slice_ = self.begin(coordinator, number, run_id)
        with coordinator.lease.keep(), coordinator.attempt.ending():
            reports = self.app.tasks(slice_)
            coordinator.attempt.reports = lambda: reports
            coordinator.finish(run_id, reports=reports)
        coordinator.close()
