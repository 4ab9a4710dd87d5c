"""Lets a process of its own use the client library, and talks with it.

A client can end its process: librdkafka aborts where a request to a group's coordinator is given up, and
where it gets no memory. A process that looks at Kafka may have more to do: a triggerer, a worker, a notebook.
So such calls are made by a child, and whatever becomes of it, its parent gets an answer or an error.

Parent and child send each other messages of plain data (MessagePack, never pickled): its length in 8 bytes,
then the message. The first one of the parent has the child's module search path and the level of the log;
before each answer come the lines that the child has logged, which its parent logs. A child ends when its
stdin does, so none outlives its parent.
"""

from __future__ import annotations

import logging
import os
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from airflow_kstreams.kafka.configuration.secrets import sealed
from airflow_kstreams.streams.plan import msgpack_decoder
from airflow_kstreams.streams.printable import package_log

T = TypeVar("T")
_LOG = package_log("airflow_kstreams.kafka.client")
_LENGTH = struct.Struct(">Q")
#: Seconds in which a child ends after its stdin has.
_END_SECONDS = 5.0
_LAST_BYTES = 2_000


_MESSAGES = msgpack_decoder(dict[str, Any])
_LINES = msgpack_decoder(list[tuple[int, str]])


class ChildEndedError(Exception):
    """The child ended before it answered.

    :param code: its exit code; below 0 the number of the signal that ended it.
    :param said: the last line that it wrote to its stderr.
    """

    def __init__(self, code: int, said: str) -> None:
        super().__init__(code, said)
        self.code, self.said = code, said

    def __str__(self) -> str:
        return f"ended with code {self.code} {self.said}".rstrip()


class ChildProcess:
    """A child, seen by its parent. One thread at a time.

    :param module: name of the module that the child runs; it serves with :class:`Parent`.
    """

    def __init__(self, module: str) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
        )
        # A client setting may name a function of the deployment.
        self._first: Mapping[str, Any] | None = {"path": sys.path, "level": _LOG.getEffectiveLevel()}

    def ask(self, message: Mapping[str, Any], decode: Callable[[bytearray], T], *, seconds: float) -> T:
        """Send a message and return the answer.

        :param decode: decodes the answer.
        :param seconds: time limit; a child that has not answered by then is ended.
        :raises TimeoutError: it did not answer in time.
        :raises ChildEndedError: it ended before.
        """
        deadline = time.monotonic() + seconds
        try:
            if self._first is not None:
                self._send(self._first)
                self._first = None
            self._send(message)
            lines, answer = self._receive_message(deadline), self._receive_message(deadline)
        except (BrokenPipeError, EOFError):
            raise self._ended() from None
        except TimeoutError:
            self.kill()
            raise
        for level, line in _LINES.decode(lines):
            _LOG.log(level, "%s", line)
        return decode(answer)

    def kill(self) -> None:
        """End the child at once."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """End the child. Closing twice is harmless."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # what it was not sent does not matter any more
                    stream.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def _send(self, message: Any) -> None:
        stream = self._process.stdin
        if stream is None or stream.closed:
            raise EOFError
        data = msgspec.msgpack.encode(message, enc_hook=_plain)
        stream.write(_LENGTH.pack(len(data)))
        stream.write(data)
        stream.flush()

    def _receive_message(self, deadline: float) -> bytearray:
        return self._receive(_LENGTH.unpack(self._receive(_LENGTH.size, deadline))[0], deadline)

    def _receive(self, count: int, deadline: float) -> bytearray:
        stream = self._process.stdout
        if stream is None or stream.closed:
            raise EOFError
        arriving = select.poll()
        arriving.register(stream, select.POLLIN)
        received = bytearray(count)
        free = memoryview(received)
        while free:
            if not arriving.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError
            came = os.readv(stream.fileno(), [free])
            if not came:
                raise EOFError
            free = free[came:]
        return received

    def _ended(self) -> ChildEndedError:
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, self._said.tell() - _LAST_BYTES))
        lines = self._said.read().decode(errors="replace").split("\n")
        self.close()
        return ChildEndedError(code, next((line.strip() for line in reversed(lines) if line.strip()), ""))


def _plain(value: object) -> str:
    """Return a text without its class: a :class:`Secret` is one again in the child."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} is no plain data")


class Parent:
    """The parent, seen by its child. What others in the child write to stdout goes to stderr."""

    def __init__(self) -> None:
        self._questions, self._answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self._lines = _Lines()

    def messages(self) -> Iterator[Any]:
        """Yield each message, until the parent has no more."""
        first = self._next()
        if first is None:
            return
        sys.path[:] = first["path"]
        _LOG.setLevel(first["level"])
        _LOG.propagate = False
        _LOG.addHandler(self._lines)
        while (message := self._next()) is not None:
            if "client_config" in message:
                message["client_config"] = sealed(message["client_config"])
            yield message

    def answer(self, message: Any) -> None:
        """Send the answer to the last message."""
        # The answer may be large, and is not held twice.
        for part in (self._lines.taken(), message):
            data = msgspec.msgpack.encode(part)
            self._answers.write(_LENGTH.pack(len(data)))
            self._answers.write(data)
        self._answers.flush()

    def _next(self) -> Any:
        head = self._questions.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        return _MESSAGES.decode(self._questions.read(_LENGTH.unpack(head)[0]))


class _Lines(logging.Handler):
    """Keeps what is logged between two answers."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._kept.append((record.levelno, record.getMessage()))

    def taken(self) -> list[tuple[int, str]]:
        kept, self._kept = self._kept, []
        return kept
