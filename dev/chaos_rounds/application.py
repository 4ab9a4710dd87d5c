"""The application that the rounds run: three subtopologies, two stores, one repartition and one user topic.

- Subtopology 0 reads ``chaos-payments`` (key: the account), copies each record to ``chaos-echo``, and sends
  it on twice: by shop to the user's topic ``chaos-moved``, by kind to a repartition topic.
- Subtopology 1 reads ``chaos-moved`` and writes every single update of a shop's running sums to
  ``chaos-running``: nothing is cached.
- Subtopology 2 reads the repartition topic and folds by kind; ``chaos-totals`` gets the cached results of
  each commit point. A total names the last payment of every account it contains, so that whoever knows the
  input can tell exactly which payments it must be the fold of.

Each record takes a moment, so that a run is long enough to be hit in the middle of its work.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    StoreSpec,
    Topology,
    serdes,
)
from dev.chaos_rounds.topics import ECHO, MOVED, PAYMENTS, RUNNING, RUNNING_STORE, TOTALS, TOTALS_STORE

_RECORD_SECONDS = 0.001


class Payment(msgspec.Struct, frozen=True):
    """One input record; ``number`` counts the payments of its account."""

    id: int
    account: str
    number: int
    shop: str
    kind: str
    cents: int


class Sums(msgspec.Struct, frozen=True):
    """A shop's sums after one more payment, whose id is ``last``."""

    last: int
    count: int
    total: int
    least: int
    most: int


class Totals(msgspec.Struct, frozen=True):
    """A kind's totals; ``numbers`` holds the number of the last payment of each account."""

    count: int
    total: int
    least: int
    most: int
    numbers: dict[str, int]


class RunningSums(Processor):
    """Writes a shop's sums after each of its payments."""

    def init(self, context: ProcessorContext) -> None:
        """Look up the store."""
        self._context = context
        self._sums = context.state_store(RUNNING_STORE)

    def process(self, record: ProcessorRecord) -> None:
        """Add one payment."""
        time.sleep(_RECORD_SECONDS)
        payment: Payment = record.value
        before: Sums | None = self._sums.get(record.key)
        cents = payment.cents
        if before is None:
            after = Sums(payment.id, 1, cents, cents, cents)
        else:
            after = Sums(
                payment.id,
                before.count + 1,
                before.total + cents,
                min(before.least, cents),
                max(before.most, cents),
            )
        self._sums.put(record.key, after)
        self._context.forward(record.key, after)


def slowly(payment: Payment) -> Payment:
    """Take a moment."""
    time.sleep(_RECORD_SECONDS)
    return payment


def nothing() -> Any:
    """Begin the totals of a kind."""
    return None


def add(_: str, payment: Payment, totals: Totals | None) -> Totals:
    """Add a payment to its kind's totals."""
    time.sleep(_RECORD_SECONDS)
    cents = payment.cents
    if totals is None:
        return Totals(1, cents, cents, cents, {payment.account: payment.number})
    return Totals(
        totals.count + 1,
        totals.total + cents,
        min(totals.least, cents),
        max(totals.most, cents),
        {**totals.numbers, payment.account: payment.number},
    )


def topology() -> Topology:
    """Build it."""
    text, payment = serdes.string(), serdes.json(Payment)
    builder = KStreamBuilder()
    payments = builder.stream(PAYMENTS, key_serde=text, value_serde=payment).map_values(slowly)
    payments.send_to(ECHO, key_serde=text, value_serde=payment)
    (
        payments.select_key(lambda _, paid: paid.shop)
        .through(MOVED, key_serde=text, value_serde=payment)
        .process(
            RunningSums,
            StoreSpec(name=RUNNING_STORE, key_serde=text, value_serde=serdes.json(Sums)),
        )
        .send_to(RUNNING, key_serde=text, value_serde=serdes.json(Sums))
    )
    (
        payments.group_by(lambda _, paid: paid.kind, key_serde=text, value_serde=payment)
        .aggregate(nothing, add, store=TOTALS_STORE, value_serde=serdes.json(Totals))
        .to_stream()
        .send_to(TOTALS, key_serde=text, value_serde=serdes.json(Totals))
    )
    return builder.build()


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
