"""Bounds what an answer of a schema registry takes: its size, and the time until it is whole.

The client's own timeout is that of one read of a socket. So a server that sends a byte now and then, in the
headers or behind them, holds a task without end; and one that sends on and on, or little that unpacks to
much, fills its memory. Here a request has a watch that shuts its connection when the time is over, and its
answer is read in parts up to a limit, as it comes: one that is packed is refused, since none is asked for.

Each request makes a connection of its own, because that is how the watch learns of it. A process asks for
each schema once.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

#: Largest answer: the longest text of a schema (:mod:`schema_bounds`) as JSON, with room.
MOST_BYTES = 8 * 1024 * 1024
_PART_BYTES = 65_536


class AnswerError(ValueError):
    """An answer is not what a schema registry says; its text holds none of it."""


def bound_answers(client: Any) -> None:
    """Let a client of a registry give up what is too large or too slow; a registry in memory is not asked.

    :param client: confluent-kafka's client, with a timeout in seconds.
    """
    rest = getattr(client, "_rest_client", None)
    if rest is not None:
        rest.session.request = _Requests(rest.session, rest.timeout).request


class _Requests:
    """Makes requests in a session of the client's HTTP library.

    :param session: the session.
    :param seconds: time in which an answer must be whole.
    """

    def __init__(self, session: Any, seconds: float) -> None:
        self._session = session
        self._seconds = seconds

    def request(self, method: str, url: str, *, headers: Mapping[str, str], **given: Any) -> Any:
        """Return the whole answer to a request.

        :raises AnswerError: it is larger than a registry's, or packed.
        :raises TimeoutError: it was not whole in time.
        """
        with _Watch(self._seconds) as watch:
            try:
                answer = self._whole(method, url, headers, watch, given)
            except Exception:
                if not watch.over:
                    raise
            else:
                # A connection that was shut looks like the end of some answers.
                if not watch.over:
                    return answer
        raise TimeoutError(f"no whole answer within {self._seconds:g} s")

    def _whole(
        self, method: str, url: str, headers: Mapping[str, str], watch: _Watch, given: Mapping[str, Any]
    ) -> Any:
        headers = {**headers, "Accept-Encoding": "identity", "Connection": "close"}
        extensions = {"trace": watch.see}
        with self._session.stream(method, url, headers=headers, extensions=extensions, **given) as answer:
            return type(answer)(
                answer.status_code, headers=answer.headers, content=_read(answer), request=answer.request
            )


def _read(answer: Any) -> bytes:
    """Return the body of an answer.

    :raises AnswerError: it is larger than a registry's, or packed.
    """
    encoding = answer.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise AnswerError(f"an answer in the encoding {encoding[:20]!r}, which was not asked for")
    body = bytearray()
    announced = answer.headers.get("Content-Length", "0")
    large = announced.isdecimal() and len(announced) < 20 and int(announced) > MOST_BYTES
    for part in () if large else answer.iter_raw(_PART_BYTES):
        body += part
        if len(body) > MOST_BYTES:
            large = True
            break
    if large:
        raise AnswerError(f"an answer that is larger than {MOST_BYTES // 1024 // 1024} MiB")
    return bytes(body)


class _Watch:
    """Shuts the connection of a request when its time is over.

    :param seconds: the time.
    :ivar over: whether it is.
    """

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        # It reads what is still open, and must not meet another connection's number.
        self._timer.join()
        self._forget()

    def see(self, event: str, facts: Mapping[str, Any]) -> None:
        """Take notice of a step of the request: a connection was made."""
        if not event.endswith("connect_tcp.complete"):
            return
        # TLS takes the socket itself over.
        made = facts["return_value"].get_extra_info("socket").dup()
        self._forget()
        with self._lock:
            self._connection = made
        if self.over:
            self._shut()

    def _end(self) -> None:
        self.over = True
        self._shut()

    def _shut(self) -> None:
        with self._lock, suppress(OSError):
            if self._connection is not None:
                self._connection.shutdown(socket.SHUT_RDWR)

    def _forget(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
