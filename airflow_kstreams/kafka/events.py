"""Collects the callbacks of one client: errors, statistics, logs.

The callbacks run inside ``poll`` on the caller's own thread, so plain attributes suffice.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from confluent_kafka import KafkaError

from airflow_kstreams.kafka.configuration.secrets import without_secrets
from airflow_kstreams.streams.plan import json_decoder
from airflow_kstreams.streams.printable import package_log

_LOG = package_log("airflow_kstreams.kafka.client")

#: Log facilities of librdkafka whose content also arrives as an error, which is raised: logging it too would
#: say it twice, and while a broker is down it would say it many times a second.
_ALSO_RAISED = ("FAIL", "ERROR", "TXNERR", "FATAL", "TXNFLUSH", "ADDPARTS")

#: The log lines about a transactional id that is not claimed yet. The client repeats such a request by
#: itself; only when the claim fails in the end does the reason matter, and the error gives it then.
_CLAIM = "GETPID"
_CLAIM_REPEATED = "retrying"

#: The client's log line, and only sign, of a transaction's partition that the ACLs refuse.
_REFUSED_PARTITION = re.compile(
    r'add partition "(?P<topic>[^"]+)" \[\d++\][^"]*authorization failed', re.IGNORECASE
)

_CREDENTIALS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
_CONNECTION = frozenset(
    {KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._RESOLVE, KafkaError._ALL_BROKERS_DOWN}
)


class _BrokerStatistics(msgspec.Struct):
    disconnects: int = 0
    req_timeouts: int = 0


class _Statistics(msgspec.Struct):
    brokers: dict[str, _BrokerStatistics] = {}


#: Name in the statistics of a connection whose broker is not known yet.
_BOOTSTRAP = "/bootstrap"
_STATISTICS = json_decoder(_Statistics)


class ClientEvents:
    """Collects one client's events.

    :param config: the client's settings; their secret values are replaced in the client's texts.
    :ivar credentials_error: text of the first authentication or TLS error, empty while there is none.
    :ivar last_error: text of the last connection error.
    :ivar group_error: error of the ACLs that keep the reader from its group, None while there is none.
    :ivar claim_error: reason for repeating the last request for a transactional id, empty while none was
        repeated.
    :ivar refused_topic: the last topic that the ACLs kept out of a transaction, empty while there is none.
    :ivar connection_errors: number of connection errors so far.
    :ivar disconnects: connections lost and requests timed out so far, as the statistics say.
    :ivar statistics: number of statistics received so far.
    :ivar all_down_since: monotonic seconds at which the client lost every broker, None while it has one.
    """

    __slots__ = (
        "_config",
        "all_down_since",
        "claim_error",
        "connection_errors",
        "credentials_error",
        "disconnects",
        "group_error",
        "last_error",
        "refused_topic",
        "statistics",
    )

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        self._config = config or {}
        self.credentials_error = ""
        self.last_error = ""
        self.group_error: KafkaError | None = None
        self.claim_error = ""
        self.refused_topic = ""
        self.connection_errors = 0
        self.disconnects = 0
        self.statistics = 0
        self.all_down_since: float | None = None

    def callbacks(self) -> dict[str, Any]:
        """Return the client settings that name this object's callbacks."""
        return {"error_cb": self._on_error, "stats_cb": self._on_statistics, "logger": self}

    def seen_connected(self) -> None:
        """Record that a broker answered."""
        self.all_down_since = None

    def note_group_error(self, error: KafkaError) -> bool:
        """Remember a polled error if it is one of the group; return whether it is.

        The client reports such an error once, in the next poll. A reader that only reads assigned partitions
        needs no group; one that commits, or asks for committed offsets, is refused from then on.
        """
        if error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            return False
        self.group_error = error
        return True

    def _on_error(self, error: KafkaError) -> None:
        code = error.code()
        if code in _CREDENTIALS and not self.credentials_error:
            self.credentials_error = self._clean(error.str())
        if code in _CONNECTION:
            self.connection_errors += 1
            if code == KafkaError._ALL_BROKERS_DOWN:
                self.all_down_since = self.all_down_since or time.monotonic()
            else:
                self.last_error = self._clean(error.str())
        _LOG.debug("client error %s: %s", error.name(), self._clean(error.str()))

    def _on_statistics(self, text: str) -> None:
        # Bootstrap connections are dropped in the ordinary course of things. They are known by name: the
        # connection to the transaction coordinator has no node id either.
        self.disconnects = sum(
            broker.disconnects + broker.req_timeouts
            for name, broker in _STATISTICS.decode(text).brokers.items()
            if not name.endswith(_BOOTSTRAP)
        )
        self.statistics += 1

    def log(self, level: int, text: str, *args: object) -> None:
        """Take a log line of the client library, which calls this object in place of a logger."""
        facility = str(args[0]) if args else ""
        raised = facility in _ALSO_RAISED
        if facility == "ADDPARTS" and (refused := _REFUSED_PARTITION.search(str(args[-1]))):
            self.refused_topic = refused["topic"]
        elif facility == "FAIL" and not self.last_error:
            # A listener that wants another protocol closes the connection, which the client does not report
            # as an error.
            self.last_error = self._clean(str(args[-1]))
        elif facility == _CLAIM and str(args[-1]).endswith(_CLAIM_REPEATED):
            self.claim_error = self._clean(str(args[-1]))
            raised = True
        level = logging.DEBUG if raised else level
        if _LOG.isEnabledFor(level):
            _LOG.log(level, text, *(self._clean(a) if isinstance(a, str) else a for a in args))

    def _clean(self, text: str) -> str:
        return without_secrets(text, self._config)
