"""Reads in a process of its own whose memory is bounded.

The client unpacks a batch of gzip, snappy or lz4 whatever it unpacks to, so who writes a topic chooses how
much memory its reader takes. Rule: a look at topics (a sensor, a trigger, a command that copies none) fetches
in a child, which may take :data:`MEMORY_VARIABLE` bytes more than it has when it is connected. Where that is
not enough the client ends the child, and the look gets an error that names the place and the limit. The
process that looks holds one poll's records: no more than the child could.

Offsets that a group has committed are no records: they are asked for in this process. So a reader that never
reads records costs no child.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from airflow_kstreams.kafka.child_process import ChildEndedError, ChildProcess, Parent
from airflow_kstreams.kafka.client_errors import too_much_unpacked, unreachable
from airflow_kstreams.kafka.connection import RequestTime, bootstrap_of
from airflow_kstreams.kafka.reader import BoundedReader
from airflow_kstreams.streams.errors import (
    AccessDeniedError,
    ConfigError,
    KafkaClientError,
    KStreamsError,
    ReportedError,
)
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from airflow_kstreams.streams.plan import msgpack_decoder
from airflow_kstreams.streams.ports import (
    CommittedOffset,
    Fetched,
    Headers,
    Isolation,
    TopicPartition,
)

#: Environment variable with the bytes that one fetch of a look may take.
MEMORY_VARIABLE = "KSTREAMS_LOOK_MEMORY_BYTES"
_MEMORY_BYTES = 512 * 1024 * 1024
_LEAST_MEMORY_BYTES = 64 * 1024 * 1024
#: Of the child, to start and to answer.
_MARGIN_SECONDS = 10.0
_CHILD = "airflow_kstreams.kafka.child_reader"
#: Errors of Python and of the client's binding where no memory is left.
_OUT_OF_MEMORY = frozenset({"MemoryError", "SystemError"})
_NO_MEMORY = "no memory is left"


def look_memory_bytes() -> int:
    """Return the bytes that one fetch of a look may take.

    :raises ConfigError: the environment has no such number.
    """
    text = os.environ.get(MEMORY_VARIABLE, "").strip()
    if not text:
        return _MEMORY_BYTES
    if not (text.isascii() and text.isdigit()) or int(text) < _LEAST_MEMORY_BYTES:
        raise ConfigError(
            f"environment variable {MEMORY_VARIABLE} is {text!r}, expected a number of bytes, "
            f"{_LEAST_MEMORY_BYTES} at least",
            fix=f"set it to {_MEMORY_BYTES}, or unset it",
        )
    return int(text)


class FetchedRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record that the child has fetched; the port ``Record``."""

    where: str
    number: int
    position: int
    content: tuple[bytes | None, bytes | None]
    dated: tuple[int, int]
    named: list[tuple[str, bytes | None]] | None
    epoch: int | None

    def topic(self) -> str:
        """Return the topic's name."""
        return self.where

    def partition(self) -> int:
        """Return the partition's number."""
        return self.number

    def offset(self) -> int:
        """Return the offset."""
        return self.position

    def key(self) -> bytes | None:
        """Return the key."""
        return self.content[0]

    def value(self) -> bytes | None:
        """Return the value."""
        return self.content[1]

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp's type, and the timestamp in epoch milliseconds."""
        return self.dated

    def headers(self) -> Headers | None:
        """Return the headers, None if there are none."""
        return self.named

    def leader_epoch(self) -> int | None:
        """Return the leader epoch under which the record was written."""
        return self.epoch


class _Polled(msgspec.Struct, array_like=True):
    records: list[list[FetchedRecord]]
    ends: list[tuple[str, int, int]]


class _ReaderAnswer(msgspec.Struct):
    polled: _Polled | None = None
    error: dict[str, Any] | None = None


_ANSWERS = msgpack_decoder(_ReaderAnswer)


class ChildReader:
    """The port ``ReaderPort``, whose records a child fetches. One thread at a time.

    :param client_config: checked client settings.
    :param group_id: the group whose committed offsets it reads and writes.
    :param isolation: ``read_committed`` or ``read_uncommitted``.
    :param request_time: bound of every request, and of all requests and reads together, where it has one.
    :param memory_bytes: bytes that one fetch may take.
    """

    def __init__(
        self,
        client_config: Mapping[str, str],
        *,
        group_id: str,
        isolation: Isolation,
        request_time: RequestTime,
        memory_bytes: int,
    ) -> None:
        self._config = client_config
        self._group_id = group_id
        self._isolation: Isolation = isolation
        self._time = request_time
        self._memory_bytes = memory_bytes
        self._own: BoundedReader | None = None
        self._child: ChildProcess | None = None
        #: The next offset of each partition that is assigned.
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    @property
    def group_id(self) -> str:
        """The group whose committed offsets it reads and writes."""
        return self._group_id

    def group_metadata(self) -> object:
        """Return this reader's group in the client's own form, for a transaction that commits its offsets."""
        return self._offsets().group_metadata()

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, each from its offset; replaces what was assigned before."""
        if not starts and self._child is None:
            return
        self._positions = {}
        self._paused.clear()
        topics = len({tp.topic for tp in starts})
        self._ask("assign", [(*tp, offset) for tp, offset in starts.items()], requests=topics + 2)
        self._positions = dict(starts)

    def poll(self, *, max_records: int, timeout_seconds: float) -> Fetched:
        """Return what has arrived, waiting up to the timeout only if nothing has.

        :raises KafkaClientError: as of :class:`BoundedReader`, and what was fetched unpacks to more than the
            child may take.
        """
        if self._child is None:
            return Fetched({}, {})
        timeout_seconds = self._time.left(timeout_seconds)
        polled = self._ask("poll", [max_records, timeout_seconds], requests=1)
        if polled is None:
            return Fetched({}, {})
        records = {TopicPartition(group[0].where, group[0].number): group for group in polled.records}
        ends = {TopicPartition(topic, number): end for topic, number, end in polled.ends}
        for tp, group in records.items():
            self._positions[tp] = group[-1].position + 1
        for tp, end in ends.items():
            self._positions[tp] = max(end, self._positions.get(tp, 0))
        return Fetched(records, ends)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these partitions; they stay assigned."""
        self._ask("pause", [tuple(tp) for tp in partitions], requests=1)
        self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch these partitions again."""
        self._ask("resume", [tuple(tp) for tp in partitions], requests=1)
        self._paused.difference_update(partitions)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets with their metadata; partitions without one are absent."""
        return self._offsets().committed(partitions) if partitions else {}

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit outside any transaction and wait for the broker."""
        if offsets:
            self._offsets().commit(offsets)

    def close(self) -> None:
        """Close the client and end the child. Closing twice is harmless."""
        child, self._child = self._child, None
        if child is not None:
            child.close()
        if self._own is not None:
            self._own.close()

    def _offsets(self) -> BoundedReader:
        if self._own is None:
            self._own = BoundedReader(
                self._config, group_id=self._group_id, isolation=self._isolation, request_time=self._time
            )
        return self._own

    def _ask(self, what: str, given: list[Any], *, requests: int) -> _Polled | None:
        seconds = self._time.left() * requests
        message: dict[str, Any] = {"what": what, "given": given}
        if self._child is None:
            self._child = ChildProcess(_CHILD)
            message |= {
                "client_config": dict(self._config),
                "group_id": self._group_id,
                "isolation": self._isolation,
                "time": self._time.to_list(),
                "memory_bytes": self._memory_bytes,
            }
        try:
            answer = self._child.ask(message, _ANSWERS.decode, seconds=seconds + _MARGIN_SECONDS)
        except TimeoutError:
            self._child = None
            where = bootstrap_of(self._config)
            raise unreachable(where, f"no answer within {seconds:g} s", kafka_code="_TIMED_OUT") from None
        except ChildEndedError as ended:
            self._child = None
            raise self._ended(ended) from None
        if answer.error is not None:
            raise self._error_of(answer.error)
        return answer.polled

    def _error_of(self, error: Mapping[str, Any]) -> KStreamsError:
        if error["type"] != _NO_MEMORY:
            return _error_of(error)
        child, self._child = self._child, None
        if child is not None:
            child.kill()
        return self._too_much(_NO_MEMORY)

    def _ended(self, ended: ChildEndedError) -> KafkaClientError:
        if "alloc" in ended.said or "MemoryError" in ended.said:
            return self._too_much(f"the process that read {ended}")
        killed = " (by the machine, where it has no memory left)" if ended.code == -signal.SIGKILL else ""
        return KafkaClientError(
            f"{self._places()}: the process that read there {ended}{killed}",
            fix=f"run it again; if it comes again, raise {MEMORY_VARIABLE} where this process runs, and "
            "report the exit code",
            kafka_code="_FAIL",
            retriable_code=True,
        )

    def _too_much(self, detail: str) -> KafkaClientError:
        first = next(iter(self._fetching()), None)
        return too_much_unpacked(
            self._places(), first, limit=self._memory_bytes, variable=MEMORY_VARIABLE, detail=detail
        )

    def _places(self) -> str:
        places = [f"{tp}@{self._positions[tp]}" for tp in self._fetching()]
        return " or ".join(places) if places else bootstrap_of(self._config)

    def _fetching(self) -> list[TopicPartition]:
        return sorted(self._positions.keys() - self._paused)


def _error_of(error: Mapping[str, Any]) -> KStreamsError:
    fields = {name: value for name, value in error.items() if name != "type"}
    match error["type"]:
        case "AccessDeniedError":
            permission = fields["permission"]
            permission |= {
                "operation": Operation(permission["operation"]),
                "resource": Resource(permission["resource"]),
            }
            return AccessDeniedError(**{**fields, "permission": Permission(**permission)})
        case "KafkaClientError":
            return KafkaClientError(**fields)
        case "ConfigError":
            return ConfigError(**fields)
    return ReportedError.from_dict(error)


def _fields_of(error: KStreamsError) -> dict[str, Any]:
    """Return the fields from which the parent makes an error anew."""
    if isinstance(error, AccessDeniedError):
        return {
            "type": "AccessDeniedError",
            "what": error.what,
            "where": error.where,
            "permission": asdict(error.permission),
            "principal": error.principal,
            "kafka_code": error.kafka_code,
        }
    if isinstance(error, KafkaClientError):
        if error.kafka_code in _OUT_OF_MEMORY:
            return {"type": _NO_MEMORY}
        return {
            "type": "KafkaClientError",
            "cause": error.cause,
            "fix": error.fix,
            "kafka_code": error.kafka_code,
            "retriable_code": error.retriable_code,
            "fatal": error.fatal,
        }
    if isinstance(error, ConfigError):
        return {"type": "ConfigError", "cause": error.cause, "fix": error.fix}
    return error.to_dict()


class _Served:
    """The child's reader."""

    def __init__(self, memory_bytes: int, reader: BoundedReader) -> None:
        self._memory_bytes = memory_bytes
        self._reader = reader
        self._bounded = False

    def answer(self, what: str, given: list[Any]) -> dict[str, Any]:
        try:
            return {"polled": getattr(self, f"_{what}")(given)}
        except KStreamsError as error:
            return {"error": _fields_of(error)}
        except (MemoryError, SystemError):
            return {"error": {"type": _NO_MEMORY}}

    def _assign(self, given: list[Any]) -> None:
        if not self._bounded:
            # By now the client has its threads, whose stacks count.
            self._reader.connect()
            _bound(self._memory_bytes)
            self._bounded = True
        self._reader.assign({TopicPartition(topic, number): offset for topic, number, offset in given})

    def _poll(self, given: list[Any]) -> Any:
        fetched = self._reader.poll(max_records=given[0], timeout_seconds=given[1])
        return [
            [
                [_plain(tp, record) for record in records]
                for tp, records in fetched.records.items()
                if records
            ],
            [(*tp, end) for tp, end in fetched.ends.items()],
        ]

    def _pause(self, given: list[Any]) -> None:
        self._reader.pause([TopicPartition(*tp) for tp in given])

    def _resume(self, given: list[Any]) -> None:
        self._reader.resume([TopicPartition(*tp) for tp in given])


def _plain(tp: TopicPartition, record: Any) -> tuple[Any, ...]:
    content = record.key(), record.value()
    return (*tp, record.offset(), content, record.timestamp(), record.headers(), record.leader_epoch())


def _bound(more_bytes: int) -> None:
    """Bound this process's memory to what it has and some more; where ``/proc`` is absent, nothing does."""
    status = Path("/proc/self/status")
    if not status.exists():
        return
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmData:"))
    wanted = int(line.split()[1]) * 1024 + more_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _main() -> None:
    parent = Parent()
    served: _Served | None = None
    for asked in parent.messages():
        if served is None:
            try:
                config = asked["client_config"]
                reader = BoundedReader(
                    config,
                    group_id=asked["group_id"],
                    isolation=asked["isolation"],
                    request_time=RequestTime.from_list(bootstrap_of(config), asked["time"]),
                )
            except KStreamsError as error:
                parent.answer({"error": _fields_of(error)})
                return
            served = _Served(asked["memory_bytes"], reader)
        parent.answer(served.answer(asked["what"], asked["given"]))
    # Closing the client would wait for requests under way.
    os._exit(0)


if __name__ == "__main__":
    _main()
