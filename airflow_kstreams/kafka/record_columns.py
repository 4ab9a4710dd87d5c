"""Takes fetched records in batches, and sends records, by a library of its own, where that is safe.

confluent-kafka makes an object of each record that is read, and one of each that is sent, which costs most of
the time of both. The library ``airflow-kstreams-columns`` (one C file in ``dev/columns``) works on the
client's own handle, which confluent-kafka does not expose. So it is used only behind these fences, and
everything else stays confluent-kafka's: settings, login, callbacks, offsets, transactions.

- The version of confluent-kafka is one that the tests run with (:data:`TESTED`).
- The functions are those of the very librdkafka that confluent-kafka has loaded, found by name.
- A child process has looked at a client's handle first: a wrong address crashes the child, and nothing else.
- A partition is forwarded before it is assigned, and the queue is closed before the consumer, which would
  wait for it for ever. The queue holds records and their errors alone: callbacks come in the consumer's own
  ``poll``.
- Only a writer sends by it whose failed transactions are made again: a record that was sent so has no
  delivery report, and the transaction that it fails names none (:mod:`airflow_kstreams.kafka.writer`).

Where one of them does not hold, records come one by one, with the same results; :func:`border` says which it
is, and why.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Producer

from airflow_kstreams.kafka.client_errors import guarded
from airflow_kstreams.kafka.connection import bootstrap_of
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import ColumnsOf, Record, TimedRecords, TopicPartition
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)

#: Environment variable that keeps records from crossing in columns.
VARIABLE = "KSTREAMS_COLUMNS"
#: Versions of confluent-kafka with which the tests run.
TESTED = frozenset({"2.16.1"})
#: Of what the library offers.
_INTERFACE = 2
#: Longest wait for the child process that looks at a handle.
_LOOK_MS = 5_000
#: Kinds of clients, by librdkafka's numbers.
_PRODUCER, _CONSUMER = 0, 1


class FetchFault(NamedTuple):
    """An error that came in place of a record; the end of a partition is one.

    :param topic: the record's topic; empty where there is none.
    :param partition: number of its partition.
    :param offset: its offset.
    :param error: the client's error.
    """

    topic: str
    partition: int
    offset: int
    error: KafkaError


class Border(NamedTuple):
    """The way by which records cross between Python and the client.

    :param library: the library that takes them in batches; None if they come one by one.
    :param why_not: reason for that; empty if they do not.
    """

    library: Any
    why_not: str

    def __str__(self) -> str:
        return "by columns" if self.library is not None else f"one by one: {self.why_not}"


def border() -> Border:
    """Return how records cross in this process, as far as it is known: a client's handle is looked at when
    the first client of its kind is made.

    :raises ConfigError: the environment asks for something else.
    """
    found = _loaded()
    if found.library is not None and not all(_looked_at.values()):
        return Border(None, "a client's handle is not where confluent-kafka used to keep it")
    return found


@cache
def _loaded() -> Border:
    """Load the library, where every fence lets it."""
    asked = os.environ.get(VARIABLE, "").strip() or "auto"
    if asked not in ("auto", "off"):
        raise ConfigError(
            f"environment variable {VARIABLE} is {asked!r}, expected auto or off",
            fix="set it to auto, or unset it",
        )
    if asked == "off":
        return Border(None, f"{VARIABLE} is off")
    version = str(confluent_kafka.version())
    if version not in TESTED:
        return Border(None, f"confluent-kafka {version} is not tested with airflow-kstreams-columns")
    try:
        import airflow_kstreams_columns as library
    except ImportError as error:
        why = "is not installed" if isinstance(error, ModuleNotFoundError) else f"does not load: {error}"
        return Border(None, f"airflow-kstreams-columns {why}")
    if library.INTERFACE != _INTERFACE:
        return Border(None, "airflow-kstreams-columns is of another version than airflow-kstreams")
    try:
        library.bind(_addresses(library.FUNCTIONS))
    except (OSError, AttributeError, ValueError) as error:
        return Border(None, f"the client library lacks a function: {error}")
    return Border(library, "")


def forget() -> None:
    """Forget what was found, so that the next client looks again: for tests, which change the environment."""
    _loaded.cache_clear()
    _looked_at.clear()


def _addresses(names: Sequence[str]) -> tuple[int, ...]:
    """Return the addresses of functions in the librdkafka that confluent-kafka has loaded."""
    loaded = ctypes.CDLL(confluent_kafka.cimpl.__file__)
    return tuple(ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value or 0 for name in names)


#: Kind of client -> whether its handle lies where it is expected.
_looked_at: dict[int, bool] = {}


def _usable(client: object, client_config: Mapping[str, str], kind: int) -> Any:
    """Return the library if it may work on a client, else None; looks at one client of each kind."""
    library, _ = border()
    if library is not None and kind not in _looked_at:
        at = object.__basicsize__
        name = f"{client_config.get('client.id', 'rdkafka')}#{('producer', 'consumer')[kind]}-"
        fits = type(client).__basicsize__ >= at + ctypes.sizeof(ctypes.c_void_p)
        _looked_at[kind] = fits and library.looks_right(client, at, kind, name, _LOOK_MS)
        if not _looked_at[kind]:
            log.warning("records cross %s", border())
            return None
    return library


def sender_of(
    producer: Producer,
    client_config: Mapping[str, str],
    *,
    fall_back: Callable[..., None],
    taken: Callable[[], tuple[int, int]],
) -> Sender | None:
    """Return what sends a producer's records without delivery reports; None if it must not be used.

    :param fall_back: sends what is unusual, or what the client refuses, and raises the errors.
    :param taken: gives the first and the last time that every topic takes, epoch milliseconds; the fall-back
        sends records of other times.
    """
    library = _usable(producer, client_config, _PRODUCER)
    return None if library is None else library.Sender(producer, fall_back, taken)


class Sender(Protocol):
    """Sends records; the library's.

    :ivar sent: number of records sent without a delivery report.
    """

    sent: int

    @property
    def produce(self) -> Callable[..., None]: ...
    def release(self) -> None:
        """Give the producer back, before its end: what is sent from now on goes to the fall-back."""
        ...


def columns_of(consumer: Consumer, client_config: Mapping[str, str]) -> ColumnQueue | None:
    """Return the queue from which a consumer's records are taken in batches; None if they come one by one."""
    library = _usable(consumer, client_config, _CONSUMER)
    return (
        None
        if library is None
        else ColumnQueue(library.Queue(consumer), bootstrap_of(client_config), library.columns)
    )


class ColumnQueue:
    """The fetched records of one consumer. One thread at a time.

    A partition that is assigned again is forwarded again: stopping it, which the client does in its own time,
    may undo that. So :meth:`forward` is repeated while nothing has come from it; no record is lost meanwhile.

    :param queue: the library's.
    :param bootstrap: the bootstrap servers.
    :param columns_of: the library's function that makes columns of its records.
    """

    __slots__ = ("_bootstrap", "_columns_of", "_queue")

    def __init__(self, queue: Any, bootstrap: str, columns_of: ColumnsOf) -> None:
        self._columns_of = columns_of
        self._queue = queue
        self._bootstrap = bootstrap

    def forward(self, partitions: Collection[TopicPartition]) -> None:
        """Have the messages of partitions come here."""
        for tp in partitions:
            guarded("forwarding a partition", self._bootstrap, self._queue.forward, tp.topic, tp.partition)

    def take(
        self, most: int, timeout_seconds: float
    ) -> tuple[dict[TopicPartition, Sequence[Record]], list[FetchFault]]:
        """Return records by partition, and errors; waits until ``most`` are there or the time is over."""
        taken = guarded("reading", self._bootstrap, self._queue.take, most, round(timeout_seconds * 1000))
        groups, faults = taken
        return (
            {
                TopicPartition(topic, number): TimedRecords(records, timestamps_ms, self._columns_of)
                for topic, number, records, timestamps_ms in groups
            },
            [
                FetchFault(topic, number, offset, KafkaError(code, text))
                for topic, number, offset, code, text in faults
            ],
        )

    def close(self) -> None:
        """Close it, before the consumer. Closing twice is harmless."""
        guarded("closing a queue", self._bootstrap, self._queue.close)
