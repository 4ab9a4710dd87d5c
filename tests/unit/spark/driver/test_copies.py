"""What is shipped to Spark when state is copied there."""

from __future__ import annotations

from typing import Any

import msgspec

from airflow_kstreams.batch.expand.processor_plan import plan_processors
from airflow_kstreams.batch.growing.state_copy import CopyWork
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.spark.driver.copies import SparkCopies
from airflow_kstreams.spark.executor.copy_host import CopyHost
from airflow_kstreams.spark.executor.machine_files import ClientSettings
from airflow_kstreams.spark.executor.report_rows import HostReport
from airflow_kstreams.spark.executor.task_host import TaskHost
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.unit.batch.expand.test_processor_expansion import grown

CLIENT = ClientSettings(path="client.json", mask="bWFzaw==")


def works() -> list[CopyWork]:
    """What is copied of the state of an application that is to have four processors."""
    scene = grown(2, 4)
    session = CoordinatorSession(scene.kafka, scene.app.checked)
    try:
        return plan_processors(session, None, 4).works
    finally:
        session.close()


class Hosts:
    """Takes what is shipped."""

    def __init__(self) -> None:
        self.client = CLIENT
        self.ran: list[tuple[CopyHost, str]] = []

    def run(self, host: Any, *, run_id: str) -> list[HostReport]:
        self.ran.append((host, run_id))
        return [HostReport(copied="copied"), HostReport(copied="fenced")]

    def cancel(self) -> None:
        raise AssertionError("nobody asked for that")


def test_each_share_is_a_spark_task_and_says_how_its_copies_ended() -> None:
    hosts: Any = Hosts()
    settings = ApplicationSettings.parse("app")
    first, second = works()
    assert SparkCopies(hosts, settings).copy([[first], [second]], 7.5) == ["copied", "fenced"]
    host = CopyHost(settings=settings, works=((first,), (second,)), rate=7.5, client=CLIENT)
    assert hosts.ran == [(host, "app-catchup")]
    assert host.names == [["0_0"], ["0_1"]]


def test_host_is_the_same_when_it_has_travelled() -> None:
    host = CopyHost(
        settings=ApplicationSettings.parse("app"),
        works=tuple((work,) for work in works()),
        rate=None,
        client=CLIENT,
    )
    assert msgspec.json.decode(msgspec.json.encode(host), type=TaskHost | CopyHost) == host
