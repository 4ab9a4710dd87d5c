"""Names the permission that a writer lacks.

The client reports a refusal and its topic separately: the call fails at once, while the topic comes a moment
later with the client's log or with a delivery report. The error must name the missing permission, so this
module waits for the topic, bounded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from airflow_kstreams.kafka.client_errors import FORBIDDEN, Access, attempt
from airflow_kstreams.kafka.delivery import DeliveryFailures
from airflow_kstreams.kafka.events import ClientEvents
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.permissions import (
    Operation,
    Permission,
    Resource,
    transactional_permission,
)

#: Longest wait for a refused topic's name, and its steps.
_NAMED_WITHIN_SECONDS = 5.0
_STEP_SECONDS = 0.05
#: A topic in the text of a refused commit of offsets.
_UNREAD_TOPIC = re.compile(r"(?P<topic>[\w.-]+)\(\(null\)\)\[\d+\]\([^()]*[Tt]opic authorization failed")


class WriterRefusals:
    """Turns refusals of a producer into errors that name the permission.

    :param access: names the producer's principal.
    :param events: the producer's; their log names topics that were kept out of a transaction.
    :param failures: the producer's; a record that was refused names its topic.
    :param transactional_id: the producer's, empty without transactions.
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
        """Return the error for a missing permission, None for any other error.

        :param error: the client's.
        :param what: the action that failed.
        :param poll: serves the client's callbacks for some seconds.
        :param group_id: the group of committed offsets, empty for none.
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
        # A user may commit offsets only of topics that the user may read.
        unread = _UNREAD_TOPIC.search(error.str())
        if unread is not None:
            return Permission(operation=Operation.READ, resource=Resource.TOPIC, name=unread["topic"])
        return Permission(operation=Operation.WRITE, resource=Resource.TOPIC, name=self._topic(poll))

    def _topic(self, poll: Callable[[float], Any]) -> str:
        """Return the refused topic; if the client does not name it in time, that of a lost record."""
        deadline = time.monotonic() + _NAMED_WITHIN_SECONDS
        while not (topic := self._events.refused_topic or self._refused_record()):
            if time.monotonic() >= deadline:
                return self._failures.topic
            attempt(poll, _STEP_SECONDS)  # a refused client may fail here, too, for the same reason
        return topic

    def _refused_record(self) -> str:
        """Return the topic of a refused record; other records may be lost only because of it."""
        error = self._failures.error
        refused = error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        return self._failures.topic if refused else ""
