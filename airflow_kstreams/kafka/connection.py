"""Bounds what the client may block in: the first contact with a cluster, calls that may never return, and the
time of all requests together.

The client library retries connections for ever and reports failures by callback only, which it runs inside
``poll``: a single blocking call would take its whole timeout on a wrong password. So the first contact is
made in short steps, each with a ``poll`` after it, and wrong addresses and credentials show at once.

A fresh client connects to the address that it was given, and then to the brokers that it has learned of.
Between these first connections librdkafka pauses for half of ``reconnect.backoff.ms``, 11 ms at least. Its
own default of 100 ms would make every client 40 ms late, and a task makes several; so each is made with
20 ms. The pause after a failed connection doubles from there up to ``reconnect.backoff.max.ms``.
The first answer may still come over the connection to the given address, which the client gives up then. One
that claims a transactional id before the next connection stands finds no broker, and looks again after 100 ms
(librdkafka 2.16, two claims in five). So a client has connected when it has answered twice: the second answer
comes over a connection that stays.

These pauses are waits. So each client tries its first contact as soon as it is made, on a thread of its own:
clients that are made one after another connect side by side, and while their owner does something else. The
try is one, short, and says nothing. Whatever it does not reach is done where the client is used first, with
that call's own time and errors, as if there had been no try.

``send_offsets_to_transaction`` looks for the group's coordinator in the middle of the call, and its time
limit does not hold for that part: with a connection lost at the wrong moment it blocks for ever (librdkafka
issue 5456, seen with 2.16 when the proxy of ``dev/chaos`` closed one side of a connection). A consumer's
synchronous commit takes no limit at all. Neither can be interrupted, so both run on a thread of their own,
for which the caller waits no longer than a limit. A thread that never returns from the client keeps the
client alive until the process ends.

A bound of each request does not bound many of them: every request that is left waits once for a broker that
falls silent, and a read, which is no request, waits for ever. So what a user waits for at a terminal has a
bound for all requests. It counts from the making of :class:`RequestTime`, and no wait is longer than what is
left.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol, Self

from confluent_kafka import Message

from airflow_kstreams.kafka.client_errors import (
    UNREACHABLE,
    CallOverdueError,
    attempt,
    guarded,
    kafka_error_of,
    unreachable,
    wrong_credentials,
    wrong_listener,
)
from airflow_kstreams.kafka.events import ClientEvents
from airflow_kstreams.kafka.listener import look_at
from airflow_kstreams.streams.errors import KafkaClientError

_STEP_SECONDS = 0.5
#: A client that is closed waits for its try.
_TRY_SECONDS = 0.2
_ANSWERS = 2
#: Time that a call may take beyond the client's own limit.
_OVERDUE_SECONDS = 2.0
_INTERRUPTS = (KeyboardInterrupt, SystemExit)
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
    client: _Client,
    events: ClientEvents,
    *,
    config: Mapping[str, str],
    timeout_seconds: float,
    contact: FirstContact | None = None,
) -> None:
    """Return once the cluster has answered.

    :param config: the client's settings.
    :param contact: the client's first contact, if it was tried.
    :raises KafkaClientError: the cluster did not answer in time, or (at once) it refused the credentials, or
        the settings do not fit the listener.
    """
    bootstrap = bootstrap_of(config)
    deadline = time.monotonic() + timeout_seconds
    looked, answers = False, 0
    if contact is not None and contact.made():
        answers = _ANSWERS
    while True:
        step = min(_STEP_SECONDS, max(deadline - time.monotonic(), 0.001))
        answered = answers == _ANSWERS or guarded("connecting", bootstrap, _ask, client, step)
        # Callbacks that have come until now are of the first contact, and of no later call.
        polled = guarded("connecting", bootstrap, client.poll, 0)
        if isinstance(polled, Message) and (error := polled.error()) is not None:
            events.note_group_error(error)
        if answered:
            answers += 1
            if answers < _ANSWERS:
                continue
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


class FirstContact:
    """Tries the first contact of a client, see the module.

    :param client: the client; it must not be used or closed before :meth:`made` has returned.
    :param config: its settings. A token is only fetched in ``poll``, so no try is made with one.
    """

    def __init__(self, client: _Client, config: Mapping[str, str]) -> None:
        self._answered: list[bool] = []
        self._thread: threading.Thread | None = None
        if "OAUTHBEARER" not in config.values():
            self._thread = threading.Thread(
                target=self._try, args=(client,), name="first-contact", daemon=True
            )
            self._thread.start()

    def made(self) -> bool:
        """Wait for the end of the try, and return whether the cluster has answered."""
        if self._thread is not None:
            self._thread.join()
        return len(self._answered) == _ANSWERS and all(self._answered)

    def _try(self, client: _Client) -> None:
        for _ in range(_ANSWERS):
            error = attempt(lambda: self._answered.append(_ask(client, _TRY_SECONDS)))
            if error is not None or not self._answered[-1]:
                return


def _may_be_settings(complaint: str) -> bool:
    """Return True if a complaint may come from settings that do not fit the listener."""
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


class BoundedCaller:
    """Makes calls on one thread that is started with the first of them and ends with :meth:`close`, or when
    no reference to this object is left.

    :param name: the thread's name.
    :param timeout_seconds: the client's own limit for a call.
    """

    def __init__(self, name: str, *, timeout_seconds: float) -> None:
        self._name = name
        self._timeout_seconds = timeout_seconds
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._end = weakref.finalize(self, self._calls.put, None)
        self.stuck = False

    def attempt(self, call: Callable[..., object], *args: object) -> Any:
        """Make a call and return the error that it raised, None if it succeeded.

        :return: a ``CallOverdueError`` when the call did not end in time; every further call then returns it,
            too. A ``RuntimeError`` once it is closed.
        """
        if self.stuck:
            return CallOverdueError(self._timeout_seconds)
        if not self._end.alive:
            return RuntimeError("its client is closed")
        if self._thread is None:
            self._thread = threading.Thread(
                target=_serve, args=(self._calls, self._ended), name=self._name, daemon=True
            )
            self._thread.start()
        self._calls.put(lambda: call(*args))
        try:
            error = self._ended.get(timeout=self._timeout_seconds + _OVERDUE_SECONDS)
        except Empty:
            self.stuck = True
            return CallOverdueError(self._timeout_seconds)
        if isinstance(error, _INTERRUPTS):
            raise error
        return error

    def close(self) -> None:
        """End the thread once its call has ended; closing twice is harmless."""
        self._end()


def _serve(calls: SimpleQueue[Callable[[], object] | None], ended: SimpleQueue[Any]) -> None:
    while (call := calls.get()) is not None:
        try:
            error = attempt(call)
        except _INTERRUPTS as interrupt:
            error = interrupt
        ended.put(error)
        del call, error  # they hold the client


class RequestTime:
    """The time of a cluster's clients for their requests.

    :param bootstrap: the bootstrap servers, for messages.
    :param request_ms: bound of one request.
    :param look_ms: bound of all requests together, from now on; None for no such bound.
    :param connect_ms: bound of a client's first contact; that of one request unless given.
    :param monotonic: the monotonic clock, in seconds.
    """

    __slots__ = ("_bootstrap", "_connect_ms", "_end", "_look_ms", "_monotonic", "request_seconds")

    def __init__(
        self,
        bootstrap: str,
        *,
        request_ms: int,
        look_ms: int | None = None,
        connect_ms: int | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bootstrap = bootstrap
        self._look_ms = look_ms
        self._connect_ms = connect_ms
        self._monotonic = monotonic
        self._end = None if look_ms is None else monotonic() + look_ms / 1000
        #: Bound of one request, in seconds.
        self.request_seconds = request_ms / 1000

    def to_list(self) -> list[float | None]:
        """Return it for another process of this machine, whose monotonic clock is the same."""
        return [self.request_seconds, self._look_ms, self._connect_ms, self._end]

    @classmethod
    def from_list(cls, bootstrap: str, parts: Sequence[Any]) -> Self:
        """Make it from :meth:`to_list`."""
        request_seconds, look_ms, connect_ms, end = parts
        made = cls(
            bootstrap, request_ms=round(request_seconds * 1000), look_ms=look_ms, connect_ms=connect_ms
        )
        made._end = end
        return made

    @property
    def request_ms(self) -> int:
        """Bound of one request."""
        return round(self.request_seconds * 1000)

    def to_connect(self) -> float:
        """Return for how many seconds a client may wait for the first answer.

        :raises KafkaClientError: the time of all requests together is over.
        """
        if self._connect_ms is None:
            return self.left()
        return self.left(min(self._connect_ms / 1000, self.request_seconds))

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
            kafka_code="_TIMED_OUT",
            retriable_code=True,
        )
