"""Chooses the next call of a task to make again, and the time for which the task stays for parked records.

Rule: the pipeline makes calls that are due before it chooses further records. Once the inputs are at their
stop, the task stays for ``retry.run.budget.ms`` while a parked record will be due within that time, and in
any case for as many calls of records due at the stop as may run at once; the other records stay parked until
the next run. Meanwhile its host commits the results of retried records (``batch/task/work.py``), so no
transaction stays open as long as the task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from airflow_kstreams.streams.calls.call import Call
from airflow_kstreams.streams.runtime.pipeline.parking import Parking
from airflow_kstreams.streams.runtime.pipeline.repeated_calls import InPlace


class Retries:
    """The nodes of one task that have a retry policy.

    :param parkings: the parked records of each node with a retry topic.
    :param in_place: the repeated calls of each other node.
    :param now_ms: function that gives the time of a clock that is never set back or forward, epoch
        milliseconds.
    :param pause: function that waits for some seconds.
    :param budget_ms: longest stay of the task at its stop, in milliseconds.
    """

    def __init__(
        self,
        parkings: Sequence[Parking],
        in_place: Sequence[InPlace],
        *,
        now_ms: Callable[[], int],
        pause: Callable[[float], None],
        budget_ms: int,
    ) -> None:
        self._parkings = tuple(parkings)
        self._in_place = tuple(in_place)
        self._now_ms = now_ms
        self._pause = pause
        self._budget_ms = budget_ms
        #: Time at which the task ends its stay, epoch milliseconds; None before its inputs are at their stop.
        self._leaves_ms: int | None = None
        #: Number of calls that are made even if the stay is over.
        self._owed = 0

    def load(self) -> list[tuple[str, Callable[[], None]]]:
        """Load the parked records of the restored stores.

        :return: (node, callback) for the nodes of which due times were moved up; the callback stores these.
        """
        found = [(parking, parking.load()) for parking in self._parkings]
        return [(parking.node, partial(parking.keep, sooner)) for parking, sooner in found if sooner]

    @property
    def parked(self) -> dict[str, int]:
        """Node -> number of parked records, those of records in flight included."""
        return {parking.node: parking.count for parking in self._parkings}

    @property
    def parks(self) -> bool:
        """True if the task has retry topics."""
        return bool(self._parkings)

    @property
    def full(self) -> bool:
        """True if so many records are parked that no more may be chosen."""
        return bool(self._parkings) and any(parking.full for parking in self._parkings)

    @property
    def parked_due_ms(self) -> int | None:
        """Time at which the next parked record is due, epoch milliseconds; None if none waits for its time
        alone.
        """
        return _first_due(self._parkings)

    def next_parked(self) -> Call | None:
        """Return the call of a parked record that is due, in a new record in flight; None if none is due."""
        if _first_due(self._parkings) is None:
            return None
        now_ms = self._now_ms()
        if self._leaves_ms is not None and now_ms >= self._leaves_ms and not self._owed:
            return None
        call = next((call for each in self._parkings if (call := each.call_again(now_ms)) is not None), None)
        if call is not None and self._owed:
            self._owed -= 1
        return call

    def next_in_place(self) -> Call | None:
        """Return a call in place that is due; None if there is none."""
        if _first_due(self._in_place) is None:
            return None
        now_ms = self._now_ms()
        return next((call for each in self._in_place if (call := each.call_again(now_ms)) is not None), None)

    def await_in_place(self, seconds: float) -> None:
        """Wait until the next call in place is due, for ``seconds`` at most."""
        due_ms = _first_due(self._in_place)
        if due_ms is not None:
            self._pause(min(seconds, max(0, due_ms - self._now_ms()) / 1000))

    def stays(self) -> bool:
        """Return True if a task whose inputs are at their stop is to wait for a parked record to be due."""
        if not self._parkings:
            return False
        now_ms = self._now_ms()
        if self._leaves_ms is None:
            self._leaves_ms = now_ms + self._budget_ms
            self._owed = sum(parking.callable_at(now_ms) for parking in self._parkings)
        due_ms = _first_due(self._parkings)
        if due_ms is None:
            return False
        return max(due_ms, now_ms) < self._leaves_ms or (self._owed > 0 and due_ms <= now_ms)


def _first_due(nodes: Sequence[Parking | InPlace]) -> int | None:
    if not nodes:
        return None
    return min((due_ms for each in nodes if (due_ms := each.due_ms) is not None), default=None)
