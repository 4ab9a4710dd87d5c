"""The produce call that tasks bind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_kstreams.kafka.delivery import DeliveryFailures, make_produce
from airflow_kstreams.streams.errors import KStreamsError


class Client:
    """Stands in for the client's producer."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def produce(self, *arguments: Any) -> None:
        self.sent.append(arguments)

    def poll(self, _seconds: float) -> int:
        return 0


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Python's collector comes late, as in a process with many objects."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_client_ends_with_its_writer_although_a_task_still_holds_the_call() -> None:
    client: Any = Client()
    alive = weakref.ref(client)
    produce, release = make_produce(
        client,
        bootstrap="b:1",
        timeout_seconds=1.0,
        explain=lambda error, _: KStreamsError(str(error), fix=""),
        refused=DeliveryFailures({}, {}),
    )
    task: dict[str, Any] = {"produce": produce}
    task["itself"] = task
    produce("out", b"v", b"k")
    assert [sent[:3] for sent in client.sent] == [("out", b"v", b"k")]
    del client, task
    assert alive() is not None

    release()

    assert alive() is None
    with pytest.raises(ValueError, match="closed"):
        produce("out", b"v")
