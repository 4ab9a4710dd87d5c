"""The topologies of ``KafkaStreamsPeer.java``, in our words; keep the two alike, name by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from airflow_kstreams.streams import (
    HoppingWindow,
    KGroupedTable,
    KStreamBuilder,
    KTable,
    Processor,
    ProcessorContext,
    SessionStoreSpec,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    Topology,
    TumblingWindow,
    VersionedStoreSpec,
    serdes,
)

TEXT = serdes.string()


@dataclass(kw_only=True)
class Topologies:
    """Adds topologies to a builder by name; without caches, as in the peer.

    :param parameters: milliseconds by name, and ``deletes``.
    """

    parameters: dict[str, Any]
    builder: KStreamBuilder = field(
        default_factory=lambda: KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    )

    def build(self, name: str) -> Topology:
        """Return the topology of a name."""
        getattr(self, name)()
        return self.builder.build()

    # == records one by one

    def filter(self) -> None:
        self._in().filter(lambda k, v: odd(v)).send_to("out")

    def filter_not(self) -> None:
        self._in().filter_not(lambda k, v: odd(v)).send_to("out")

    def map(self) -> None:
        self._in().map(lambda k, v: (v, k)).send_to("out")

    def map_values(self) -> None:
        self._in().map_values(lambda v: "none" if v is None else v + v).send_to("out")

    def map_values_with_key(self) -> None:
        self._in().map_values(lambda v, key: f"{text(key)}:{text(v)}").send_to("out")

    def flat_map_values_with_key(self) -> None:
        self._in().flat_map_values(lambda v, key: [f"{text(key)}:{text(v)}", f"{text(key)}'"]).send_to("out")

    def flat_map(self) -> None:
        self._in().flat_map(copies).send_to("out")

    def flat_map_values(self) -> None:
        self._in().flat_map_values(lambda v: [] if v is None else [v, v + "'"]).send_to("out")

    def select_key(self) -> None:
        self._in().select_key(lambda k, v: v).send_to("out")

    def peek(self) -> None:
        self._in().peek(lambda k, v: None).send_to("out")

    def merge(self) -> None:
        self._in().merge(self._other()).send_to("out")

    def repartition(self) -> None:
        self._in().repartition(2, name="spread").send_to("out")

    def branch(self) -> None:
        first, second = self._in().branch(lambda k, v: odd(v), lambda k, v: k is not None)
        first.send_to("out-1")
        second.send_to("out-2")

    def split(self) -> None:
        branches = self._in().split(odd=lambda k, v: odd(v), default="even")
        branches["odd"].send_to("out-1")
        branches["even"].send_to("out-2")

    def set_headers(self) -> None:
        self._numbered(self._in()).send_to("out")

    def set_timestamp(self) -> None:
        self._redated().send_to("out")

    def process_values(self) -> None:
        self._in().process_values(Twice).send_to("out", value_serde=TEXT)

    def two_children(self) -> None:
        source = self._in()
        source.filter(lambda k, v: odd(v)).map_values(lambda v: f"{v}!").send_to("out")
        source.send_to("out")
        source.filter_not(lambda k, v: odd(v)).send_to("out")

    def dead_letter(self) -> None:
        self._in().map_values(failing).send_to("out")

    def changed_dead_letter(self) -> None:
        self._numbered(self._redated()).map_values(failing).send_to("out")

    def written_dead_letter(self) -> None:
        source = self._in()
        source.send_to("copies")
        source.map_values(failing).send_to("out")

    def punctuated(self) -> None:
        self._in().process(lambda: Clock(self.parameters["interval"])).send_to("out")

    # == tables

    def count(self) -> None:
        self._in().group_by_key().count(store=counts()).to_stream().send_to("out")

    def reduce(self) -> None:
        self._in().group_by_key().reduce(self._reduced, store=texts()).to_stream().send_to("out")

    def aggregate(self) -> None:
        self._in().group_by_key().aggregate(str, self._added, store=texts()).to_stream().send_to("out")

    def group_by_count(self) -> None:
        self._in().group_by(lambda k, v: group(v)).count(store=counts()).to_stream().send_to("out")

    def group_by_aggregate(self) -> None:
        grouped = self._in().group_by(lambda k, v: group(v))
        grouped.aggregate(str, self._added, store=texts()).to_stream().send_to("out")

    def redated_count(self) -> None:
        self._redated().group_by_key().count(store=counts()).to_stream().send_to("out")

    def cogroup(self) -> None:
        self._cogrouped().aggregate(str, store=texts()).to_stream().send_to("out")

    def table(self) -> None:
        self.builder.table("in", store=texts()).to_stream().send_to("out")

    def to_table(self) -> None:
        self._in().to_table(store=texts()).to_stream().send_to("out")

    def rekeyed_to_table(self) -> None:
        rekeyed = self._in().select_key(lambda k, v: group(v))
        rekeyed.to_table(store=texts()).to_stream().send_to("out")

    def table_filter(self) -> None:
        self._table("in").filter(lambda k, v: odd(v)).to_stream().send_to("out")

    def table_filter_not(self) -> None:
        self._table("in").filter_not(lambda k, v: odd(v)).to_stream().send_to("out")

    def table_filter_kept(self) -> None:
        kept = self._table("in").filter(lambda k, v: odd(v), store=texts("kept"))
        kept.to_stream().send_to("out")

    def table_map_values(self) -> None:
        self._table("in").map_values(lambda v: v + v).to_stream().send_to("out")

    def table_map_values_with_key(self) -> None:
        self._table("in").map_values(of_key).to_stream().send_to("out")

    def table_map_values_filter(self) -> None:
        mapped = self._table("in").map_values(lambda v: f"w{number(v) // 2}")
        mapped.filter(lambda k, v: odd(v)).to_stream().send_to("out")

    def table_to_stream_by_value(self) -> None:
        self._table("in").to_stream(lambda k, v: "none" if v is None else v).send_to("out")

    def table_group_count(self) -> None:
        self._by_group().count(store=counts()).to_stream().send_to("out")

    def table_group_reduce(self) -> None:
        self._by_group().reduce(put, taken, store=texts("total")).to_stream().send_to("out")

    def table_group_aggregate(self) -> None:
        self._by_group().aggregate(
            str,
            lambda k, v, total: put(total, v),
            lambda k, v, total: None if self._deletes(v) else taken(total, v),
            store=texts("total"),
        ).to_stream().send_to("out")

    def tables_join(self) -> None:
        self._table("in").join(self._table("other"), pair).to_stream().send_to("out")

    def tables_left_join(self) -> None:
        self._table("in").left_join(self._table("other"), pair).to_stream().send_to("out")

    def tables_outer_join(self) -> None:
        self._table("in").outer_join(self._table("other"), pair).to_stream().send_to("out")

    def tables_outer_join_kept(self) -> None:
        joined = self._table("in").outer_join(self._table("other"), pair, store=texts("kept"))
        joined.to_stream().send_to("out")

    def tables_join_filter(self) -> None:
        other = self._table("other").filter(lambda k, v: odd(v))
        joined = self._table("in").left_join(other, pair)
        joined.filter(lambda k, v: len(v) % 2 == 0).to_stream().send_to("out")

    def tables_join_group(self) -> None:
        other = self._table("other").map_values(lambda v: v + "!")
        joined = self._table("in").filter(lambda k, v: odd(v)).outer_join(other, pair)
        grouped = joined.group_by(lambda k, v: (f"g{len(v) % 3}", v))
        grouped.reduce(put, taken, store=texts("total")).to_stream().send_to("out")

    def tables_of_one_table(self) -> None:
        table = self._table("in")
        filtered, mapped = table.filter(lambda k, v: odd(v)), table.map_values(lambda v: v + "!")
        filtered.join(mapped, pair).to_stream().send_to("out")

    def foreign_key_join(self) -> None:
        self._by_foreign_key("join").to_stream().send_to("out")

    def foreign_key_left_join(self) -> None:
        self._by_foreign_key("left_join").to_stream().send_to("out")

    def foreign_key_left_join_twice(self) -> None:
        table = self._table("in")
        kept = table.join(
            self._table("other"),
            lambda left, right: left,
            foreign_key=lambda k, v: foreign(v),
            store=texts("kept"),
        )
        joined = kept.left_join(
            self._table("third"),
            pair,
            foreign_key=lambda k, v: foreign(f"v{number(v) // 4}"),
            store=texts("joined"),
        )
        joined.to_stream().send_to("out")

    def foreign_key_join_kept(self) -> None:
        self._by_foreign_key("left_join", store=texts("kept")).to_stream().send_to("out")

    def foreign_key_join_group(self) -> None:
        joined = self._by_foreign_key("join", store=texts("joined"))
        grouped = joined.group_by(lambda k, v: (f"g{len(v) % 3}", v))
        grouped.reduce(put, taken, store=texts("total")).to_stream().send_to("out")

    def count_group(self) -> None:
        counted = self._in().group_by_key().count(store=counts())
        grouped = counted.group_by(
            lambda k, count: ("odd" if count % 2 else "even", count), value_serde=serdes.int64()
        )
        grouped.count(store=counts("total")).to_stream().send_to("out")

    def count_join(self) -> None:
        source = self._in()
        counted = source.group_by_key().count(store=counts())
        source.join(counted, lambda v, count: f"{v}+{count}").send_to("out")

    def table_join(self) -> None:
        self._in().join(self.builder.table("other"), pair).send_to("out")

    def table_join_with_key(self) -> None:
        self._in().join(self.builder.table("other"), pair_of_key).send_to("out")

    def table_left_join_with_key(self) -> None:
        self._in().left_join(self.builder.table("other"), pair_of_key).send_to("out")

    def global_join_with_key(self) -> None:
        table = self.builder.global_table("other")
        self._in().join(table, pair_of_key, key=lambda k, v: foreign(v)).send_to("out")

    def table_left_join(self) -> None:
        self._in().left_join(self.builder.table("other"), pair).send_to("out")

    def global_join(self) -> None:
        table = self.builder.global_table("other")
        self._in().join(table, pair, key=lambda k, v: foreign(v)).send_to("out")

    def global_left_join(self) -> None:
        table = self.builder.global_table("other")
        self._in().left_join(table, pair, key=lambda k, v: foreign(v)).send_to("out")

    def rekeyed_table_join(self) -> None:
        rekeyed = self._in().select_key(lambda k, v: group(v))
        rekeyed.join(self.builder.table("other"), pair).send_to("out")

    def rekeyed_table_left_join(self) -> None:
        rekeyed = self._in().select_key(lambda k, v: group(v))
        rekeyed.left_join(self.builder.table("other"), pair).send_to("out")

    # == tables with versions

    def versioned_table(self) -> None:
        self._versioned("in").to_stream().send_to("out")

    def versioned_to_table(self) -> None:
        self._in().to_table(store=self._versions("store")).to_stream().send_to("out")

    def versioned_filter(self) -> None:
        filtered = self._versioned("in").filter(lambda k, v: odd(v))
        filtered.map_values(lambda v: v + v).to_stream().send_to("out")

    def versioned_filter_kept(self) -> None:
        kept = self._versioned("in").filter(lambda k, v: odd(v), store=texts("kept"))
        kept.to_stream().send_to("out")

    def versioned_filter_versions(self) -> None:
        kept = self._versioned("in").filter(lambda k, v: odd(v), store=self._versions("kept"))
        kept.to_stream().send_to("out")

    def versioned_join(self) -> None:
        self._in().join(self._versioned("other"), pair).send_to("out")

    def versioned_left_join(self) -> None:
        self._in().left_join(self._versioned("other"), pair).send_to("out")

    def versioned_filter_join(self) -> None:
        filtered = self._versioned("other").filter(lambda k, v: odd(v)).map_values(lambda v: v + v)
        self._in().left_join(filtered, pair).send_to("out")

    def versioned_kept_join(self) -> None:
        kept = self._versioned("other").filter(lambda k, v: odd(v), store=self._versions("kept"))
        self._in().left_join(kept, pair).send_to("out")

    def versioned_group_reduce(self) -> None:
        grouped = self._versioned("in").group_by(lambda k, v: (group(v), v))
        grouped.reduce(put, taken, store=texts("total")).to_stream().send_to("out")

    def versioned_filter_group(self) -> None:
        filtered = self._versioned("in").filter(lambda k, v: odd(v))
        grouped = filtered.group_by(lambda k, v: (group(v), v))
        grouped.reduce(put, taken, store=texts("total")).to_stream().send_to("out")

    def versioned_tables_join(self) -> None:
        self._versioned("in").join(self._versioned("other"), pair).to_stream().send_to("out")

    def versioned_tables_outer_join(self) -> None:
        self._versioned("in").outer_join(self._table("other"), pair).to_stream().send_to("out")

    def versioned_foreign_key_join(self) -> None:
        joined = self._versioned("in").left_join(
            self._versioned("other"), pair, foreign_key=lambda k, v: foreign(v)
        )
        joined.to_stream().send_to("out")

    # == windows

    def tumbling_count(self) -> None:
        self._tumbling().count(store=counts()).to_stream().send_to("out")

    def tumbling_reduce(self) -> None:
        self._tumbling().reduce(self._reduced, store=texts()).to_stream().send_to("out")

    def tumbling_aggregate(self) -> None:
        self._tumbling().aggregate(str, self._added, store=texts()).to_stream().send_to("out")

    def filtered_tumbling_count(self) -> None:
        filtered = self._in().filter(lambda k, v: odd(v)).group_by_key()
        filtered.windowed_by(self._tumbling_window()).count(store=counts()).to_stream().send_to("out")

    def hopping_count(self) -> None:
        self._hopping().count(store=counts()).to_stream().send_to("out")

    def hopping_aggregate(self) -> None:
        self._hopping().aggregate(str, self._added, store=texts()).to_stream().send_to("out")

    def redated_tumbling_count(self) -> None:
        grouped = self._redated().group_by_key().windowed_by(self._tumbling_window())
        grouped.count(store=counts()).to_stream().send_to("out")

    def cogroup_tumbling(self) -> None:
        windows = self._cogrouped().windowed_by(self._tumbling_window())
        windows.aggregate(str, store=texts()).to_stream().send_to("out")

    def sliding_count(self) -> None:
        self._sliding().count(store=counts()).to_stream().send_to("out")

    def sliding_reduce(self) -> None:
        self._sliding().reduce(self._reduced, store=texts()).to_stream().send_to("out")

    def sliding_aggregate(self) -> None:
        self._sliding().aggregate(str, self._added, store=texts()).to_stream().send_to("out")

    def sliding_group(self) -> None:
        table = self._sliding().aggregate(str, self._added, store=texts())
        grouped = table.group_by(lambda window, v: ("g", v))
        grouped.reduce(put, taken, store=texts("total")).to_stream().send_to("out")

    def sliding_suppress(self) -> None:
        self._sliding().aggregate(str, self._added, store=texts()).suppress().to_stream().send_to("out")

    def session_count(self) -> None:
        self._sessions().count(store=counts()).to_stream().send_to("out")

    def session_reduce(self) -> None:
        self._sessions().reduce(self._reduced, store=texts()).to_stream().send_to("out")

    def session_aggregate(self) -> None:
        self._sessions().aggregate(str, self._added, merged, store=texts()).to_stream().send_to("out")

    def tumbling_suppress(self) -> None:
        self._tumbling().aggregate(str, self._added, store=texts()).suppress().to_stream().send_to("out")

    def suppress_group(self) -> None:
        table = self._tumbling().aggregate(str, self._added, store=texts()).suppress()
        grouped = table.group_by(lambda window, v: ("g", v))
        grouped.reduce(put, taken, store=texts("total")).to_stream().send_to("out")

    def hopping_suppress(self) -> None:
        self._hopping().aggregate(str, self._added, store=texts()).suppress().to_stream().send_to("out")

    def session_group(self) -> None:
        table = self._sessions().aggregate(str, self._added, merged, store=texts())
        grouped = table.group_by(lambda window, v: ("g", v))
        grouped.reduce(put, taken, store=texts("total")).to_stream().send_to("out")

    def tumbling_emitted(self) -> None:
        self.tumbling_suppress()

    def session_retained(self) -> None:
        spec = SessionStoreSpec(
            name="store",
            key_serde=TEXT,
            value_serde=TEXT,
            cached=False,
            retention_ms=self.parameters["retention"],
        )
        self._sessions().aggregate(str, self._added, merged, store=spec).to_stream().send_to("out")

    def session_suppress(self) -> None:
        table = self._sessions().aggregate(str, self._added, merged, store=texts())
        table.suppress().to_stream().send_to("out")

    # == joins of two streams

    def join(self) -> None:
        self._left(self._in()).join(self._right(self._other()), pair).send_to("out")

    def left_join(self) -> None:
        self._left(self._in()).left_join(self._right(self._other()), pair).send_to("out")

    def join_with_key(self) -> None:
        self._left(self._in()).join(self._right(self._other()), pair_of_key).send_to("out")

    def outer_join_with_key(self) -> None:
        self._left(self._in()).outer_join(self._right(self._other()), pair_of_key).send_to("out")

    def outer_join(self) -> None:
        self._left(self._in()).outer_join(self._right(self._other()), pair).send_to("out")

    def self_join(self) -> None:
        source = self._in()
        self._left(source).join(self._right(source), pair).send_to("out")

    def join_count(self) -> None:
        joined = self._left(self._in()).join(self._right(self._other()), pair)
        grouped = joined.group_by_key(value_serde=TEXT)
        grouped.count(store=counts()).to_stream().send_to("out")

    def rekeyed_join(self) -> None:
        left = self._in().select_key(lambda k, v: group(v))
        right = self._other().select_key(lambda k, v: group(v))
        self._left(left).join(self._right(right), pair, key_serde=TEXT).send_to("out")

    # == parts

    def _in(self) -> Any:
        return self.builder.stream("in")

    def _other(self) -> Any:
        return self.builder.stream("other")

    def _by_foreign_key(self, call: str, **options: Any) -> KTable:
        join = getattr(self._table("in"), call)
        joined: KTable = join(self._table("other"), pair, foreign_key=lambda k, v: foreign(v), **options)
        return joined

    def _table(self, topic: str) -> KTable:
        return self.builder.table(topic, store=texts(f"{topic}-table"))

    def _versioned(self, topic: str) -> KTable:
        return self.builder.table(topic, store=self._versions(f"{topic}-table"))

    def _versions(self, name: str) -> VersionedStoreSpec:
        return VersionedStoreSpec(
            name=name, key_serde=TEXT, value_serde=TEXT, history_ms=self.parameters["history"]
        )

    def _by_group(self) -> KGroupedTable:
        return self._table("in").group_by(lambda k, v: (group(v), v))

    def _tumbling_window(self) -> TumblingWindow:
        return TumblingWindow(size_ms=self.parameters["size"], grace_ms=self.parameters["grace"])

    def _tumbling(self) -> Any:
        return self._in().group_by_key().windowed_by(self._tumbling_window())

    def _hopping(self) -> Any:
        window = HoppingWindow(
            size_ms=self.parameters["size"],
            advance_ms=self.parameters["advance"],
            grace_ms=self.parameters["grace"],
        )
        return self._in().group_by_key().windowed_by(window)

    def _sliding(self) -> Any:
        window = SlidingWindow(size_ms=self.parameters["size"], grace_ms=self.parameters["grace"])
        return self._in().group_by_key().windowed_by(window)

    def _redated(self) -> Any:
        return self._in().set_timestamp(lambda k, v, context: context.timestamp_ms + 3 * (number(v) % 4))

    def _numbered(self, stream: Any) -> Any:
        return stream.set_headers(
            lambda k, v, context: [*context.headers, ("number", str(number(v)).encode())]
        )

    def _cogrouped(self) -> Any:
        cogroup = self._in().group_by_key().cogroup(self._added)
        return cogroup.cogroup(
            self._other().group_by_key(), lambda k, v, aggregate: self._added(k, f"{v}'", aggregate)
        )

    def _sessions(self) -> Any:
        window = SessionWindow(gap_ms=self.parameters["gap"], grace_ms=self.parameters["grace"])
        return self._in().group_by_key().windowed_by(window)

    def _left(self, stream: Any) -> Any:
        return stream.with_window(
            SlidingWindow(size_ms=self.parameters["left"], grace_ms=self.parameters["grace"])
        )

    def _right(self, stream: Any) -> Any:
        return stream.with_window(
            SlidingWindow(size_ms=self.parameters["right"], grace_ms=self.parameters["grace"])
        )

    # == what users would write

    def _deletes(self, value: str | None) -> bool:
        return bool(self.parameters.get("deletes")) and number(value) % 5 == 4

    def _reduced(self, reduced: str, value: str) -> str | None:
        return None if self._deletes(value) else f"{reduced},{value}"

    def _added(self, key: str, value: str, aggregate: str) -> str | None:
        return None if self._deletes(value) else f"{aggregate},{value}"


class Twice(Processor):
    """Forwards each record, and its successor under the same key."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Any) -> None:
        self._context.forward(record.key, record.value)
        self._context.forward(record.key, f"v{number(record.value) + 1}")


class Clock(Processor):
    """Forwards the times at which it is punctuated, and between them what it gets."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        context.schedule(self._interval_ms)

    def process(self, record: Any) -> None:
        self._context.forward(record.key, record.value)

    def punctuate(self, stream_time_ms: int) -> None:
        self._context.forward("time", str(stream_time_ms))


def counts(name: str = "store") -> StoreSpec:
    return StoreSpec(name=name, key_serde=TEXT, value_serde=serdes.int64(), cached=False)


def texts(name: str = "store") -> StoreSpec:
    return StoreSpec(name=name, key_serde=TEXT, value_serde=TEXT, cached=False)


def put(total: str, value: str) -> str:
    return f"{total}+{value}"


def taken(total: str, value: str) -> str:
    return f"{total}-{value}"


def number(value: str | None) -> int:
    return 0 if value is None else int(value.removesuffix("'")[1:])


def failing(value: str | None) -> str | None:
    if number(value) % 3 == 0:
        raise ValueError("no thirds")
    return value


def foreign(value: str) -> str | None:
    return ("a", "b", "g0", None)[number(value) % 4]


def odd(value: str | None) -> bool:
    return number(value) % 2 == 1


def group(value: str | None) -> str | None:
    return None if value is None or number(value) % 7 == 0 else f"g{number(value) % 3}"


def copies(key: str | None, value: str | None) -> Iterable[tuple[str | None, str | None]]:
    return [(key if copy == 0 else "copy", value) for copy in range(number(value) % 3)]


def merged(key: str, earlier: str, later: str) -> str:
    return f"({earlier}|{later})"


def text(given: str | None) -> str:
    return "null" if given is None else given


def of_key(value: str, key: str) -> str:
    return f"{key}:{value}"


def pair(left: str | None, right: str | None) -> str:
    return f"{text(left)}+{text(right)}"


def pair_of_key(left: str | None, right: str | None, key: str | None) -> str:
    return f"{pair(left, right)}+{'none' if key is None else key}"


#: Of every topology.
NAMES = tuple(
    name for name, part in vars(Topologies).items() if callable(part) and name[0] != "_" and name != "build"
)
