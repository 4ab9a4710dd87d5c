"""Imitates the transaction coordinator: producer ids, epochs, decisions, and their markers.

A decision (commit or abort) is final at once; its markers reach the partitions and groups later, each at its
own time, and until then the last stable offsets do not move. The next transaction of the same id, and a
producer that claims the id, must wait for the markers.

Fencing: claiming an id raises its epoch at once and aborts the older epoch's open transaction; a transaction
that outlives its timeout is aborted and its producer fenced in the same way. Requests of an older epoch are
refused from then on. A request of the *same* epoch is not: it ends or extends the open transaction, because
requests name no transaction. That makes repeated requests dangerous.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.testing.in_memory_kafka.log import PartitionLog, Transaction


class FencedError(Exception):
    """The request is of an older epoch."""


class ConcurrentError(Exception):
    """The previous transaction's markers are still being written: ask again."""


class InvalidTransactionError(Exception):
    """There is no transaction to end, or it ended the other way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The epoch of a claimed transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class _Owner:
    """The coordinator's state of a transactional id."""

    producer_id: int
    epoch: int = -1
    timeout_ms: int = 0
    transaction: Transaction | None = None
    completing: Transaction | None = None
    last_committed: bool | None = None


class TransactionCoordinator:
    """Keeps every transactional id.

    :param later: ``later(milliseconds, action)`` runs an action when that time has passed, at once for 0.
    :param now_ms: gives the time of markers.
    :param led: whether partitions have leaders; without leaders, decisions leave no marker (KAFKA-20734).
    :param marker_lag_ms: draws the delay of each marker.
    :param on_decided: called with each decided transaction, before its markers are written.
    :param on_offsets: called with the group and the transaction when the offsets' marker is written.
    """

    def __init__(
        self,
        *,
        later: Callable[[int, Callable[[], None]], None],
        now_ms: Callable[[], int],
        led: Callable[[], bool],
        marker_lag_ms: Callable[[], int],
        on_decided: Callable[[Transaction], None],
        on_offsets: Callable[[str, Transaction], None],
    ) -> None:
        self._later = later
        self._now_ms = now_ms
        self._led = led
        self._marker_lag_ms = marker_lag_ms
        self._on_decided = on_decided
        self._on_offsets = on_offsets
        self._owners: dict[str, _Owner] = {}

    def claim(self, transactional_id: str, timeout_ms: int) -> Claim:
        """Claim an id.

        :raises ConcurrentError: the older epoch's transaction is fenced and decided, but not completed yet.
        """
        owner = self._owners.get(transactional_id)
        if owner is None:
            owner = self._owners[transactional_id] = _Owner(producer_id=1000 + len(self._owners))
        if owner.transaction is not None:
            owner.epoch += 1
            self._decide(owner, owner.transaction, committed=False)
        if owner.completing is not None:
            raise ConcurrentError
        owner.epoch += 1
        owner.timeout_ms = timeout_ms
        owner.last_committed = None
        return Claim(transactional_id=transactional_id, producer_id=owner.producer_id, epoch=owner.epoch)

    def add_partition(self, claim: Claim, log: PartitionLog) -> Transaction:
        """Add a partition to the open transaction, beginning one if there is none.

        :raises FencedError: the claim is not the newest.
        :raises ConcurrentError: the previous transaction is not completed yet.
        """
        transaction = self._transaction(claim)
        transaction.logs.setdefault(log.at, log)
        return transaction

    def add_offsets(
        self, claim: Claim, group: str, offsets: dict[TopicPartition, CommittedOffset]
    ) -> Transaction:
        """Add offsets to the open transaction, beginning one if there is none; raises as
        :meth:`add_partition`.
        """
        transaction = self._transaction(claim)
        transaction.offsets.setdefault(group, {}).update(offsets)
        return transaction

    def end(self, claim: Claim, *, committed: bool) -> None:
        """Decide the open transaction; deciding the same way again has no effect.

        :raises FencedError: the claim is not the newest.
        :raises InvalidTransactionError: none is open, and the last one was not decided this way.
        """
        owner = self._current(claim)
        if owner.transaction is None:
            if owner.last_committed != committed:
                raise InvalidTransactionError
            return
        self._decide(owner, owner.transaction, committed=committed)

    def time_out(self, transactional_id: str) -> bool:
        """Abort the open transaction of an id and fence its producer, as the broker does after the timeout.

        :return: whether one was open.
        """
        owner = self._owners.get(transactional_id)
        if owner is None or owner.transaction is None:
            return False
        owner.epoch += 1
        self._decide(owner, owner.transaction, committed=False)
        return True

    def hanging(self) -> list[str]:
        """Return the ids with a transaction that is open or not completed yet."""
        return [name for name, owner in self._owners.items() if owner.transaction or owner.completing]

    def is_pending(self, group: str, partitions: Collection[TopicPartition]) -> bool:
        """Whether a transaction that is not completed holds the group's offset of one of the partitions."""
        return any(
            not transaction.offsets.get(group, {}).keys().isdisjoint(partitions)
            for owner in self._owners.values()
            for transaction in (owner.transaction, owner.completing)
            if transaction is not None
        )

    def _current(self, claim: Claim) -> _Owner:
        owner = self._owners[claim.transactional_id]
        if owner.epoch != claim.epoch:
            raise FencedError
        return owner

    def _transaction(self, claim: Claim) -> Transaction:
        owner = self._current(claim)
        if owner.transaction is not None:
            return owner.transaction
        if owner.completing is not None:
            raise ConcurrentError
        begun = owner.transaction = Transaction(
            transactional_id=claim.transactional_id, producer_id=claim.producer_id, epoch=claim.epoch
        )
        self._later(max(1, owner.timeout_ms), lambda: self._expire(owner, begun))
        return begun

    def _expire(self, owner: _Owner, transaction: Transaction) -> None:
        if owner.transaction is transaction:
            owner.epoch += 1
            self._decide(owner, transaction, committed=False)

    def _decide(self, owner: _Owner, transaction: Transaction, *, committed: bool) -> None:
        transaction.committed = committed
        if not self._led():
            transaction.logs, transaction.offsets = {}, {}
        owner.transaction, owner.completing = None, transaction
        owner.last_committed = committed
        transaction.unmarked = len(transaction.logs) + len(transaction.offsets)
        self._on_decided(transaction)
        if not transaction.unmarked:
            owner.completing = None

        def marked() -> None:
            transaction.unmarked -= 1
            if not transaction.unmarked:
                owner.completing = None

        def mark_log(log: PartitionLog) -> None:
            log.mark(transaction, self._now_ms())
            marked()

        def mark_group(group: str) -> None:
            if committed:
                self._on_offsets(group, transaction)
            marked()

        for log in transaction.logs.values():
            self._later(self._marker_lag_ms(), lambda log=log: mark_log(log))  # type: ignore[misc]
        for group in transaction.offsets:
            self._later(self._marker_lag_ms(), lambda group=group: mark_group(group))  # type: ignore[misc]
