from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import TopologyError, Windowed, serdes


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


@pytest.mark.parametrize("size_ms", ["3", -3, 1.5, None, True])
def test_size_is_refused_at_its_line_when_no_window_has_it(size_ms: Any) -> None:
    with pytest.raises(TopologyError, match=r"time_windowed at .*test_windowed\.py:\d+ is given size_ms="):
        serdes.time_windowed(serdes.string(), size_ms)
