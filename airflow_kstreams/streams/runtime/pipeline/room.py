"""How much may be under way in a task with calls, and how much is."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_kstreams.streams.calls.call import Call, Station
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.records.timestamp_reading import as_consumed
from airflow_kstreams.streams.runtime.pipeline.life import Life
from airflow_kstreams.streams.runtime.value_sizes import size_of
from airflow_kstreams.streams.settings import ApplicationSettings

#: Lives for each call that may run, unless the user sets their number: a slow one does not stop the rest.
_WAITING_PER_CALL = 20


class Room:
    """Lives under way, and what they hold, about.

    :param most_lives: that may be.
    :param most_bytes: that they may hold; a single life may hold more.
    :ivar lives: that are.
    :ivar size_bytes: that they hold.
    """

    def __init__(self, most_lives: int, most_bytes: int) -> None:
        self._most_lives = most_lives
        self._most_bytes = most_bytes
        self.lives = 0
        self.size_bytes = 0

    @property
    def left(self) -> bool:
        """Whether another record may be chosen."""
        return not self.lives or (self.lives < self._most_lives and self.size_bytes < self._most_bytes)

    def enter(self, life: Life, record: Record | None = None) -> None:
        """Take in a life, and the record that it begins with."""
        self.lives += 1
        self.size_bytes += life.size_bytes
        if record is not None:
            consumed = as_consumed(record)
            held = len(consumed.key() or b"") + len(consumed.value() or b"")
            life.size_bytes += held
            self.size_bytes += held

    def ended(self, call: Call) -> Life:
        """Take note of a call that has ended, and return whose it is."""
        life: Life = call.owner
        life.pending -= 1
        held = size_of(call.result)
        life.size_bytes += held
        self.size_bytes += held
        return life

    def leave(self, life: Life) -> None:
        """Let go of a life that is released."""
        self.lives -= 1
        self.size_bytes -= life.size_bytes


def room_for(stations: Sequence[Station], settings: ApplicationSettings) -> Room:
    """Return the room of a task with these asynchronous nodes."""
    most = max((station.max_in_flight for station in stations), default=1)
    return Room(settings.max_waiting_results or _WAITING_PER_CALL * most, settings.max_waiting_bytes)
