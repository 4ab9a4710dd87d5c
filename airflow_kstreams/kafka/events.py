"""What the client library tells by callback: errors, statistics, logs. One object per client instance.

The callbacks run inside ``poll`` on the caller's own thread, so plain attributes suffice.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import msgspec
from confluent_kafka import KafkaError

_LOG = logging.getLogger("airflow_kstreams.kafka.client")

#: Log facilities of librdkafka whose content also arrives as an error, which is raised: logging it too would
#: say it twice, and while a broker is down it would say it many times a second.
_ALSO_RAISED = ("FAIL", "ERROR", "TXNERR", "FATAL", "TXNFLUSH", "ADDPARTS")

_CREDENTIALS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
_CONNECTION = frozenset(
    {KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._RESOLVE, KafkaError._ALL_BROKERS_DOWN}
)


class _BrokerStatistics(msgspec.Struct):
    nodeid: int = -1
    disconnects: int = 0
    req_timeouts: int = 0


class _Statistics(msgspec.Struct):
    brokers: dict[str, _BrokerStatistics] = {}


_STATISTICS = msgspec.json.Decoder(_Statistics)


class ClientEvents:
    """Collects one client's events.

    :ivar credentials_error: text of the first authentication or TLS error, empty while there is none.
    :ivar last_error: text of the last connection error.
    :ivar connection_errors: number of connection errors so far.
    :ivar disconnects: connections lost and requests timed out so far, as the statistics say.
    :ivar all_down_since: monotonic seconds at which the client lost every broker, None while it has one.
    """

    __slots__ = ("all_down_since", "connection_errors", "credentials_error", "disconnects", "last_error")

    def __init__(self) -> None:
        self.credentials_error = ""
        self.last_error = ""
        self.connection_errors = 0
        self.disconnects = 0
        self.all_down_since: float | None = None

    def callbacks(self) -> dict[str, Any]:
        """Return the client settings that connect this object."""
        return {"error_cb": self._on_error, "stats_cb": self._on_statistics, "logger": self}

    def seen_connected(self) -> None:
        """Note that a broker answered."""
        self.all_down_since = None

    def _on_error(self, error: KafkaError) -> None:
        code = error.code()
        if code in _CREDENTIALS and not self.credentials_error:
            self.credentials_error = error.str()
        if code in _CONNECTION:
            self.connection_errors += 1
            if code == KafkaError._ALL_BROKERS_DOWN:
                self.all_down_since = self.all_down_since or time.monotonic()
            else:
                self.last_error = error.str()
        _LOG.debug("client error %s: %s", error.name(), error.str())

    def _on_statistics(self, text: str) -> None:
        # Bootstrap connections (without a node id) are dropped in the ordinary course of things.
        brokers = [broker for broker in _STATISTICS.decode(text).brokers.values() if broker.nodeid >= 0]
        self.disconnects = sum(broker.disconnects + broker.req_timeouts for broker in brokers)

    def log(self, level: int, text: str, *args: object) -> None:
        """Take a log line of the client library; stands in for a logger."""
        raised = bool(args) and str(args[0]) in _ALSO_RAISED
        _LOG.log(logging.DEBUG if raised else level, text, *args)
