"""Requests of a task's commit that are lost, late or unanswered: what was committed is found out, never
guessed, and no result is missing or doubled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings
from dev.proxy.kafka_proxy import Action, KafkaProxy, Rule
from dev.proxy.kafka_request import FENCED, Api, end_txn_error, txn_offset_commit_error
from tests.conftest import Row
from tests.support.kafka.one_task import EVERY, Gate, HowCalled, MakeTask, OneTask

pytestmark = pytest.mark.promise("late-answers-end-nothing", "retries-keep-order")

HARMFUL: tuple[Action, ...] = tuple(action for action in get_args(Action) if action != "watch")


def rule(task: OneTask, action: Action, api: Api) -> Rule:
    """Aim at the second such request of the task's commits."""
    commits = True if api == Api.END_TXN else None
    return Rule(action=action, apis=(api,), commits=commits, skip=1, transactional_id=task.transactional_id)


@pytest.mark.parametrize(
    "called",
    [
        "at once",
        pytest.param("loop", marks=pytest.mark.prove),
        pytest.param("threads", marks=pytest.mark.prove),
        pytest.param("parked", marks=pytest.mark.prove),
    ],
)
@pytest.mark.parametrize("api", [Api.END_TXN, Api.TXN_OFFSET_COMMIT], ids=lambda api: api.name)
def test_results_are_exact_when_a_request_or_its_answer_is_harmed(
    proxy: KafkaProxy, one_task: MakeTask, api: Api, called: HowCalled
) -> None:
    def harmed(action: Action) -> TaskReport:
        task = one_task(called=called)
        slice_ = task.direct.begin("run-1")
        number = proxy.add(rule(task, action, api))
        report = task.proxied.task(slice_, 0, 0)
        assert len(proxy.hits(number)) == 1, "the fault fired between begin and finish"
        proxy.release(number)
        task.end(slice_)
        return report

    # Most of it is waiting for time-outs, so all run side by side, each on its own application.
    with ThreadPoolExecutor(max_workers=len(HARMFUL)) as pool:
        running = {action: pool.submit(harmed, action) for action in HARMFUL}
    assert {action: future.exception() for action, future in running.items()} == dict.fromkeys(HARMFUL)
    attempts = {action: future.result().attempts for action, future in running.items()}
    assert min(attempts.values()) > 1, f"the writer was suspect and left: {attempts}"


def test_late_request_harms_no_later_transaction_when_its_sender_gave_it_up(
    proxy: KafkaProxy, one_task: MakeTask, wait_until: Callable[..., Any]
) -> None:
    """The request of one commit comes to the broker in the middle of a later transaction of the task.

    Told in time, the client repeats it within the call and the commit succeeds; told too late, the call fails
    and its outcome is unknown.
    """

    def arrives_late(api: Api, told: str) -> None:
        timeout_ms = 20_000 if told == "in time" else 1_000
        task = one_task(Gate(), client_timeout_ms=timeout_ms, socket_timeout_ms="1000")
        slice_ = task.direct.begin("run-1")
        late = proxy.add(rule(task, "hold", api))
        with ThreadPoolExecutor(max_workers=1) as pool:
            running = pool.submit(task.proxied.task, slice_, 0, 0)
            try:
                wait_until(task.gate.reached.is_set, "the later transaction")
                wait_until(lambda: len(task.echoed("read_uncommitted")) > 2 * EVERY, "its first records")
                (hit,) = proxy.hits(late)
                assert not hit.forwarded
                proxy.release(late)
                wait_until(lambda: proxy.hits(late)[0].answer, "the broker's answer to the late request")
                assert task.echoed() == list(range(2 * EVERY)), "the later transaction is still open"
            finally:
                task.gate.opened.set()
                proxy.release(late)
            assert running.result().attempts > 1
        answer = proxy.hits(late)[0].answer or b""
        error = end_txn_error(answer) if api == Api.END_TXN else txn_offset_commit_error(answer)
        assert error in FENCED
        task.end(slice_)

    cases = [(api, told) for api in (Api.END_TXN, Api.TXN_OFFSET_COMMIT) for told in ("in time", "too late")]
    with ThreadPoolExecutor(max_workers=len(cases)) as pool:
        running = {case: pool.submit(arrives_late, *case) for case in cases}
    assert {case: future.exception() for case, future in running.items()} == dict.fromkeys(cases)


#: Action, pause between statistics in milliseconds, and whether the writer is suspect after its commit.
SLOW_COMMITS: list[tuple[Rule, int, bool]] = [
    (Rule(action="cut_client"), 25, True),
    (Rule(action="cut_client"), 60_000, True),
    (Rule(action="hold_answer", seconds=0.4), 25, False),
]


@pytest.mark.parametrize(("harm", "pause_ms", "suspect"), SLOW_COMMITS)
def test_writer_is_left_only_when_its_commit_may_have_been_repeated(
    proxy: KafkaProxy,
    application_id: str,
    create_topic: Callable[..., str],
    topic_name: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    harm: Rule,
    pause_ms: int,
    suspect: bool,
) -> None:
    """Statistics that do not come in time count as bad news."""
    monkeypatch.setattr("airflow_kstreams.kafka.writer._STATISTICS_INTERVAL_MS", pause_ms)
    settings = ApplicationSettings.parse(application_id, {"client.timeout.ms": 2_000})
    cluster = KafkaCluster(
        {"bootstrap.servers": proxy.bootstrap, "socket.timeout.ms": 30_000}, settings=settings
    )
    topic = create_topic(topic_name())
    writer = cluster.writer(transactional_id=application_id)
    try:
        writer.init_transactions()
        writer.begin()
        writer.produce(topic, b"v", b"k", 0)
        writer.flush()
        number = proxy.add(replace(harm, apis=(Api.END_TXN,)))
        writer.commit()
        assert len(proxy.hits(number)) == 1
        assert writer.suspect == suspect
    finally:
        proxy.clear()
        writer.close()


@pytest.mark.promise("every-run-ends")
def test_adding_offsets_ends_in_time_when_nobody_says_where_the_group_is(
    kafka: str,
    proxy: KafkaProxy,
    application_id: str,
    create_topic: Callable[..., str],
    topic_name: Callable[..., str],
    consume_all: Callable[..., list[Row]],
) -> None:
    """The client's own time limit does not reach its search for the group's coordinator."""
    settings = ApplicationSettings.parse(application_id, {"client.timeout.ms": 1_000})
    direct = KafkaCluster({"bootstrap.servers": kafka})
    proxied = KafkaCluster({"bootstrap.servers": proxy.bootstrap}, settings=settings)
    topic = create_topic(topic_name())
    with (
        closing(direct.reader(group_id=application_id)) as reader,
        closing(proxied.writer(transactional_id=application_id)) as stuck,
        closing(direct.writer(transactional_id=application_id)) as earlier,
        closing(direct.writer(transactional_id=application_id)) as following,
    ):
        earlier.init_transactions()  # waits for a young broker's coordinators
        stuck.init_transactions()
        stuck.begin()
        stuck.produce(topic, b"lost", b"k", 0)
        stuck.flush()
        proxy.add(Rule(action="cut", apis=(Api.FIND_COORDINATOR,), times=0))
        with pytest.raises(
            KafkaClientError, match=r"adding offsets to the transaction of .* no answer within 1 s"
        ) as raised:
            stuck.send_offsets({TopicPartition(topic, 0): CommittedOffset(1)}, reader)
        assert raised.value.is_retriable
        assert stuck.suspect
        proxy.clear()
        following.init_transactions()
        following.begin()
        following.produce(topic, b"kept", b"k", 0)
        following.send_offsets({TopicPartition(topic, 0): CommittedOffset(1)}, reader)
        following.commit()
    assert [row.value for row in consume_all(topic)] == [b"kept"]


def test_commit_of_a_reader_ends_in_time_when_nobody_says_where_the_group_is(
    kafka: str,
    proxy: KafkaProxy,
    application_id: str,
    create_topic: Callable[..., str],
    topic_name: Callable[..., str],
) -> None:
    settings = ApplicationSettings.parse(application_id, {"client.timeout.ms": 1_000})
    proxied = KafkaCluster({"bootstrap.servers": proxy.bootstrap}, settings=settings)
    partition = TopicPartition(create_topic(topic_name()), 0)
    proxy.add(Rule(action="cut", apis=(Api.FIND_COORDINATOR,), times=0))
    with closing(proxied.reader(group_id=application_id)) as stuck:
        with pytest.raises(KafkaClientError, match="committing offsets") as raised:
            stuck.commit({partition: CommittedOffset(1)})
        assert raised.value.is_retriable
        direct = KafkaCluster({"bootstrap.servers": kafka})
        with closing(direct.reader(group_id=application_id)) as following:
            following.commit({partition: CommittedOffset(2)})
            proxy.clear()
            # Long enough for the client to ask twice where the group is.
            time.sleep(2.5)
            assert following.committed([partition]) == {partition: CommittedOffset(2)}
