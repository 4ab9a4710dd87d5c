"""Looks at a broker that falls silent in the middle: answers that never come. A command ends with the broker
named; a triggerer lives on; and the one request that may kill its process is made by another.

Whatever looks is a process here, as for its users: librdkafka may spoil the memory of a process that has
given up requests of an admin client (:mod:`airflow_kstreams.kafka.group_description`). Seen when that client
ended in a later test: a heap that glibc finds corrupted, once in some twenty sessions.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.settings import ApplicationSettings
from dev.proxy.kafka_proxy import Action, KafkaProxy, Rule
from dev.proxy.kafka_request import Api
from tests.support.command_line import process
from tests.support.fresh_python import ROOT
from tests.support.kafka.in_process import Application


@pytest.fixture
def application(
    kafka: str,
    application_id: str,
    create_topic: Callable[..., str],
    topic_name: Callable[..., str],
    produce: Callable[..., object],
) -> Application:
    """An application that has finished a run."""
    source, target = create_topic(topic_name("in")), create_topic(topic_name("out"))
    text = serdes.string()
    builder = KStreamBuilder(default_key_serde=text, default_value_serde=text)
    builder.stream(source).send_to(target)
    made = Application(application_id=application_id, topology=builder.build(), bootstrap=kafka)
    produce(source, [(b"k", b"v")])
    made.run("first")
    return made


#: What goes silent, after how many answers. A read is no request, so nothing but the bound of the
#: whole look ends the first.
SILENCES = {
    "reads": Rule(action="hold_answer", apis=(Api.FETCH,), times=0),
    "offsets of logs": Rule(action="hold_answer", apis=(Api.LIST_OFFSETS,), skip=2, times=0),
    "committed offsets": Rule(action="hold_answer", apis=(Api.OFFSET_FETCH,), times=0),
    "the group's coordinator": Rule(action="hold_answer", apis=(Api.FIND_COORDINATOR,), times=0),
    "everything, soon": Rule(action="hold", skip=8, times=0),
    "everything, later": Rule(action="hold", skip=30, times=0),
}


@pytest.mark.promise("status-ends")
@pytest.mark.parametrize("silence", SILENCES.values(), ids=SILENCES.keys())
def test_status_ends_with_the_broker_named_when_it_falls_silent_in_the_middle(
    application: Application, proxy: KafkaProxy, silence: Rule
) -> None:
    arguments = ("--application-id", application.application_id, "--bootstrap-server", proxy.bootstrap)
    assert "first" in process("status", *arguments).stdout
    held = proxy.add(silence)
    result = process("status", *arguments, "--timeout", "2")
    assert proxy.hits(held)
    assert (result.returncode, result.stdout) == (1, ""), result.stderr
    # The client's warnings of requests that it gives up come before.
    *warnings, line = result.stderr.splitlines()
    assert all(warning.startswith("REQTMOUT") for warning in warnings), result.stderr
    assert line.startswith(f"error: broker unreachable at {proxy.bootstrap}: ")
    assert "-- what to do: check bootstrap.servers and that the broker runs" in line


#: What a broker does that falls silent, or nearly.
ACTIONS: tuple[Action, ...] = (
    "hold",
    "hold_answer",
    "drop",
    "cut",
    "cut_answered",
    "cut_client",
    "cut_broker",
)
#: The requests that it does so with; () for all of them.
REQUESTS: tuple[tuple[int, ...], ...] = (
    (),
    (Api.OFFSET_FETCH,),
    (Api.FIND_COORDINATOR,),
    (Api.LIST_OFFSETS,),
    (Api.METADATA,),
    (Api.FETCH,),
    (Api.DESCRIBE_TOPIC_PARTITIONS,),
)


#: A triggerer looks once more and ends within seconds.
_ENDS_SECONDS = 60.0


@pytest.fixture
def triggerer(application: Application, proxy: KafkaProxy, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """This package's triggers and another's, in one process."""
    source = next(iter(application.topology.plan(application.application_id).sources))
    with (
        (tmp_path / "stderr").open("w") as said,
        subprocess.Popen(
            [
                sys.executable,
                "-X",
                "faulthandler",
                "-m",
                "tests.faults.triggerer_process",
                proxy.bootstrap,
                application.application_id,
                source,
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as running,
    ):
        yield running
        running.kill()


@pytest.mark.promise("looks-kill-no-process")
@pytest.mark.parametrize(
    "silences", [8, pytest.param(400, marks=pytest.mark.prove)], ids=["some", "for a quarter of an hour"]
)
def test_a_triggerer_lives_when_its_broker_falls_silent_and_comes_back(
    triggerer: subprocess.Popen[str], proxy: KafkaProxy, silences: int, tmp_path: Path
) -> None:
    drawn = random.Random(silences)
    assert triggerer.stdout is not None
    assert triggerer.stdout.readline() == "watching\n"
    groups = proxy.add(Rule(action="watch", apis=(Api.DESCRIBE_GROUPS, Api.LIST_GROUPS), times=0))
    for _ in range(silences):
        rule = Rule(
            action=drawn.choice(ACTIONS), apis=drawn.choice(REQUESTS), skip=drawn.randrange(6), times=0
        )
        silence = proxy.add(rule)
        time.sleep(drawn.uniform(0.2, 2.5))
        proxy.release(silence)
        time.sleep(drawn.uniform(0.0, 0.5))
        assert triggerer.poll() is None, f"ended with {triggerer.poll()} after {rule}"

    try:
        out, _ = triggerer.communicate("", timeout=_ENDS_SECONDS)
    except subprocess.TimeoutExpired:
        triggerer.send_signal(signal.SIGABRT)
        triggerer.wait()
        pytest.fail(f"it does not end; its threads: {(tmp_path / 'stderr').read_text()}")
    counts = json.loads(out.splitlines()[-1])
    assert triggerer.returncode == 0
    assert sum(count for what, count in counts.items() if what.endswith(" error"))
    assert counts["another trigger"] > silences
    assert not proxy.hits(groups)


@pytest.fixture
def member(application: Application) -> Iterator[None]:
    """A consumer of somebody's in the application's group."""
    consumer = Consumer({"bootstrap.servers": application.bootstrap, "group.id": application.application_id})
    consumer.subscribe(list(application.topology.plan(application.application_id).sources))
    deadline = time.monotonic() + 60
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    yield
    consumer.close()


@pytest.mark.promise("looks-kill-no-process")
@pytest.mark.usefixtures("member")
def test_the_members_of_a_group_are_asked_for_by_another_process(
    application: Application, proxy: KafkaProxy
) -> None:
    with closing(_impatient(proxy.bootstrap).admin()) as admin:
        assert len(admin.group_members(application.application_id)) == 1
        held = proxy.add(Rule(action="hold_answer", apis=(Api.FIND_COORDINATOR,), times=0))
        with pytest.raises(KafkaClientError, match=f"describing group {application.application_id}"):
            admin.group_members(application.application_id)
        # A request that this process gave up would still be open here, beside those of the child's clients.
        own = {connection.laddr.port for connection in psutil.Process().net_connections("tcp")}
        assert proxy.hits(held)
        assert not [hit for hit in proxy.hits(held) if hit.client_port in own]


@pytest.mark.promise("looks-kill-no-process")
@pytest.mark.usefixtures("member")
def test_a_process_lives_whose_child_the_library_ends(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborting = partial(_instead, "import os; os.abort()", subprocess.Popen)
    monkeypatch.setattr(subprocess, "Popen", aborting)
    with (
        closing(_impatient(application.bootstrap).admin()) as admin,
        pytest.raises(KafkaClientError, match="the process that asked ended with code -6") as caught,
    ):
        admin.group_members(application.application_id)
    assert caught.value.is_retriable


def _impatient(bootstrap: str) -> KafkaCluster:
    """A cluster whose clients wait two seconds for an answer."""
    settings = ApplicationSettings.parse("any", {"client.timeout.ms": "2000"})
    return KafkaCluster({"bootstrap.servers": bootstrap}, settings=settings)


def _instead(program: str, run: Callable[..., Any], _: object, **options: Any) -> Any:
    """Run a program of one line in place of the child."""
    return run([sys.executable, "-c", program], **options)
