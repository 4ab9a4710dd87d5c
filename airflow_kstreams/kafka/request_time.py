"""Bounds the time that clients wait for answers: of each request, and of all requests of one look together.

A bound of each request does not bound many of them: every request that is left waits once for a broker that
falls silent, and a read, which is no request, waits for ever. So what a user waits for at a terminal has a
bound for all requests. It counts from the making of this object, and no wait is longer than what is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_kstreams.kafka.client_errors import unreachable
from airflow_kstreams.streams.errors import KafkaClientError


class RequestTime:
    """The time of a cluster's clients for their requests.

    :param bootstrap: the bootstrap servers, for messages.
    :param request_ms: bound of one request.
    :param look_ms: bound of all requests together, from now on; None for no such bound.
    :param monotonic: the monotonic clock, in seconds.
    """

    __slots__ = ("_bootstrap", "_end", "_look_ms", "_monotonic", "request_seconds")

    def __init__(
        self,
        bootstrap: str,
        *,
        request_ms: int,
        look_ms: int | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bootstrap = bootstrap
        self._look_ms = look_ms
        self._monotonic = monotonic
        self._end = None if look_ms is None else monotonic() + look_ms / 1000
        #: Bound of one request, in seconds.
        self.request_seconds = request_ms / 1000

    @property
    def request_ms(self) -> int:
        """Bound of one request."""
        return round(self.request_seconds * 1000)

    def left(self, seconds: float | None = None) -> float:
        """Return for how many seconds the next wait may last.

        :param seconds: longest wait; that of one request unless given.
        :raises KafkaClientError: the time of all requests together is over.
        """
        wanted = self.request_seconds if seconds is None else seconds
        if self._end is None:
            return wanted
        left = self._end - self._monotonic()
        if left <= 0:
            raise self._over()
        return min(wanted, left)

    def _over(self) -> KafkaClientError:
        error = unreachable(
            self._bootstrap, f"it did not give all answers within {(self._look_ms or 0) / 1000:g} s"
        )
        return KafkaClientError(
            error.cause,
            fix=f"{error.fix}; where it is only slow, wait for it longer (--timeout)",
            code="_TIMED_OUT",
            retriable_code=True,
        )
