"""Counts the attempts of a task, and decides whether another may follow a failure."""

from __future__ import annotations

from airflow_kstreams.streams.errors import (
    KafkaClientError,
    RecordError,
    TransactionAbortedError,
    record_refused,
)
from airflow_kstreams.streams.settings import ApplicationSettings

#: Number of attempts in a row that may find their transaction too old before the task's functions are blamed
#: for it rather than a machine or broker that was suspended.
#: rather than a machine or broker that was suspended.
_PAUSES_FORGIVEN = 2


class RetryBudget:
    """Counts the attempts of one task within a process.

    :ivar number: number of the attempt that was begun last, from 1.
    :ivar fruitless: number of attempts in a row that have committed nothing, less those that found a result
        to leave out.
    :ivar refused: results that the broker has refused for their size or time: content -> its error; the next
        attempt leaves them out.
    """

    def __init__(self) -> None:
        self.number = 0
        self.fruitless = 0
        self.refused: dict[str, RecordError] = {}
        self._grown_old = 0

    @property
    def patient(self) -> bool:
        """Whether a transaction that grows too old is still blamed on the machine or the broker."""
        return self._grown_old < _PAUSES_FORGIVEN

    def begin(self) -> None:
        """Count another attempt."""
        self.number += 1
        self.fruitless += 1

    def end(self, *, commits: int, grew_old: bool) -> None:
        """Count the end of an attempt.

        :param commits: the number of commits that it made.
        :param grew_old: whether it gave up a transaction that had grown too old.
        """
        if commits:
            self.fruitless = self._grown_old = 0
        self._grown_old += grew_old

    def leaves_out(self, error: BaseException, settings: ApplicationSettings) -> bool:
        """Return whether another attempt goes on without the result that the last one failed for."""
        if settings.production_exception_handler == "fail" or not isinstance(error, RecordError):
            return False
        found = error.contents.keys() - self.refused.keys()
        if not found:
            return False
        for content in found:
            self.refused[content] = record_refused(error.topic, error.partition, error.contents[content])
        self.fruitless -= 1
        return True


def resumable(error: BaseException) -> bool:
    """Return whether dropping everything and starting over at step 1 of the task protocol may help."""
    return isinstance(error, TransactionAbortedError) or (
        isinstance(error, KafkaClientError) and error.is_retriable
    )
