"""Waits, bounded, until a fresh client has reached its cluster, so that wrong addresses and credentials show
at once.

The client library retries connections for ever and reports failures by callback only, which it runs inside
``poll``: a single blocking call would take its whole timeout on a wrong password. So the first contact is
made in short steps, each with a ``poll`` after it.

A fresh client connects to the address that it was given, and then to the brokers that it has learned of.
Between these first connections librdkafka pauses for half of ``reconnect.backoff.ms``, 11 ms at least. Its
own default of 100 ms would make every client 40 ms late, and a task makes several; so each is made with
20 ms. The pause after a failed connection doubles from there up to ``reconnect.backoff.max.ms``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from confluent_kafka import Message

from airflow_kstreams.kafka.client_errors import (
    UNREACHABLE,
    guarded,
    kafka_error_of,
    unreachable,
    wrong_credentials,
    wrong_listener,
)
from airflow_kstreams.kafka.events import ClientEvents
from airflow_kstreams.kafka.listener import look_at

_STEP_SECONDS = 0.5
#: Asking for one topic that does not exist is the cheapest request whose answer is awaited. Clients of this
#: package are configured never to create topics by asking for them.
NO_SUCH_TOPIC = "airflow_kstreams.are-you-there"


class _Client(Protocol):
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any: ...
    def poll(self, timeout: float = -1) -> Any: ...


def bootstrap_of(config: Mapping[str, str]) -> str:
    """Return the bootstrap servers as they appear in messages."""
    return config.get("bootstrap.servers", "?")


def await_connection(
    client: _Client, events: ClientEvents, *, config: Mapping[str, str], timeout_seconds: float
) -> None:
    """Return once the cluster has answered.

    :param config: the client's settings.
    :raises KafkaClientError: the cluster did not answer in time, or (at once) it refused the credentials, or
        the settings do not fit the listener.
    """
    bootstrap = bootstrap_of(config)
    deadline = time.monotonic() + timeout_seconds
    looked = False
    while True:
        step = min(_STEP_SECONDS, max(deadline - time.monotonic(), 0.001))
        answered = guarded("connecting", bootstrap, _ask, client, step)
        polled = guarded("connecting", bootstrap, client.poll, 0)
        if isinstance(polled, Message):
            events.note_group_error(polled)
        if answered:
            events.seen_connected()
            return
        complaint = events.credentials_error or events.last_error
        if complaint and not looked:
            looked = True
            finding = look_at(config, complaint) if _may_be_settings(complaint) else None
            if finding is not None:
                raise wrong_listener(bootstrap, finding)
        if events.credentials_error:
            raise wrong_credentials(bootstrap, events.credentials_error)
        if time.monotonic() >= deadline:
            detail = events.last_error or "no answer"
            raise unreachable(bootstrap, f"{detail} (waited {timeout_seconds:g} s)")


def _may_be_settings(complaint: str) -> bool:
    """Whether a complaint may come from settings that do not fit the listener."""
    return "SSL" in complaint or "Disconnected" in complaint


def _ask(client: _Client, step_seconds: float) -> bool:
    try:
        client.list_topics(NO_SUCH_TOPIC, timeout=step_seconds)
    except Exception as error:
        kafka_error = kafka_error_of(error)
        if kafka_error is not None and kafka_error.code() in UNREACHABLE:
            return False
        raise
    return True
