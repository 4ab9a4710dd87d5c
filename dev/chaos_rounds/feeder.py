"""The feeder: keeps producing payments, some in transactions that are committed and some in aborted ones.

A program of its own; it ends when its standard input does. ``burst COUNT SEED`` on its standard input makes
it write so many committed records at once and answer with a line that holds their number; between bursts a
trickle goes on. Records of aborted transactions have ``cents`` that would spoil every sum.

Per account, records are in order: a batch is delivered before the next one begins, whoever writes it. If the
outcome of a transaction is unknown, its numbers are not used again.
"""

from __future__ import annotations

import random
import select
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec
from confluent_kafka import KafkaException, Producer

from dev.chaos_rounds.evidence import Payment
from dev.chaos_rounds.topics import ACCOUNTS, KINDS, PAYMENTS, SHOPS

Way = Literal["plain", "committed", "aborted"]

_BATCH = 60
_TRICKLE, _TRICKLE_SECONDS = 4, 0.4
_CLIENT_SECONDS = 5.0
_GIVE_UP_SECONDS = 120.0
_SPOILT_CENTS = 1_000_000
_TRANSACTIONAL_ID = "chaos-feeder"


class Feeder:
    """Writes payments.

    :param bootstrap: the broker itself, not the proxy.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._random = random.Random(0)  # noqa: S311 - seeded test data
        self._numbers: Counter[str] = Counter()
        self._id = 0
        self._plain: Producer | None = None
        self._transactional: Producer | None = None

    def burst(self, count: int, seed: str) -> int:
        """Write at least so many records that count; return how many they were."""
        self._random.seed(seed)
        written = 0
        while written < count:
            written += self.batch(min(_BATCH, count))
        return written

    def batch(self, count: int) -> int:
        """Write one batch, in a way that is drawn; return how many records of it count."""
        way: Way = self._random.choices(("plain", "committed", "aborted"), (6, 3, 1))[0]
        payments = [self._payment(void=way == "aborted") for _ in range(count)]
        if way == "plain":
            return self._write_plainly(payments)
        try:
            return self._write_in_transaction(payments, commit=way == "committed")
        except KafkaException:
            self._transactional = None  # whoever claims the id next ends what it left open
            return 0

    def _payment(self, *, void: bool) -> Payment:
        draw = self._random.randrange
        self._id += 1
        account = f"account-{draw(ACCOUNTS)}"
        self._numbers[account] += not void
        return Payment(
            id=self._id,
            account=account,
            number=self._numbers[account],
            shop=f"shop-{draw(SHOPS)}",
            kind=f"kind-{draw(KINDS)}",
            cents=_SPOILT_CENTS + draw(1000) if void else draw(1, 10_000),
        )

    def _write_plainly(self, payments: Sequence[Payment]) -> int:
        if self._plain is None:
            self._plain = self._producer()
        self._produce(self._plain, payments)
        deadline = time.monotonic() + _GIVE_UP_SECONDS
        while self._plain.flush(_CLIENT_SECONDS):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self._plain)} records were not delivered")
        return len(payments)

    def _write_in_transaction(self, payments: Sequence[Payment], *, commit: bool) -> int:
        if self._transactional is None:
            self._transactional = self._claimed()
        self._transactional.begin_transaction()
        self._produce(self._transactional, payments)
        if commit:
            self._transactional.commit_transaction(_GIVE_UP_SECONDS)
            return len(payments)
        self._transactional.flush(_CLIENT_SECONDS)
        self._transactional.abort_transaction(_GIVE_UP_SECONDS)
        return 0

    def _claimed(self) -> Producer:
        deadline = time.monotonic() + _GIVE_UP_SECONDS
        while True:
            producer = self._producer(**{"transactional.id": _TRANSACTIONAL_ID})
            try:
                producer.init_transactions(_CLIENT_SECONDS)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
            else:
                return producer

    def _producer(self, **more: str) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
                "transaction.timeout.ms": 10_000,
                "log_level": 2,
                **more,
            }
        )

    @staticmethod
    def _produce(producer: Producer, payments: Sequence[Payment]) -> None:
        for payment in payments:
            producer.produce(PAYMENTS, msgspec.json.encode(payment._asdict()), payment.account.encode())


def main(bootstrap: str) -> None:
    """Feed until standard input ends."""
    feeder = Feeder(bootstrap)
    while True:
        if not select.select([sys.stdin], [], [], _TRICKLE_SECONDS)[0]:
            feeder.batch(_TRICKLE)
            continue
        words = sys.stdin.readline().split()
        if not words:
            return
        sys.stdout.write(f"{feeder.burst(int(words[1]), words[2])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
