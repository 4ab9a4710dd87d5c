"""The limit of a task with calls: how many records may be in flight, and how many bytes they may hold."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_kstreams.streams.calls.call import AsyncNode, Call
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.records.timestamp_reading import as_consumed
from airflow_kstreams.streams.runtime.pipeline.in_flight_record import InFlightRecord
from airflow_kstreams.streams.runtime.value_sizes import size_of
from airflow_kstreams.streams.settings import ApplicationSettings

#: Records in flight for each call that may run, unless the user sets their number: while one call is slow,
#: the others go on.
_IN_FLIGHT_PER_CALL = 20


class InFlightLimit:
    """Counts the records in flight and the bytes that they hold, and says whether another one may begin.

    Sizes are estimates (``value_sizes.py``).

    :param max_records: records that may be in flight.
    :param max_bytes: bytes that they may hold; a single record may hold more.
    :ivar records: records in flight.
    :ivar size_bytes: bytes that they hold.
    """

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self.records = 0
        self.size_bytes = 0

    @property
    def allows_more(self) -> bool:
        """Whether another record may be chosen."""
        return not self.records or (self.records < self._max_records and self.size_bytes < self._max_bytes)

    def enter(self, flight: InFlightRecord, record: Record | None = None) -> None:
        """Count a record in flight, and the bytes of the consumed record that it begins with."""
        self.records += 1
        self.size_bytes += flight.size_bytes
        if record is not None:
            consumed = as_consumed(record)
            held = len(consumed.key() or b"") + len(consumed.value() or b"")
            flight.size_bytes += held
            self.size_bytes += held

    def ended(self, call: Call) -> InFlightRecord:
        """Count the result of a call that has ended, and return the record in flight that waited for it."""
        flight: InFlightRecord = call.owner
        flight.pending -= 1
        held = size_of(call.result)
        flight.size_bytes += held
        self.size_bytes += held
        return flight

    def leave(self, flight: InFlightRecord) -> None:
        """Take a released record out of the count."""
        self.records -= 1
        self.size_bytes -= flight.size_bytes


def in_flight_limit(async_nodes: Sequence[AsyncNode], settings: ApplicationSettings) -> InFlightLimit:
    """Return the limit of a task with these asynchronous nodes."""
    most = max((async_node.max_in_flight for async_node in async_nodes), default=1)
    return InFlightLimit(
        settings.max_waiting_results or _IN_FLIGHT_PER_CALL * most, settings.max_waiting_bytes
    )
