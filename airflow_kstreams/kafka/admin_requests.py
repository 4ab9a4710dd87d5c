"""Makes the requests of the real admin client, which has connected with the first of them at the latest: each
has a bound of time, and raises errors of this package.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka.admin import AdminClient

from airflow_kstreams.kafka.client_errors import (
    Access,
    attempt,
    convert,
    guarded,
    kafka_error_of,
    unreachable,
)
from airflow_kstreams.kafka.configuration.code_settings import with_callback
from airflow_kstreams.kafka.connection import FirstContact, RequestTime, await_connection, bootstrap_of
from airflow_kstreams.kafka.events import ClientEvents
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.naming.permissions import Permission

_POLL_SECONDS = 0.02


class Answers(dict[Any, "Future[Any]"]):
    """The futures of a request, with the client that answers them: a client that another thread drops would
    end with its last reference, and its requests with it.
    """

    def __init__(self, client: AdminClient, futures: Mapping[Any, Future[Any]]) -> None:
        super().__init__(futures)
        self.client = client


class AdminRequests:
    """The requests of one admin client. Safe to use from several threads.

    :param client_config: checked client settings.
    :param request_time: bound of every request.
    :ivar bootstrap: the bootstrap servers, for messages.
    :ivar time: the bound of every request.
    """

    def __init__(self, client_config: Mapping[str, str], *, request_time: RequestTime) -> None:
        self._config = client_config
        self.bootstrap = bootstrap_of(client_config)
        self.time = request_time
        self._access = Access(client_config)
        self._events = ClientEvents(client_config)
        self._admin: AdminClient | None = None
        self._making = threading.Lock()
        self._first: tuple[AdminClient, FirstContact] | None = None
        # Where it cannot be made, the first request says why.
        with suppress(KStreamsError):
            admin = self._created()
            self._first = admin, FirstContact(admin, client_config)

    def drop(self) -> None:
        """Drop the client; the next request makes another."""
        self._admin = self._first = None

    def client(self) -> AdminClient:
        """Return the admin client, connected with the first request."""
        with self._making:
            if self._admin is None:
                self._admin = self._made()
            return self._admin

    def _made(self) -> AdminClient:
        first, self._first = self._first, None
        admin, contact = (self._created(), None) if first is None else first
        await_connection(
            admin,
            self._events,
            config=self._config,
            timeout_seconds=self.time.to_connect(),
            contact=contact,
        )
        return admin

    def _created(self) -> AdminClient:
        callbacks = self._events.callbacks()
        logger = callbacks.pop("logger")
        return guarded(
            "creating an admin client",
            self.bootstrap,
            AdminClient,
            {
                "reconnect.backoff.ms": "20",
                "reconnect.backoff.max.ms": "2000",
                "socket.timeout.ms": str(self.time.request_ms),
                **with_callback(self._config),
                "allow.auto.create.topics": "false",
                **callbacks,
            },
            logger=logger,
        )

    def ask(self, what: str, method: str, *args: Any, **kwargs: Any) -> Answers:
        """Make a request of the admin client's.

        :param what: the request, for errors.
        :param method: name of the client's method.
        """
        client = self.client()
        futures = guarded(
            what, self.bootstrap, getattr(client, method), *args, request_timeout=self.time.left(), **kwargs
        )
        return Answers(client, futures)

    def result(
        self,
        future: Future[Any],
        what: str,
        *,
        needs: Permission | None = None,
        absent: int | None = None,
    ) -> Any:
        """Return a request's result, None when it failed with the code ``absent``.

        :param needs: the permission that the request needs.
        """
        # The client's own request timeout ends the future; the margin only guards against a client that does
        # not.
        seconds = self.time.request_seconds + 5
        return self.outcome(partial(future.result, seconds), what, needs=needs, absent=absent)

    def outcome(
        self,
        call: Callable[[], Any],
        what: str,
        *,
        needs: Permission | None = None,
        absent: int | None = None,
    ) -> Any:
        """Return a call's result, as :meth:`result` does a request's."""
        outcome: list[Any] = []
        error = attempt(lambda: outcome.append(call()))
        if error is None:
            return outcome[0]
        kafka_error = kafka_error_of(error)
        if absent is not None and kafka_error is not None and kafka_error.code() == absent:
            return None
        if isinstance(error, FutureTimeoutError):
            raise unreachable(
                self.bootstrap,
                f"{what}: no answer in {self.time.request_seconds:g} s",
                kafka_code="_TIMED_OUT",
            )
        refused = None
        if needs is not None and kafka_error is not None:
            refused = self._access.denied(kafka_error, what, needs)
        raise refused or convert(error, what=what, where=self.bootstrap)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, within the client timeout, until a condition holds.

        :param what: what is waited for, for the error.
        :raises KafkaClientError: it does not hold in time.
        """
        deadline = time.monotonic() + self.time.left()
        while not condition():
            if time.monotonic() >= deadline:
                raise unreachable(
                    self.bootstrap,
                    f"waited {self.time.request_seconds:g} s for {what}",
                    kafka_code="_TIMED_OUT",
                )
            time.sleep(_POLL_SECONDS)
