"""The coordinator's EndTxn is lost, late or unanswered: a run that has begun keeps its stop offsets, and one
that is finished is finished once, whatever the caller was told.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import pytest

from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.streams.errors import KStreamsError
from dev.proxy.kafka_proxy import Action, KafkaProxy, Rule
from dev.proxy.kafka_request import FENCED, Api, end_txn_error
from tests.support.kafka.one_task import RECORDS, MakeTask, OneTask

pytestmark = pytest.mark.promise("late-answers-end-nothing")

HARMFUL: tuple[Action, ...] = tuple(action for action in get_args(Action) if action != "watch")
#: Published after the run may have begun.
LATE_RECORDS = 10
Scenario = Callable[[OneTask, Callable[[], None]], None]


def begin_harmed(task: OneTask, release: Callable[[], None]) -> None:
    attempt(lambda: task.proxied.begin("run-1"))
    begun = read_status(task.direct.cluster, task.direct.application_id)
    task.publish(RECORDS, RECORDS + LATE_RECORDS)
    slice_ = task.direct.begin("run-1", (0, 2))
    if begun.state is RunState.RUNNING and begun.slice is not None:
        assert slice_.inputs == begun.slice.inputs, "a run that has begun keeps its stop offsets"
    # The client that was left may have had its commit through after this test looked and before the second
    # claim: which of the two it was, the slice tells.
    (source,) = slice_.inputs
    assert source.stop_offset in (RECORDS, RECORDS + LATE_RECORDS)
    release()
    task.direct.tasks(slice_)
    task.end(slice_, source.stop_offset)


def finish_harmed(task: OneTask, release: Callable[[], None]) -> None:
    slice_ = task.direct.begin("run-1")
    task.direct.tasks(slice_)
    attempt(lambda: task.proxied.finish("run-1"))
    task.publish(RECORDS, RECORDS + LATE_RECORDS)
    assert task.direct.finish("run-1").records_in == RECORDS
    task.check(RECORDS)
    following = task.direct.begin("run-2")
    release()
    task.direct.tasks(following)
    assert task.direct.finish("run-2").records_in == LATE_RECORDS
    assert task.echoed() == list(range(RECORDS + LATE_RECORDS))


def attempt(call: Callable[[], object]) -> None:
    """Make a call that may fail, if only its caller is told to try again."""
    try:
        call()
    except KStreamsError as error:
        assert error.is_retriable, error


@pytest.mark.parametrize("scenario", [begin_harmed, finish_harmed])
def test_decision_is_made_once_when_its_commit_is_harmed(
    proxy: KafkaProxy, one_task: MakeTask, wait_until: Callable[..., Any], scenario: Scenario
) -> None:
    def harmed(action: Action) -> None:
        task = one_task(client_timeout_ms=3_000)
        coordinator = f"{task.direct.application_id}-coordinator"
        rule = Rule(action=action, apis=(Api.END_TXN,), commits=True, transactional_id=coordinator)
        number = proxy.add(rule)

        def release() -> None:
            (hit,) = proxy.hits(number)
            if action != "hold":
                return
            assert not hit.forwarded
            proxy.release(number)
            wait_until(lambda: proxy.hits(number)[0].answer, "the broker's answer to the late request")
            assert end_txn_error(proxy.hits(number)[0].answer or b"") in FENCED

        scenario(task, release)

    with ThreadPoolExecutor(max_workers=len(HARMFUL)) as pool:
        running = {action: pool.submit(harmed, action) for action in HARMFUL}
    assert {action: future.exception() for action, future in running.items()} == dict.fromkeys(HARMFUL)
