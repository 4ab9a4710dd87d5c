"""The library ``airflow-kstreams-columns`` on clients of no cluster: its look, what it refuses."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from airflow_kstreams.kafka import record_columns
from tests.support.kafka.crossing import COLUMNS, crossing

pytestmark = pytest.mark.promise("records-cross-alike")

_NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
_PRODUCER, _CONSUMER = 0, 1
_LOOK_MS = 5_000
AT = object.__basicsize__


@pytest.fixture
def library() -> Iterator[Any]:
    with crossing(COLUMNS):
        yield importlib.import_module("airflow_kstreams_columns")


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    consumer = Consumer({**_NOWHERE, "group.id": "g", "client.id": "mine"})
    yield consumer
    consumer.close()


def test_child_process_finds_the_handle_where_it_is_alone(library: Any, consumer: Consumer) -> None:
    def found(at: int, kind: int, name: str) -> bool:
        looked: bool = library.looks_right(consumer, at, kind, name, _LOOK_MS)
        return looked

    assert found(AT, _CONSUMER, "mine#consumer-")
    assert not found(AT, _PRODUCER, "mine#consumer-")
    assert not found(AT, _CONSUMER, "other#consumer-")
    # Whatever lies there, and wherever it points, this process lives.
    assert not any(found(at, _CONSUMER, "mine#consumer-") for at in (0, 8, 24, 32, 40))


@pytest.mark.parametrize("address", [0, 1, 0xDEAD_BEEF])
def test_wrong_address_ends_the_child_process_alone(library: Any, address: int) -> None:
    held = ctypes.c_void_p(address)
    at = ctypes.addressof(held) - id(library)
    assert not library.looks_right(library, at, _CONSUMER, "mine#consumer-", _LOOK_MS)


def test_client_of_another_kind_is_refused(library: Any, consumer: Consumer) -> None:
    record_columns.border()
    with pytest.raises(ValueError, match="no open consumer"):
        library.Queue(Producer(_NOWHERE))
    with pytest.raises(ValueError, match="no open producer"):
        library.Sender(consumer, print, lambda: (0, 1))


def test_closed_client_and_closed_queue_are_refused(library: Any) -> None:
    record_columns.border()
    consumer = Consumer({**_NOWHERE, "group.id": "g"})
    queue = library.Queue(consumer)
    queue.close()
    queue.close()
    with pytest.raises(RuntimeError, match="closed"):
        queue.take(1, 0)
    consumer.close()
    with pytest.raises(ValueError, match="no open consumer"):
        library.Queue(consumer)


def test_columns_are_made_of_the_librarys_own_records_alone(library: Any) -> None:
    for records, refused in (((), "a list"), (None, "a list"), ([None], "class"), ([b"record"], "class")):
        with pytest.raises(TypeError, match=refused):
            library.columns(records)
    assert library.columns([]) == ((None, 0, bytes(4), b""), (None, 0, bytes(4), b""))


def test_number_of_records_to_take_is_bounded(library: Any, consumer: Consumer) -> None:
    record_columns.border()
    queue = library.Queue(consumer)
    for most in (0, -1, 1_000_001):
        with pytest.raises(ValueError, match="between 1 and"):
            queue.take(most, 0)
    assert queue.take(1, 0) == ([], [])
    queue.close()


def test_addresses_are_refused_when_one_is_missing(library: Any) -> None:
    with pytest.raises(ValueError, match="takes a tuple"):
        library.bind((1,))
    with pytest.raises(ValueError, match="rd_kafka_type has no address"):
        library.bind((0,) * len(library.FUNCTIONS))
