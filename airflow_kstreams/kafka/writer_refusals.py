"""What the ACLs keep a writer from, by name.

The client reports separately that something is forbidden and what it is: the call fails at once, while the
topic comes with the client's log or with a delivery report, which it serves a moment later. The error must
name the permission that is missing, so the code that explains a refusal waits for that name, bounded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from airflow_kstreams.kafka.delivery import DeliveryFailures
from airflow_kstreams.kafka.errors import FORBIDDEN, Access, attempt
from airflow_kstreams.kafka.events import ClientEvents
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.permissions import (
    Operation,
    Permission,
    Resource,
    transactional_permission,
)

#: How long a refused topic's name is waited for, and in what steps.
_NAMED_WITHIN_SECONDS = 5.0
_STEP_SECONDS = 0.05
#: A topic in the text of a refused commit of offsets.
_UNREAD_TOPIC = re.compile(r"(?P<topic>[\w.-]+)\(\(null\)\)\[\d+\]\([^()]*[Tt]opic authorization failed")


class WriterRefusals:
    """Turns what a producer was refused into an error that names the permission.

    :param access: of the producer.
    :param events: of the producer; its log names topics that were kept out of a transaction.
    :param failures: of the producer; a record that was refused names its topic.
    :param transactional_id: of the producer, empty without transactions.
    """

    __slots__ = ("_access", "_events", "_failures", "_transactional_id")

    def __init__(
        self, access: Access, *, events: ClientEvents, failures: DeliveryFailures, transactional_id: str = ""
    ) -> None:
        self._access = access
        self._events = events
        self._failures = failures
        self._transactional_id = transactional_id

    def explain(
        self, error: KafkaError | None, what: str, *, poll: Callable[[float], Any], group_id: str = ""
    ) -> AccessDeniedError | None:
        """Return the error for a missing permission, None if that is not what is wrong.

        :param error: of the client.
        :param what: what was being done.
        :param poll: serves the client's callbacks for some seconds.
        :param group_id: for which offsets were committed, empty for none.
        """
        if error is None or error.code() not in FORBIDDEN:
            return None
        return self._access.denied(error, what, self._needed(error, poll, group_id))

    def _needed(self, error: KafkaError, poll: Callable[[float], Any], group_id: str) -> Permission:
        code = error.code()
        if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return transactional_permission(self._transactional_id.rpartition("-")[0])
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return Permission(operation=Operation.READ, resource=Resource.GROUP, name=group_id)
        if code != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return Permission(operation=Operation.IDEMPOTENT_WRITE, resource=Resource.CLUSTER)
        # Offsets may be committed only of topics that the user may read.
        unread = _UNREAD_TOPIC.search(error.str())
        if unread is not None:
            return Permission(operation=Operation.READ, resource=Resource.TOPIC, name=unread["topic"])
        return Permission(operation=Operation.WRITE, resource=Resource.TOPIC, name=self._topic(poll))

    def _topic(self, poll: Callable[[float], Any]) -> str:
        """Return the topic that was refused; if the client does not say it in time, that of a lost record."""
        deadline = time.monotonic() + _NAMED_WITHIN_SECONDS
        while not (topic := self._events.refused_topic or self._refused_record()):
            if time.monotonic() >= deadline:
                return self._failures.topic
            attempt(poll, _STEP_SECONDS)  # a client that was refused may fail here, too, for the same reason
        return topic

    def _refused_record(self) -> str:
        """Return the topic of a record that was refused; others may be lost only because of it."""
        error = self._failures.error
        refused = error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        return self._failures.topic if refused else ""
