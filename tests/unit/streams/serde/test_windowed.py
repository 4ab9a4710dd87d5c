from __future__ import annotations

import doctest

from airflow_kstreams.streams import Windowed, serdes
from airflow_kstreams.streams.serde import windowed


def test_time_windowed_key_is_key_and_start_when_written() -> None:
    serde = serdes.time_windowed(serdes.string(), size_ms=100)
    data = bytes.fromhex("61 0000000000000102")
    assert serde.serialize(Windowed("a", 258, 358)) == data
    assert serde.deserialize(data) == Windowed("a", 258, 358)
    assert serde.id == "time_windowed(string,100)"


def test_session_windowed_key_is_key_end_and_start_when_written() -> None:
    serde = serdes.session_windowed(serdes.int32())
    data = bytes.fromhex("00000007 0000000000000102 0000000000000001")
    assert serde.serialize(Windowed(7, 1, 258)) == data
    assert serde.deserialize(data) == Windowed(7, 1, 258)
    assert serde.id == "session_windowed(int32)"


def test_examples_run_when_the_docstrings_have_them() -> None:
    result = doctest.testmod(windowed)
    assert (result.attempted > 0, result.failed) == (True, 0)
