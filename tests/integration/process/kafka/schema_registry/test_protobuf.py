"""Messages of Protocol Buffers as several processes write them."""

from __future__ import annotations

import subprocess
import sys

from tests.support.fresh_python import ROOT
from tests.support.kafka.registries import message_class, new_registry, zigzag

#: Path of the message in its file: length of the path, then its indexes.
SECOND_MESSAGE = zigzag(1) + zigzag(1)


SEATS = {f"row {n}": n for n in range(20)}
_WRITE_A_MAP = """
from tests.integration.process.kafka.schema_registry.test_protobuf import written
print(written().hex())
"""


def written() -> bytes:
    flight = message_class("Flight")
    return new_registry().protobuf(flight).bound("flights", "value").serialize(flight(seats=SEATS))


def test_bytes_are_the_same_in_every_process_when_a_message_holds_a_map() -> None:
    # The library orders a map by a hash whose seed depends on the process.
    elsewhere = [
        subprocess.run(
            [sys.executable, "-c", _WRITE_A_MAP], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert {bytes.fromhex(data) for data in elsewhere} == {written()}
    flight = message_class("Flight")
    assert flight.FromString(written()[5 + len(SECOND_MESSAGE) :]).seats == SEATS
