"""A definition in the DSL that was refused is written as the error says, and gives what it should."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    TumblingWindow,
    ValueTransformer,
    WindowStoreSpec,
)
from tests.support.remedies import walked
from tests.support.topology.as_told import JSON, TEXT, WHOLE, Define, Keeping, follow

HOUR = TumblingWindow(size_ms=3_600_000)
SLIDING = SlidingWindow(size_ms=60_000)
COPIED = [("a", 1), ("b", 2), ("a", 3)]
COUNTED = [("a", 1), ("b", 1), ("a", 2)]
JOINED = [("a", 11), ("a", 13)]


def spec(name: str = "kept", **options: Any) -> StoreSpec:
    return StoreSpec(**{"name": name, "key_serde": TEXT, "value_serde": WHOLE, **options})


def add(value: int, other: int) -> int:
    return value + other


def copied(stream: Any) -> Any:
    return stream.send_to("out")


def whole(table: Any) -> Any:
    return table.to_stream().send_to("out", value_serde=WHOLE)


def by_second(builder: Any) -> Any:
    return builder.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=1_000, grace_ms=0))


def windows(table: Any) -> Any:
    return table.to_stream(lambda window, value: window.key).send_to("out", value_serde=WHOLE)


class Adding(ValueTransformer[Any, Any, Any]):
    def init(self, context: Any) -> None:
        self.context = context

    def transform(self, key: Any, value: Any) -> Any:
        return None if value is None else value + 1


class Remembering(Adding):
    def init(self, context: Any) -> None:
        super().init(context)
        self.kept = context.state_store("kept")

    def transform(self, key: Any, value: Any) -> Any:
        self.kept.put(key, value)
        return super().transform(key, value)


def elsewhere() -> Any:
    return KStreamBuilder(default_key_serde=TEXT, default_value_serde=JSON)


WALKS = [
    # == what a call is given
    walked(
        "arguments.check_topic: {_TOPICS_BY_RECORD}",
        lambda b: b.stream("in").send_to(lambda key, value: "out" if value < 3 else "large"),
        lambda b: (
            b.stream("in").split(small=lambda key, value: value < 3, default="large")["small"].send_to("out")
        ),
        [("a", 1), ("b", 2)],
    ),
    walked(
        "arguments.check_topic: pass a name, {}('a')",
        lambda b: copied(b.table(7).to_stream()),
        lambda b: copied(b.table("in").to_stream()),
        COPIED,
    ),
    walked(
        "arguments.check_topic: {LEGAL_TOPIC}",
        lambda b: b.global_table("other/1"),
        lambda b: copied(b.stream("in").join(b.global_table("other"), add, key=lambda k, v: k)),
        JOINED,
    ),
    walked(
        "arguments.check_partitions",
        lambda b: copied(b.stream("in").repartition(0)),
        lambda b: copied(b.stream("in").repartition(1)),
        COPIED,
    ),
    walked(
        "arguments.check_store",
        lambda b: b.stream("in").group_by_key().count(store=7),
        lambda b: whole(b.stream("in").group_by_key().count(store="totals")),
        COUNTED,
    ),
    walked(
        "arguments.check_used_stores",
        lambda b: copied(b.stream("in").process(Keeping, [spec(value_serde=JSON)])),
        lambda b: copied(b.stream("in").process(Keeping, spec(value_serde=JSON))),
        COPIED,
    ),
    walked(
        "arguments.check_partner",
        lambda b: copied(b.stream("in").merge(b.table("other"))),
        lambda b: copied(b.stream("in").merge(b.table("other").to_stream())),
        [("a", 10), *COPIED],
    ),
    walked(
        "arguments.no_window_error: give it right before the join",
        lambda b: b.stream("in").with_window(SLIDING).filter(lambda k, v: True).join(b.stream("other"), add),
        lambda b: copied(
            b.stream("in")
            .filter(lambda k, v: True)
            .with_window(SLIDING)
            .join(b.stream("other").with_window(SLIDING), add)
        ),
        JOINED,
    ),
    walked(
        "arguments.no_window_error: call with_window",
        lambda b: b.stream("in").join(b.stream("other"), add),
        lambda b: copied(
            b.stream("in").with_window(SLIDING).join(b.stream("other").with_window(SLIDING), add)
        ),
        JOINED,
    ),
    walked(
        "arguments.no_store_error",
        lambda b: b.table("in").filter(lambda k, v: True).store,
        lambda b: (
            t := b.table("in").filter(lambda k, v: True, store="names"),
            t.store,
            copied(t.to_stream()),
        ),
        COPIED,
    ),
    walked(
        "arguments.check_source_of_tables",
        lambda b: (
            b.table("in").transform_values(Remembering, spec(value_serde=JSON)).group_by(lambda k, v: (k, v))
        ),
        lambda b: whole(
            b.table("in")
            .transform_values(Remembering, spec(value_serde=JSON), store="values")
            .group_by(lambda k, v: (k, v))
            .count()
        ),
        [("a", 1), ("b", 1), ("a", 1)],
    ),
    walked(
        "arguments.check_logged",
        lambda b: (
            b.stream("in").to_table(store=spec(value_serde=JSON, logged=False)).group_by(lambda k, v: (k, v))
        ),
        lambda b: whole(
            b.stream("in").to_table(store=spec(value_serde=JSON)).group_by(lambda k, v: ("all", v)).count()
        ),
        [("all", 1), ("all", 2), ("all", 2)],
    ),
    walked(
        "arguments.check_table_keys",
        lambda b: b.stream("in").group_by_key().count(store=spec(key_serde=WHOLE)),
        lambda b: whole(b.stream("in").group_by_key().count(store=spec())),
        COUNTED,
    ),
    walked(
        "arguments.check_store_kind",
        lambda b: (
            b.stream("in")
            .group_by_key()
            .count(store=WindowStoreSpec(name="kept", key_serde=TEXT, value_serde=WHOLE, retention_ms=1))
        ),
        lambda b: whole(b.stream("in").group_by_key().count(store=spec())),
        COUNTED,
    ),
    walked(
        "arguments.check_table_values",
        lambda b: b.stream("in").group_by_key().reduce(add, store=spec(value_serde=JSON), value_serde=WHOLE),
        lambda b: copied(b.stream("in").group_by_key().reduce(add, store=spec(value_serde=JSON)).to_stream()),
        [("a", 1), ("b", 2), ("a", 4)],
    ),
    # == sources and names
    walked(
        "builder._named_or_pattern",
        lambda b: copied(b.stream("in", pattern="other.*")),
        lambda b: copied(b.stream("in")),
        COPIED,
    ),
    walked(
        "builder._names: pass names",
        lambda b: copied(b.stream("in", 7)),
        lambda b: copied(b.stream("in", "other")),
        [("a", 10), *COPIED],
    ),
    walked(
        "builder._names: name one topic or more",
        lambda b: copied(b.stream("in", "in")),
        lambda b: copied(b.stream("in")),
        COPIED,
    ),
    walked(
        "graph.check_name",
        lambda b: copied(b.stream("in").filter(lambda k, v: True, name="a b")),
        lambda b: copied(b.stream("in").filter(lambda k, v: True, name="a-b")),
        COPIED,
    ),
    walked(
        "graph.StreamGraph.lasting_name",
        lambda b: (b.stream("in").group_by_key().count(), b.stream("in").group_by_key().count()),
        lambda b: (
            b.stream("in").group_by_key().count(),
            whole(b.stream("in").group_by_key().count(store="more")),
        ),
        COUNTED,
    ),
    walked(
        "graph.StreamGraph.serde",
        lambda b: elsewhere_without_serdes(b),
        lambda b: b.stream("in").map_values(lambda v: v + 1).send_to("out", value_serde=JSON),
        [("a", 2), ("b", 3), ("a", 4)],
    ),
    walked(
        "graph.StreamGraph.source",
        lambda b: (b.stream("in", name="first"), b.stream("in", name="second")),
        lambda b: (b.stream("in", name="first"), copied(b.stream("in"))),
        COPIED,
    ),
    walked(
        "graph.StreamGraph.global_table",
        lambda b: (b.global_table("other"), b.global_table("other", name="again")),
        lambda b: copied(b.stream("in").join(b.global_table("other"), add, key=lambda k, v: k)),
        JOINED,
    ),
    walked(
        "graph.StreamGraph.repartition",
        lambda b: [
            b.stream("in").select_key(key).join(b.table("other"), add)
            for key in (lambda k, v: "a", lambda k, v: k)
        ],
        lambda b: (
            b.stream("in").select_key(lambda k, v: "b").join(b.table("other"), add),
            copied(b.stream("in").select_key(lambda k, v: k).join(b.table("other"), add, name="own")),
        ),
        JOINED,
    ),
    walked(
        "graph.StreamGraph.add_table_store",
        lambda b: (b.table("in", store="same"), b.table("other", store="same")),
        lambda b: (copied(b.table("in", store="same").to_stream()), b.table("other", store="its-own")),
        COPIED,
    ),
    walked(
        "graph.StreamGraph.add_join_store",
        lambda b: (
            b.table("more", store="same-left"),
            b.stream("in")
            .with_window(SLIDING)
            .join(b.stream("other").with_window(SLIDING), add, name="same"),
        ),
        lambda b: (
            b.table("more", store="same-left"),
            copied(
                b.stream("in")
                .with_window(SLIDING)
                .join(b.stream("other").with_window(SLIDING), add, name="own")
            ),
        ),
        JOINED,
    ),
    # == folds
    walked(
        "grouped.KGroupedStream.reduce",
        lambda b: b.stream("in").group_by_key().reduce("add"),
        lambda b: copied(b.stream("in").group_by_key().reduce(add).to_stream()),
        [("a", 1), ("b", 2), ("a", 4)],
    ),
    walked(
        "grouped.KGroupedStream.aggregate",
        lambda b: b.stream("in").group_by_key().aggregate(0, lambda k, v, so_far: so_far + v),
        lambda b: whole(
            b.stream("in")
            .group_by_key()
            .aggregate(lambda: 0, lambda k, v, so_far: so_far + v, value_serde=WHOLE)
        ),
        [("a", 1), ("b", 2), ("a", 4)],
    ),
    walked(
        "grouped.WindowedKGroupedStream.reduce",
        lambda b: b.stream("in").group_by_key().windowed_by(HOUR).reduce("add"),
        lambda b: (
            b.stream("in")
            .group_by_key()
            .windowed_by(HOUR)
            .reduce(add)
            .to_stream(lambda w, v: w.key)
            .send_to("out", value_serde=JSON)
        ),
        [("a", 1), ("b", 2), ("a", 4)],
    ),
    walked(
        "grouped.CogroupedKStream.cogroup",
        lambda b: (
            b.stream("in")
            .group_by_key()
            .cogroup(lambda k, v, n: n + v)
            .cogroup(b.stream("other"), lambda k, v, n: n + v)
        ),
        lambda b: whole(
            b.stream("in")
            .group_by_key()
            .cogroup(lambda k, v, n: n + v)
            .cogroup(b.stream("other").group_by_key(), lambda k, v, n: n + v)
            .aggregate(lambda: 0, value_serde=WHOLE)
        ),
        [("a", 10), ("a", 11), ("b", 2), ("a", 14)],
    ),
    walked(
        "cogrouping.Cogroup.joined_by: pass a function",
        lambda b: b.stream("in").group_by_key().cogroup(7),
        lambda b: whole(
            b.stream("in")
            .group_by_key()
            .cogroup(lambda k, v, n: n + v)
            .aggregate(lambda: 0, value_serde=WHOLE)
        ),
        [("a", 1), ("b", 2), ("a", 4)],
    ),
    walked(
        "cogrouping.Cogroup.joined_by: fold it once",
        lambda b: (
            g := b.stream("in").group_by_key(),
            g.cogroup(lambda k, v, n: n + v).cogroup(g, lambda k, v, n: n),
        ),
        lambda b: whole(
            b.stream("in")
            .group_by_key()
            .cogroup(lambda k, v, n: n + v + 1)
            .aggregate(lambda: 0, value_serde=WHOLE)
        ),
        [("a", 2), ("b", 3), ("a", 6)],
    ),
    walked(
        "cogrouping.Cogroup.aggregated",
        lambda b: b.stream("in").group_by_key().cogroup(lambda k, v, n: n + v).aggregate(0),
        lambda b: whole(
            b.stream("in")
            .group_by_key()
            .cogroup(lambda k, v, n: n + v)
            .aggregate(lambda: 0, value_serde=WHOLE)
        ),
        [("a", 1), ("b", 2), ("a", 4)],
    ),
    walked(
        "cogrouping._check_together: make both with one builder",
        lambda b: (
            b.stream("in")
            .group_by_key()
            .cogroup(lambda k, v, n: n + v)
            .cogroup(elsewhere().stream("other").group_by_key(), lambda k, v, n: n + v)
        ),
        lambda b: whole(
            b.stream("in")
            .group_by_key()
            .cogroup(lambda k, v, n: n + v)
            .cogroup(b.stream("other").group_by_key(), lambda k, v, n: n + v)
            .aggregate(lambda: 0, value_serde=WHOLE)
        ),
        [("a", 10), ("a", 11), ("b", 2), ("a", 14)],
    ),
    walked(
        "cogrouping._check_together: group both by keys of one serde",
        lambda b: (
            b.stream("in")
            .group_by_key()
            .cogroup(lambda k, v, n: n + v)
            .cogroup(b.stream("other").group_by(lambda k, v: v, key_serde=WHOLE), lambda k, v, n: n + v)
        ),
        lambda b: whole(
            b.stream("in")
            .group_by_key()
            .cogroup(lambda k, v, n: n + v)
            .cogroup(b.stream("other").group_by(lambda k, v: k, key_serde=TEXT), lambda k, v, n: n + v)
            .aggregate(lambda: 0, value_serde=WHOLE)
        ),
        [("a", 10), ("a", 11), ("b", 2), ("a", 14)],
    ),
    # == streams
    walked(
        "known._merged_serdes",
        lambda b: (s := b.stream("in"), s.merge(s)),
        lambda b: copied(b.stream("in").flat_map_values(lambda v: [v, v])),
        [(key, value) for key, value in COPIED for _ in range(2)],
    ),
    walked(
        "known._merged",
        lambda b: copied(b.stream("in").merge(b.stream("other", value_serde=TEXT))),
        lambda b: (
            b.stream("in")
            .merge(b.stream("more", value_serde=TEXT).map_values(lambda v: v))
            .send_to("out", value_serde=JSON)
        ),
        COPIED,
    ),
    walked(
        "kstream.KStream.split: give a branch another name",
        lambda b: b.stream("in").split(name=lambda k, v: True),
        lambda b: b.stream("in").split(names=lambda k, v: True)["names"].send_to("out"),
        COPIED,
    ),
    walked(
        "kstream.KStream.split: default= names the branch",
        lambda b: b.stream("in").split(small=lambda k, v: v < 3, default="small"),
        lambda b: b.stream("in").split(small=lambda k, v: v < 3, default="others")["others"].send_to("out"),
        [("a", 3)],
    ),
    walked(
        "kstream.KStream.split: give each branch its name",
        lambda b: b.stream("in").split(lambda k, v: v < 3),
        lambda b: (
            b.stream("in").split(small=lambda k, v: v < 3)["small"].send_to("out"),
            b.stream("in").branch(lambda k, v: v >= 3)[0].send_to("out"),
        ),
        COPIED,
    ),
    walked(
        "kstream.KStream.repartition",
        lambda b: copied(b.stream("in").repartition(1, "again")),
        lambda b: copied(b.stream("in").repartition(8, name="again")),
        COPIED,
    ),
    walked(
        "kstream.KStream.join",
        lambda b: b.stream("in").join(b.table("other"), add, JSON),
        lambda b: copied(b.stream("in").join(b.table("other"), add, value_serde=JSON)),
        JOINED,
    ),
    walked(
        "kstream.KStream.left_join",
        lambda b: b.stream("in").left_join(b.table("other"), add, JSON),
        lambda b: copied(
            b.stream("in").left_join(b.table("other"), lambda v, o: v + (o or 0), value_serde=JSON)
        ),
        [("a", 11), ("b", 2), ("a", 13)],
    ),
    walked(
        "kstream.WindowedKStream.join",
        lambda b: b.stream("in").with_window(SLIDING).join(b.stream("other").with_window(SLIDING), add, JSON),
        lambda b: copied(
            b.stream("in")
            .with_window(SLIDING)
            .join(b.stream("other").with_window(SLIDING), add, value_serde=JSON)
        ),
        JOINED,
    ),
    walked(
        "kstream.WindowedKStream.left_join",
        lambda b: b.stream("in").with_window(SLIDING).left_join(b.table("other"), add, JSON),
        lambda b: copied(
            b.stream("in")
            .with_window(SLIDING)
            .left_join(b.table("other"), lambda v, o: v + (o or 0), value_serde=JSON)
        ),
        [("a", 11), ("b", 2), ("a", 13)],
    ),
    walked(
        "kstream._join_with_windows_error",
        lambda b: b.stream("in").outer_join(b.table("other"), add),
        lambda b: copied(
            b.stream("in")
            .to_table()
            .outer_join(b.table("other"), lambda v, o: (v or 0) + (o or 0))
            .to_stream()
        ),
        [("a", 10), ("a", 11), ("b", 2), ("a", 13)],
    ),
    # == tables
    walked(
        "ktable.KTable.join",
        lambda b: b.table("in").join(b.table("other"), add, JSON),
        lambda b: copied(b.table("in").join(b.table("other"), add, value_serde=JSON).to_stream()),
        JOINED,
    ),
    walked(
        "ktable.KTable.left_join",
        lambda b: b.table("in").left_join(b.table("other"), add, JSON),
        lambda b: copied(b.table("in").left_join(b.table("other"), lambda v, o: v + (o or 0)).to_stream()),
        [("a", 11), ("b", 2), ("a", 13)],
    ),
    walked(
        "ktable.KTable.suppress: call suppress() ahead",
        lambda b: (
            b.stream("in")
            .group_by_key()
            .windowed_by(SlidingWindow(size_ms=10, grace_ms=0))
            .count()
            .filter(lambda k, v: True)
            .suppress()
        ),
        lambda b: windows(
            b.stream("in")
            .group_by_key()
            .windowed_by(TumblingWindow(size_ms=10, grace_ms=0))
            .count()
            .suppress()
            .filter(lambda k, v: True)
        ),
        [("a", 1), ("b", 1)],
    ),
    walked(
        "ktable.KTable.suppress: fold per window",
        lambda b: b.stream("in").group_by_key().count().suppress(),
        lambda b: windows(by_second(b).count().suppress()),
        [("a", 1), ("b", 1)],
    ),
    walked(
        "ktable.WindowedKTable.suppress",
        lambda b: [
            t.suppress(name=n)
            for t in [b.stream("in").group_by_key().windowed_by(HOUR).count()]
            for n in "xy"
        ],
        lambda b: (
            t := by_second(b).count().suppress(),
            windows(t),
            t.to_stream(lambda w, v: w.key).send_to("more", value_serde=WHOLE),
        ),
        [("a", 1), ("b", 1)],
    ),
    walked(
        "ktable.KGroupedTable.reduce",
        lambda b: b.table("in").group_by(lambda k, v: ("all", v)).reduce(add, "less"),
        lambda b: copied(
            b.table("in").group_by(lambda k, v: ("all", v)).reduce(add, lambda v, less: v - less).to_stream()
        ),
        [("all", 1), ("all", 3), ("all", 5)],
    ),
    walked(
        "ktable.KGroupedTable.aggregate",
        lambda b: b.table("in").group_by(lambda k, v: ("all", v)).aggregate(0, add, add),
        lambda b: whole(
            b.table("in")
            .group_by(lambda k, v: ("all", v))
            .aggregate(lambda: 0, lambda k, v, n: n + v, lambda k, v, n: n - v, value_serde=WHOLE)
        ),
        [("all", 1), ("all", 3), ("all", 5)],
    ),
    walked(
        "arguments.check_table_values",
        lambda b: (
            b.table("in")
            .group_by(lambda k, v: ("all", v))
            .reduce(add, add, store=spec(value_serde=JSON), value_serde=WHOLE)
        ),
        lambda b: copied(
            b.table("in")
            .group_by(lambda k, v: ("all", v))
            .reduce(add, lambda v, less: v - less, store=spec(value_serde=JSON))
            .to_stream()
        ),
        [("all", 1), ("all", 3), ("all", 5)],
    ),
    walked(
        "derived_tables.derived_spec: leave out store=",
        lambda b: (
            b.stream("in").group_by_key().windowed_by(HOUR).count().filter(lambda k, v: True, store="more")
        ),
        lambda b: windows(b.stream("in").group_by_key().windowed_by(HOUR).count().filter(lambda k, v: True)),
        COUNTED,
    ),
    walked(
        "arguments.check_table_values",
        lambda b: b.table("in").map_values(lambda v: v, store=spec(value_serde=JSON), value_serde=WHOLE),
        lambda b: copied(b.table("in").map_values(lambda v: v, store=spec(value_serde=JSON)).to_stream()),
        COPIED,
    ),
    walked(
        "derived_tables._check_same_keys",
        lambda b: b.stream("in").to_table(key_serde=JSON),
        lambda b: copied(b.stream("in").select_key(lambda k, v: k).to_table(key_serde=JSON).to_stream()),
        COPIED,
    ),
    walked(
        "derived_table._refuse",
        lambda b: copied(b.table("in").transform_values(forwarding_transformer()).to_stream()),
        lambda b: copied(b.table("in").transform_values(Adding).to_stream()),
        [("a", 2), ("b", 3), ("a", 4)],
    ),
    # == joins
    walked(
        "stream_join.check_join_window: joins take SlidingWindow",
        lambda b: b.stream("in").with_window(HOUR),
        lambda b: copied(
            b.stream("in")
            .with_window(SlidingWindow(size_ms=60_000))
            .join(b.stream("other").with_window(SLIDING), add)
        ),
        JOINED,
    ),
    walked(
        "function_checks.check_choice",
        lambda b: b.stream("in").with_window(SLIDING, storage="disk"),
        lambda b: copied(
            b.stream("in")
            .with_window(SLIDING, storage="rocksdb")
            .join(b.stream("other").with_window(SLIDING), add)
        ),
        JOINED,
    ),
    walked(
        "stream_join.check_table_options",
        lambda b: b.stream("in").with_window(SLIDING).join(b.table("other"), add, key_serde=TEXT),
        lambda b: copied(b.stream("in").with_window(SLIDING).join(b.table("other"), add)),
        JOINED,
    ),
    walked(
        "stream_join._key_serde",
        lambda b: (
            b.stream("in", key_serde=JSON)
            .with_window(SLIDING)
            .join(b.stream("other").with_window(SLIDING), add)
        ),
        lambda b: (
            b.stream("in")
            .select_key(lambda k, v: k)
            .with_window(SLIDING)
            .join(b.stream("other").with_window(SLIDING), add)
            .send_to("out")
        ),
        JOINED,
    ),
    walked(
        "global_table.key_in_vain_error",
        lambda b: b.stream("in").join(b.table("other"), add, key=lambda k, v: "a"),
        lambda b: copied(b.stream("in").join(b.global_table("other"), add, key=lambda k, v: "a")),
        [("a", 11), ("b", 12), ("a", 13)],
    ),
    walked(
        "global_table.join_global_table: give key=",
        lambda b: b.stream("in").join(b.global_table("other"), add),
        lambda b: copied(b.stream("in").join(b.global_table("other"), add, key=lambda key, value: key)),
        JOINED,
    ),
    walked(
        "global_table.join_global_table: make both with one builder",
        lambda b: b.stream("in").join(elsewhere().global_table("other"), add, key=lambda k, v: k),
        lambda b: copied(b.stream("in").join(b.global_table("other"), add, key=lambda k, v: k)),
        JOINED,
    ),
    walked(
        "stream_table_join._other_keys",
        lambda b: b.stream("in", key_serde=JSON).join(b.table("other"), add),
        lambda b: b.stream("in").select_key(lambda k, v: k).join(b.table("other"), add).send_to("out"),
        JOINED,
    ),
    walked(
        "stream_table_join.join_table",
        lambda b: b.stream("in").join(b.stream("other").group_by_key().windowed_by(HOUR).count(), add),
        lambda b: (
            b.stream("other")
            .group_by_key()
            .windowed_by(HOUR)
            .count()
            .to_stream(lambda w, v: w.key)
            .send_to("between", value_serde=JSON),
            copied(b.stream("in").join(b.table("between"), add)),
        ),
        [("a", 2), ("a", 4)],
    ),
    walked(
        "arguments.refuse_windows",
        lambda b: b.table("in").join(b.stream("other").group_by_key().windowed_by(HOUR).count(), add),
        lambda b: (
            b.stream("other")
            .group_by_key()
            .windowed_by(HOUR)
            .count()
            .to_stream(lambda w, v: w.key)
            .send_to("between", value_serde=JSON),
            copied(b.table("in").join(b.table("between"), add).to_stream()),
        ),
        [("a", 2), ("a", 4)],
    ),
    walked(
        "table_table_join._check_keys: repartition one of them",
        lambda b: b.table("in", key_serde=JSON).join(b.table("other"), add),
        lambda b: copied(
            b.table("in")
            .to_stream()
            .select_key(lambda k, v: k)
            .to_table(key_serde=TEXT)
            .join(b.table("other"), add)
            .to_stream()
        ),
        JOINED,
    ),
    walked(
        "arguments.refuse_windows",
        lambda b: b.table("in").join(
            b.stream("other").group_by_key().windowed_by(HOUR).count(), add, foreign_key=lambda k, v: "a"
        ),
        lambda b: (
            b.stream("other")
            .group_by_key()
            .windowed_by(HOUR)
            .count()
            .to_stream(lambda w, v: w.key)
            .send_to("between", value_serde=JSON),
            copied(b.table("in").join(b.table("between"), add, foreign_key=lambda k, v: "a").to_stream()),
        ),
        [("a", 2), ("b", 3), ("a", 4)],
    ),
    # == functions, windows
    walked(
        "user_functions.branched",
        lambda b: b.stream("in").branch(),
        lambda b: b.stream("in").branch(lambda k, v: True)[0].send_to("out"),
        COPIED,
    ),
    walked(
        "window_tables.check_fold_window",
        lambda b: b.stream("in").group_by_key().windowed_by(3_600_000),
        lambda b: windows(
            b.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=3_600_000)).count()
        ),
        COUNTED,
    ),
    walked(
        "window_tables.aggregating_windows: pass aggregate",
        lambda b: (
            b.stream("in")
            .group_by_key()
            .windowed_by(SessionWindow(gap_ms=10_000))
            .aggregate(lambda: 0, lambda k, v, n: n + v, value_serde=WHOLE)
        ),
        lambda b: (
            b.stream("in")
            .group_by_key()
            .windowed_by(SessionWindow(gap_ms=10_000))
            .aggregate(lambda: 0, lambda k, v, n: n + v, lambda k, n, m: n + m, value_serde=WHOLE)
            .filter(lambda w, v: True)
            .to_stream(lambda w, v: w.key)
            .filter(lambda k, v: v is not None)
            .send_to("out", value_serde=WHOLE)
        ),
        [("a", 1), ("b", 2), ("a", 4)],
    ),
    walked(
        "window_tables.aggregating_windows: {WINDOW_FUNCTIONS}",
        lambda b: b.stream("in").group_by_key().windowed_by(HOUR).aggregate(0, lambda k, v, n: n + v),
        lambda b: windows(
            b.stream("in")
            .group_by_key()
            .windowed_by(HOUR)
            .aggregate(lambda: 0, lambda k, v, n: n + v, value_serde=WHOLE)
        ),
        [("a", 1), ("b", 2), ("a", 4)],
    ),
    walked(
        "window_tables.entries_of_windows",
        lambda b: (
            b.stream("in")
            .group_by_key()
            .windowed_by(TumblingWindow(size_ms=1_000, grace_ms=0, at_run_end="flush"))
            .count()
            .suppress()
            .group_by(lambda w, v: (w.key, v))
        ),
        lambda b: whole(
            b.stream("in")
            .group_by_key()
            .windowed_by(TumblingWindow(size_ms=1_000, grace_ms=0, at_run_end="hold"))
            .count()
            .suppress()
            .group_by(lambda w, v: (w.key, v))
            .count()
        ),
        [("a", 1), ("b", 1)],
    ),
    walked(
        "window_tables._check_suppressible: leave out logged=False",
        lambda b: by_second(b).count(store=spec(logged=False)).suppress(),
        lambda b: windows(by_second(b).count(store=spec()).suppress()),
        [("a", 1), ("b", 1)],
    ),
    walked(
        "window_tables._check_suppressible: pass a plain StoreSpec",
        lambda b: (
            by_second(b)
            .count(
                store=WindowStoreSpec(name="kept", key_serde=TEXT, value_serde=WHOLE, retention_ms=9_000_000)
            )
            .suppress()
        ),
        lambda b: windows(by_second(b).count(store=spec()).suppress()),
        [("a", 1), ("b", 1)],
    ),
    walked(
        "window_tables._window_spec",
        lambda b: (
            b.stream("in")
            .group_by_key()
            .windowed_by(HOUR)
            .count(store=WindowStoreSpec(name="kept", key_serde=TEXT, value_serde=WHOLE, retention_ms=1))
        ),
        lambda b: windows(b.stream("in").group_by_key().windowed_by(HOUR).count(store=spec())),
        COUNTED,
    ),
]


def forwarding_transformer() -> type[ValueTransformer[Any, Any, Any]]:
    class Forwards(Adding):
        def transform(self, key: Any, value: Any) -> Any:
            self.context.forward(key, value)

    return Forwards


def elsewhere_without_serdes(_: Any) -> None:
    builder: Any = KStreamBuilder(default_key_serde=TEXT)
    builder.stream("in", value_serde=JSON).map_values(lambda v: v + 1).send_to("out")


@pytest.mark.parametrize(("fault", "told", "wanted"), WALKS)
def test_what_the_error_says_gives_the_results(fault: Define, told: Define, wanted: object) -> None:
    follow(fault, told, wanted)
