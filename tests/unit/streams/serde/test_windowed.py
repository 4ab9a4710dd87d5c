from __future__ import annotations

from airflow_kstreams.streams import Windowed, serdes


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
