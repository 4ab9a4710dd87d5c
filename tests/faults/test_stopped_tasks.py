"""SIGSTOP of tasks past their transaction timeout, another driver's retry, then SIGCONT: what the zombies
still send never becomes visible.

The proxy holds one request of each task, so that each is stopped at a known point: before it claimed its
transactional id, before the broker got its first record, before the broker got its commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psutil
import pytest

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.ports import TopicPartition
from dev.proxy.kafka_proxy import KafkaProxy, Rule
from dev.proxy.kafka_request import FENCED, Api, end_txn_error, init_producer_id_error
from tests.conftest import Row
from tests.support.kafka.kafka_tools import hanging_transactions
from tests.support.spark.gated_scene import Scene

pytestmark = pytest.mark.promise("zombies-change-nothing")

RECORDS = 3_000
PARTITIONS = 3


def processes_at(ports: set[int]) -> list[psutil.Process]:
    """Return the processes that hold the client's end of these connections; some may have gone by now."""
    return [
        psutil.Process(connection.pid)
        for connection in psutil.net_connections("tcp")
        if connection.laddr and connection.laddr.port in ports and connection.pid
    ]


def answers_to(proxy: KafkaProxy, number: int) -> list[bytes]:
    """Return the broker's answers to what a rule held, once all of it is answered."""
    answers = [hit.answer for hit in proxy.hits(number)]
    return [answer for answer in answers if answer] if all(answers) else []


def timed_out(scene: Scene, topic: str) -> Callable[[], bool]:
    """Return a condition: no transaction is open on the topic, and there was one."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def check() -> bool:
        admin = KafkaCluster({"bootstrap.servers": scene.bootstrap}).admin()
        try:
            high = admin.end_offsets(partitions, isolation="read_uncommitted")
            return high == admin.end_offsets(partitions, isolation="read_committed") and any(high.values())
        finally:
            admin.close()

    return check


def everything(scene: Scene, repartition: str, consume_all: Callable[..., list[Row]]) -> object:
    """What anybody can see of the run: its results, its intermediate records and its offsets."""
    reader = KafkaCluster({"bootstrap.servers": scene.bootstrap}).reader(group_id=scene.application_id)
    try:
        offsets = reader.committed(
            [TopicPartition(topic, n) for topic in (scene.source, repartition) for n in range(PARTITIONS)]
        )
    finally:
        reader.close()
    return consume_all(scene.target), consume_all(repartition), offsets


@pytest.mark.parametrize("scene", [PARTITIONS], indirect=True)
def test_zombies_change_nothing_when_they_wake_up_after_their_retry(
    scene: Scene, proxy: KafkaProxy, wait_until: Callable[..., Any], consume_all: Callable[..., list[Row]]
) -> None:
    repartition = f"{scene.application_id}-sums-repartition"
    scene.publish(0, RECORDS)
    held = [
        proxy.add(
            Rule(
                action="hold",
                apis=(api,),
                transactional_id=f"{scene.application_id}-0_{group}",
                commits=True if api == Api.END_TXN else None,
                times=0,  # what a client repeats while another task is on its way to its point is held, too
            )
        )
        for group, api in enumerate((Api.INIT_PRODUCER_ID, Api.PRODUCE, Api.END_TXN))
    ]
    local = "--master local[3,4] --conf spark.driver.memory=512m --conf spark.ui.enabled=false pyspark-shell"
    frozen_driver = replace(
        scene, bootstrap=proxy.bootstrap, launch={"MASTER": "local", "PYSPARK_SUBMIT_ARGS": local}
    )
    first = frozen_driver.start("run-1", transaction_timeout_ms="10000")

    def all_held() -> list[psutil.Process]:
        first.check_alive()
        ports = [{hit.client_port for hit in proxy.hits(number)} for number in held]
        found = [process for some in ports for process in processes_at(some)[:1]]
        return found if len(found) == PARTITIONS else []

    tasks: list[psutil.Process] = wait_until(all_held, "every task at its point", seconds=120)
    assert len({task.pid for task in tasks}) == PARTITIONS
    stops, in_slice = scene.stops(), list(scene.sent)
    driver = psutil.Process(first.pid)
    family = [driver, *driver.children(recursive=True)]
    assert {task.pid for task in tasks} <= {process.pid for process in family}
    for process in family:
        process.suspend()
    scene.publish(RECORDS, RECORDS + 300)
    wait_until(timed_out(scene, repartition), "the end of the stopped task's transaction")
    assert consume_all(repartition) == []

    second = scene.start("run-1")
    assert second.wait() == 0, second.output()[-6000:]
    assert scene.stops() == stops, "a run that has begun keeps its stop offsets"
    assert scene.results() == scene.sums(in_slice)
    before = everything(scene, repartition, consume_all)

    assert [task.status() for task in tasks] == [psutil.STATUS_STOPPED] * PARTITIONS
    for task in tasks:
        task.resume()
    proxy.clear()
    wait_until(
        lambda: all(answers_to(proxy, number) for number in held), "the broker's answers to the zombies"
    )
    claims, _, commits = (answers_to(proxy, number) for number in held)
    assert {end_txn_error(answer) for answer in commits} <= set(FENCED)
    assert 0 in {init_producer_id_error(answer) for answer in claims}, (
        "whoever claims an id gets it, and then finds the run taken over"
    )

    for process in family:
        if process.is_running():
            process.resume()
    assert first.wait() == 1
    assert everything(scene, repartition, consume_all) == before
    assert "RunSupersededError" in first.output(), first.output()[-6000:]
    assert hanging_transactions(scene.bootstrap) == []
