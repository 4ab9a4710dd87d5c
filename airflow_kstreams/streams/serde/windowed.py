"""Makes the serdes of windowed keys, byte-equal to Kafka Streams' own.

A windowed key is the key's own bytes followed by the window: of a time window the start, of a session the
end and the start, epoch milliseconds in 8 bytes each, signed, big-endian.
"""

from __future__ import annotations

import struct

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import call_site
from airflow_kstreams.streams.serde.base import Serde, wrapped_for_topic
from airflow_kstreams.streams.serde.serde_checks import check_serdes
from airflow_kstreams.streams.type_variables import K
from airflow_kstreams.streams.windows import Windowed

_START = struct.Struct(">q")
_END_AND_START = struct.Struct(">qq")


def time_windowed(key_serde: Serde[K], size_ms: int) -> Serde[Windowed[K]]:
    """Return the serde of keys in tumbling, hopping or sliding windows, Java's TimeWindowedSerializer.

    ``Windowed("a", 258, 358)`` <-> hex ``61 00 00 00 00 00 00 01 02``. The window's size is not written.

    :param key_serde: serde of the key without the window.
    :param size_ms: size of the windows, 0 or more, from which the end of a window that is read follows.
    :raises TopologyError: the size is no such number, or ``key_serde`` is no serde.

    >>> hourly = serdes.time_windowed(serdes.string(), size_ms=3_600_000)
    >>> hourly.deserialize(hourly.serialize(Windowed("a", 0, 3_600_000)))
    Windowed(key='a', start_ms=0, end_ms=3600000)
    """
    check_serdes("serdes.time_windowed", key_serde=key_serde)
    if type(size_ms) is not int or size_ms < 0:
        raise TopologyError(
            f"serdes.time_windowed at {call_site()} is given size_ms={size_ms!r}, expected a whole number",
            fix="give the size of the windows in milliseconds, e.g. 3_600_000 for an hour",
        )
    serialize, deserialize = key_serde.serialize, key_serde.deserialize

    def write(windowed: Windowed[K]) -> bytes:
        key, start_ms, _ = windowed
        return serialize(key) + _START.pack(start_ms)

    def read(data: bytes) -> Windowed[K]:
        start_ms: int
        (start_ms,) = _START.unpack(data[-8:])
        return Windowed(deserialize(data[:-8]), start_ms, start_ms + size_ms)

    return Serde(
        id=f"time_windowed({key_serde.id},{size_ms})",
        written_as=f"time_windowed({key_serde.stored_as},{size_ms})",
        serialize=write,
        deserialize=read,
        for_topic=wrapped_for_topic(key_serde, lambda bound: time_windowed(bound, size_ms)),
        partition_bytes=lambda windowed: serialize(windowed.key),
    )


def session_windowed(key_serde: Serde[K]) -> Serde[Windowed[K]]:
    """Return the serde of keys in sessions, Java's SessionWindowedSerializer.

    ``Windowed("a", 1, 258)`` <-> hex ``61 00 00 00 00 00 00 01 02 00 00 00 00 00 00 00 01``.

    :param key_serde: serde of the key without the session.
    """
    check_serdes("serdes.session_windowed", key_serde=key_serde)
    serialize, deserialize = key_serde.serialize, key_serde.deserialize

    def write(windowed: Windowed[K]) -> bytes:
        key, start_ms, end_ms = windowed
        return serialize(key) + _END_AND_START.pack(end_ms, start_ms)

    def read(data: bytes) -> Windowed[K]:
        end_ms, start_ms = _END_AND_START.unpack(data[-16:])
        return Windowed(deserialize(data[:-16]), start_ms, end_ms)

    return Serde(
        id=f"session_windowed({key_serde.id})",
        written_as=f"session_windowed({key_serde.stored_as})",
        serialize=write,
        deserialize=read,
        for_topic=wrapped_for_topic(key_serde, session_windowed),
        partition_bytes=lambda windowed: serialize(windowed.key),
    )
