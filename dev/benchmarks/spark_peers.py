"""The suite's topologies in Spark's own words: Structured Streaming and batch, through its JVM connector."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: As this engine's own producers have it, with a codec.
_PRODUCER = {"kafka.linger.ms": "20", "kafka.batch.size": "1000000"}
#: As many as there are cores and input partitions; the default of 200 would cost seconds.
SHUFFLE_PARTITIONS = 2

_EVENT = "id bigint, user string, amount bigint, kind string, note string"
_FLIGHT = "carrier string, flight bigint, dep_delay bigint"
_OBSERVATION = "time_hour string"
_HOUR = "date_trunc('hour', timestamp)"


def available_now(session: SparkSession, request: Mapping[str, Any]) -> float:
    """Run a query with ``Trigger.AvailableNow``: at least once, as its Kafka sink is.

    :return: seconds, from before the query is made to its end.
    """
    started = time.monotonic()
    result = _result(request["topology"], _streams(session, request), streaming=True)
    query = (
        result.writeStream.trigger(availableNow=True)
        .outputMode("update" if _sums(request) else "append")
        .format("kafka")
        .options(**_PRODUCER)
        .option("kafka.compression.type", request["codec"])
        .option("kafka.bootstrap.servers", request["bootstrap"])
        .option("topic", request["output"])
        .option("checkpointLocation", str(Path(request["folder"]) / "checkpoint"))
        .start()
    )
    query.awaitTermination()
    return time.monotonic() - started


def available_now_to_parquet(session: SparkSession, request: Mapping[str, Any]) -> float:
    """Run a query with ``Trigger.AvailableNow`` to a folder of Parquet files: exactly once, by the list of
    files that Spark keeps there. The events are filtered and mapped.

    :return: seconds, from before the query is made to its end.
    """
    started = time.monotonic()
    events = _kept(_streams(session, request)["events"])
    query = (
        events.selectExpr("e.id as id", "e.user as user", "e.amount * 100 as cents")
        .writeStream.trigger(availableNow=True)
        .outputMode("append")
        .format("parquet")
        .option("path", request["output"])
        .option("checkpointLocation", str(Path(request["folder"]) / "checkpoint"))
        .start()
    )
    query.awaitTermination()
    return time.monotonic() - started


def _streams(session: SparkSession, request: Mapping[str, Any]) -> dict[str, DataFrame]:
    """Return the inputs as streams, from their beginning on."""
    return {
        name: session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", request["bootstrap"])
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        for name, topic in request["inputs"].items()
    }


def batch(session: SparkSession, request: Mapping[str, Any]) -> float:
    """Read all there is as one batch, which keeps neither its position nor its state for the next one.

    :return: seconds, from before the query is made to its end.
    """
    started = time.monotonic()
    inputs = {
        name: session.read.format("kafka")
        .option("kafka.bootstrap.servers", request["bootstrap"])
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .load()
        for name, topic in request["inputs"].items()
    }
    result = _result(request["topology"], inputs, streaming=False)
    (
        result.write.format("kafka")
        .options(**_PRODUCER)
        .option("kafka.compression.type", request["codec"])
        .option("kafka.bootstrap.servers", request["bootstrap"])
        .option("topic", request["output"])
        .save()
    )
    return time.monotonic() - started


def _sums(request: Mapping[str, Any]) -> bool:
    return request["topology"] in ("sum_by_key", "two_stage")


def _result(topology: str, inputs: Mapping[str, DataFrame], *, streaming: bool) -> DataFrame:
    if topology == "join":
        return _joined(inputs["flights"], inputs["weather"], streaming=streaming)
    events = _read(inputs["events"])
    match topology:
        case "stateless":
            fields = "'id', e.id, 'user', e.user, 'cents', e.amount * 100"
        case "padded":
            fields = "'id', e.id, 'user', e.user, 'cents', e.amount * 100, 'note', e.note"
        case "sum_by_key":
            return _summed(events.selectExpr("key", "e.amount as amount"))
        case "two_stage":
            return _summed(events.selectExpr("concat(e.kind, '-', e.amount) as key", "e.amount as amount"))
        case _:
            raise ValueError(f"no topology {topology!r}")
    return _kept(inputs["events"]).selectExpr("key", f"to_json(named_struct({fields})) as value")


def _read(events: DataFrame) -> DataFrame:
    """Return key and content of events."""
    return events.selectExpr("key", f"from_json(cast(value as string), '{_EVENT}') as e")


def _kept(events: DataFrame) -> DataFrame:
    """Drop a tenth of the events."""
    return _read(events).where("e.amount % 10 != 0")


def _summed(amounts: DataFrame) -> DataFrame:
    summed = amounts.groupBy("key").agg({"amount": "sum"})
    return summed.selectExpr("key", "cast(`sum(amount)` as string) as value")


def _joined(flights: DataFrame, weather: DataFrame, *, streaming: bool) -> DataFrame:
    """Join by the whole hour: with a range of time alone, every flight would be compared with all the weather
    of its airport.
    """
    left = flights.selectExpr(
        "key", "timestamp", f"{_HOUR} as hour", f"from_json(cast(value as string), '{_FLIGHT}') as f"
    )
    right = weather.selectExpr(
        "key as place",
        "timestamp as seen",
        f"from_json(cast(value as string), '{_OBSERVATION}') as w",
    )
    if streaming:
        left = left.withWatermark("timestamp", "1 hour")
        right = right.withWatermark("seen", "1 hour")
    both = left.join(right, (left.key == right.place) & (left.hour == right.seen))
    fields = "'carrier', f.carrier, 'flight', f.flight, 'dep_delay', f.dep_delay, 'weather', w.time_hour"
    written = f"to_json(named_struct({fields}), map('ignoreNullFields', 'false')) as value"
    return both.selectExpr("key", written)
