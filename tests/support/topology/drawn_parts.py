"""Topologies drawn from parts: each begins at an input, a merged stream or behind an internal topic, does one
thing that depends on order, time or state, and writes a topic of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from hypothesis import strategies as st

from airflow_kstreams.streams import (
    HoppingWindow,
    KStream,
    KStreamBuilder,
    KTable,
    PartitionGrouper,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RecordContext,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    Topology,
    TumblingWindow,
    VersionedStoreSpec,
    serdes,
    timestamps,
)
from airflow_kstreams.streams.timestamps import InvalidTimestamp

#: What the topologies read: two streams, and a topic that is a table.
INPUTS = ("a", "b", "t")
KEYS = ("x", "y", "z")

Window = TumblingWindow | HoppingWindow | SlidingWindow | SessionWindow
Kind = Literal[
    "plain",
    "changed",
    "fold",
    "cogroup",
    "windows",
    "table join",
    "windowed join",
    "processor",
    "failing",
    "batches",
    "tables",
    "foreign keys",
    "versions",
]
Origin = Literal["a", "merged", "through", "rekeyed"]
Call = Literal["join", "left_join", "outer_join", "join_prior"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One branch of a topology.

    :param kind: what it does.
    :param origin: of which records.
    :param window: of a windowed fold.
    :param suppressed: whether only final results leave it.
    :param windows: left and right one of a windowed join.
    """

    kind: Kind
    origin: Origin
    cached: bool
    window: Window
    suppressed: bool
    windows: tuple[SlidingWindow, SlidingWindow]
    call: Call


def parts(*kinds: Kind) -> st.SearchStrategy[Part]:
    """Draw a part of one of these kinds, of any unless given."""
    ends = {"grace_ms": st.integers(0, 12), "at_run_end": st.sampled_from(["hold", "flush"])}
    sizes = st.integers(3, 12)
    sliding = st.builds(SlidingWindow, size_ms=sizes, **ends)
    return st.builds(
        Part,
        kind=st.sampled_from(kinds or get_args(Kind)),
        origin=st.sampled_from(get_args(Origin)),
        cached=st.booleans(),
        window=st.builds(TumblingWindow, size_ms=sizes, **ends)
        | st.builds(HoppingWindow, size_ms=sizes, advance_ms=st.integers(1, 3), **ends)
        | sliding
        | st.builds(SessionWindow, gap_ms=st.integers(1, 6), **ends),
        suppressed=st.booleans(),
        windows=st.tuples(sliding, sliding),
        call=st.sampled_from(get_args(Call)),
    )


class Totals(Processor):
    """Sums per key, reported by stream time and at the end of a run; commits at some records."""

    def __init__(self, store: str) -> None:
        self._store = store

    def init(self, context: ProcessorContext) -> None:
        self._context, self._totals = context, context.state_store(self._store)
        context.schedule(7)

    def process(self, record: ProcessorRecord) -> None:
        self._totals.put(record.key, (self._totals.get(record.key) or 0) + _number(record.value))
        self._context.forward(record.key, [self._context.stream_time_ms, record.value])
        if record.value == 3:
            self._context.commit()

    def punctuate(self, stream_time_ms: int) -> None:
        for key, total in self._totals.all():
            self._context.forward(key, [stream_time_ms, total])

    def close(self) -> None:
        for key, total in self._totals.all():
            self._context.forward(key, ["closed", total])


def topology_of(
    drawn: list[Part], grouper: PartitionGrouper | None = None, *, dated: InvalidTimestamp | None = None
) -> Topology:
    """Build a topology; part n writes ``out-n`` and keeps stores whose names end in n.

    :param dated: gives ``a`` an extractor with this policy; without, its records' own times count.
    """
    builder = KStreamBuilder(
        default_key_serde=serdes.string(), default_value_serde=serdes.json(), partition_grouper=grouper
    )
    extractor = None if dated is None else timestamps.extract(_valued_time, invalid=dated)
    a = builder.stream("a", timestamps=extractor)
    cached = any(part.cached for part in drawn)
    kept = StoreSpec(name="t", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
    b, table = builder.stream("b"), builder.table("t", store=kept)
    merged = a.merge(b)
    for number, part in enumerate(drawn):
        _Building(number, part, {"a": a, "b": b, "merged": merged}, table).add()
    return builder.build()


@dataclass(frozen=True, slots=True)
class _Building:
    number: int
    part: Part
    streams: dict[str, KStream]
    table: KTable

    def add(self) -> None:
        part, number = self.part, self.number
        match part.kind:
            case "plain":
                stream: KStream = self._stream().map_values(lambda value: [value])
            case "changed":
                split = self._stream().split(odd=_odd, default="even")
                stream = split["odd"].set_headers(lambda key, value: [("number", b"%d" % _number(value))])
                stream = stream.merge(split["even"].set_timestamp(_later))
            case "cogroup":
                one, two = (self.streams[name].group_by_key() for name in "ab")
                cogroup = one.cogroup(_listed).cogroup(two, _listed)
                stream = cogroup.aggregate(list, store=self._spec("g", part.cached)).to_stream()
            case "fold":
                grouped = self._stream().group_by_key()
                stream = grouped.aggregate(list, _listed, store=self._spec("s", part.cached)).to_stream()
            case "windows":
                stream = self._folded_windows()
            case "table join":
                # The table's partner must be partitioned alike: a record of a stream that was not rekeyed is.
                source = self.streams["a" if part.origin == "a" else "merged"]
                stream = (source.join if part.cached else source.left_join)(self.table, _pair)
            case "windowed join":
                left, right = (
                    self.streams[name].with_window(window)
                    for name, window in zip("ab", part.windows, strict=True)
                )
                stream = getattr(left, part.call)(right, _pair, name=f"j{number}")
            case "processor":
                source = self.streams["a" if part.origin == "a" else "merged"]
                spec = self._spec("p", False)
                stream = source.process(partial(Totals, spec.name), spec)
            case "failing":
                source = self.streams["a" if part.origin == "a" else "merged"]
                stream = source.map_values(_inverse)
            case "tables" | "foreign keys" | "versions":
                made = {"tables": self._tables, "foreign keys": self._by_foreign_key}
                stream = made.get(part.kind, self._versions)()
            case "batches":
                stream = self._stream().map_batches(lambda batch: batch.slice(0, 2), batch_size=3)
        stream.send_to(f"out-{number}")

    def _stream(self) -> KStream:
        match self.part.origin:
            case "a" | "merged":
                return self.streams[self.part.origin]
            case "through":
                return self.streams["merged"].through(f"middle-{self.number}")
        return self.streams["merged"].select_key(_other_key).through(f"rekeyed-{self.number}")

    def _tables(self) -> KStream:
        """Make a table of a stream, one of the table that all parts share, and group their join."""
        part = self.part
        # As above: the other side's partitions are those of the records that were not rekeyed.
        source = self.streams["a" if part.origin == "a" else "merged"]
        of_stream = source.to_table(store=self._spec("q", part.cached))
        of_topic = self.table.filter(lambda key, value: _number(value) % 3 > 0)
        joined = of_stream.outer_join(of_topic, _pair, store=self._spec("j", part.cached))
        grouped = joined.group_by(_by_left, name=f"grouped-{self.number}")
        table = grouped.aggregate(list, _listed, _unlisted, store=self._spec("g", part.cached))
        return (table if part.suppressed else table.map_values(len)).to_stream()

    def _by_foreign_key(self) -> KStream:
        """Join a table of a stream with a copy of the table that all parts share, each behind a topic: no
        table may be written by what the other one writes.
        """
        part, number = self.part, self.number
        rekeyed = self.streams["a" if part.origin == "a" else "merged"].select_key(_other_key)
        left = rekeyed.to_table(store=self._spec("l", part.cached))
        right = self.table.to_stream(lambda key, value: key).to_table(store=self._spec("r", part.cached))
        call = left.left_join if part.suppressed else left.join
        joined = call(right, _pair, foreign_key=_named, name=f"named-{number}")
        return joined.to_stream()

    def _versions(self) -> KStream:
        """Join a stream with versions of another one, in a history so short that some are too late."""
        part = self.part
        spec = VersionedStoreSpec(
            name=f"v{self.number}", key_serde=serdes.string(), value_serde=serdes.json(), history_ms=12
        )
        # The streams that are joined lie in one task: neither was rekeyed.
        table = self.streams["a" if part.origin == "a" else "merged"].to_table(store=spec)
        if part.suppressed:
            table = table.filter(lambda key, value: _number(value) % 3 > 0)
        stream = self.streams["b"]
        return (stream.join if part.cached else stream.left_join)(table, _pair)

    def _folded_windows(self) -> KStream:
        part = self.part
        merger = _both if isinstance(part.window, SessionWindow) else None
        grouped = self._stream().group_by_key().windowed_by(part.window)
        table = grouped.aggregate(list, _listed, merger, store=self._spec("w", part.cached))
        return (table.suppress() if part.suppressed else table).to_stream()

    def _spec(self, prefix: str, cached: bool) -> StoreSpec:
        return StoreSpec(
            name=f"{prefix}{self.number}",
            key_serde=serdes.string(),
            value_serde=serdes.json(),
            cached=cached,
        )


def _valued_time(record: Any) -> int | None:
    """Date a record a little later than its own time, and every fourth not at all."""
    return None if record.value is None else record.timestamp_ms + 3 * _number(record.value)


def _odd(key: str, value: Any, context: RecordContext) -> bool:
    return (context.timestamp_ms + _number(value)) % 2 == 1


def _later(key: str, value: Any, *, context: RecordContext) -> int:
    return context.timestamp_ms + _number(value)


def _inverse(value: Any) -> float:
    return 1 / (4 - _number(value))


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _listed(key: str, value: Any, seen: list[Any]) -> list[Any]:
    return [*seen, value]


def _by_left(key: str, pair: list[Any]) -> tuple[str, Any]:
    return KEYS[_number(pair[0]) % len(KEYS)], pair


def _named(key: str, value: Any) -> str | None:
    return None if _number(value) % 3 == 0 else KEYS[_number(value) // 2]


def _unlisted(key: str, value: Any, seen: list[Any]) -> list[Any] | None:
    place = seen.index(value)
    return (seen[:place] + seen[place + 1 :]) or None


def _both(key: str, left: list[Any], right: list[Any]) -> list[Any]:
    return left + right


def _pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def _other_key(key: str, value: Any) -> str:
    return KEYS[_number(value) % len(KEYS)]
