"""A command that only looks, before a broker that falls silent in the middle: answers that never come.

The command is a process, as for its users: librdkafka may spoil the memory of a process that has given up
requests of an admin client. Seen when that client ended in a later test: a heap that glibc finds corrupted,
once in some twenty sessions. confluentinc/librdkafka#4605 is of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_kstreams.streams import KStreamBuilder, serdes
from dev.proxy.kafka_proxy import KafkaProxy, Rule
from dev.proxy.kafka_request import Api
from tests.support.command_line import process
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("status-ends")


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
