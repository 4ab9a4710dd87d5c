"""Topologies, processors and functions that were refused are written as the error says, and give results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from airflow_kstreams.streams import (
    AsyncProcessor,
    Processor,
    RetryPolicy,
    StoreSpec,
    TopologyBuilder,
    ValueTransformer,
    VersionedStoreSpec,
)
from airflow_kstreams.streams.errors import KStreamsError
from tests.support.remedies import walked
from tests.support.topology.as_told import JSON, TEXT, WHOLE, Define, Forwarding, Keeping, follow, given

COPIED = [("a", 1), ("b", 2), ("a", 3)]
ADDED = [("a", 2), ("b", 3), ("a", 4)]


def spec(name: str = "kept", **options: Any) -> StoreSpec:
    return StoreSpec(**{"name": name, "key_serde": TEXT, "value_serde": JSON, **options})


class ForwardingAsync(AsyncProcessor[Any, Any, Any, Any]):
    def init(self, context: Any) -> None:
        self.context = context

    async def process(self, record: Any) -> None:
        self.context.forward(record.key, record.value)


class OnThreads(Forwarding):
    threads: ClassVar[bool] = True


class Adding(ValueTransformer[Any, Any, Any]):
    def transform(self, key: Any, value: Any) -> Any:
        return None if value is None else value + 1


def sends(topic: str) -> type[Forwarding]:
    class Sending(Forwarding):
        def process(self, record: Any) -> None:
            self.context.send(topic, record.key, record.value)

    return Sending


def with_method(base: type, **methods: Any) -> type:
    return type("Mine", (base,), methods)


def crossing(b: Any, behind_one: str, behind_other: str) -> None:
    """Two streams with a call each; the stores above the calls are ``kept`` and ``more``.

    :param behind_one: the store below the call of ``other``.
    :param behind_other: the store below the call of ``in``.
    """
    one = b.stream("in").process(keeping("kept"), spec("kept")).map_values_async(plus_one)
    other = b.stream("other").process(keeping("more"), spec("more")).map_values_async(plus_one)
    out(one.process(keeping(behind_other), spec(behind_other)))
    other.process(keeping(behind_one), spec(behind_one)).send_to("side", value_serde=JSON)


def keeping(store: str) -> type:
    """Return a processor that counts the records of each key in a store and forwards the record."""

    class CountingIn(Forwarding):
        def init(self, context: Any) -> None:
            super().init(context)
            self.kept = context.state_store(store)

        def process(self, record: Any) -> None:
            self.kept.put(record.key, (self.kept.get(record.key) or 0) + 1)
            super().process(record)

    return CountingIn


# == methods as a user may write them


async def async_method(self: Any, *given: Any) -> None: ...


def generator_method(self: Any, record: Any) -> Iterator[Any]:
    yield record


async def async_generator(self: Any, record: Any) -> AsyncIterator[Any]:
    yield record


def plain_process(self: Any, record: Any) -> None:
    self.context.forward(record.key, record.value)


def other_process(self: Any, key: Any, value: Any) -> None: ...


async def plus_one(value: Any) -> Any:
    await asyncio.sleep(0)
    return value + 1


def plus_one_plain(value: Any) -> Any:
    return value + 1


def plus_one_generator(value: Any) -> Iterator[Any]:
    yield value + 1


async def plus_one_async_generator(value: Any) -> AsyncIterator[Any]:
    yield value + 1


async def with_resource(value: Any, *, resource: Any) -> Any:
    return value + 1


async def with_default(value: Any, *, resource: Any = None) -> Any:
    return value + 1


def nothing(key: Any, value: Any) -> None:
    bool(value < 3)


def a_generator() -> Iterator[Any]:
    yield Forwarding()


async def an_async_definition() -> Any:
    return Forwarding()


def out(stream: Any) -> Any:
    return stream.send_to("out", value_serde=JSON)


def process(definition: Any) -> Define:
    return lambda b: out(b.stream("in").process(definition))


def process_async(definition: Any, **options: Any) -> Define:
    return lambda b: out(b.stream("in").process_async(definition, **options))


def mapped(function: Any, **options: Any) -> Define:
    return lambda b: out(b.stream("in").map_values_async(function, **options))


DSL = [
    # == definitions of processors
    walked(
        "definitions._check_definition: pass the class", process(Forwarding()), process(Forwarding), COPIED
    ),
    walked(
        "definitions._check_definition: pass {} class, or a function without arguments that makes a new "
        "instance",
        process(7),
        process(Forwarding),
        COPIED,
    ),
    walked(
        "definitions._check_definition: pass {} class, or a function without arguments that makes a new "
        "instance; a function of values",
        process(plus_one_plain),
        lambda b: out(b.stream("in").map_values(plus_one_plain)),
        ADDED,
    ),
    walked(
        "definitions._check_definition: write it with def",
        process(an_async_definition),
        process(Forwarding),
        COPIED,
    ),
    walked(
        "definitions._check_definition: write it with return instead of yield",
        process(a_generator),
        process(lambda: Forwarding()),
        COPIED,
    ),
    walked(
        "definitions.check_processor_class: give the class threads",
        process(with_method(Forwarding, threads=1)),
        process(OnThreads),
        COPIED,
    ),
    walked(
        "definitions.check_processor_class: keep the punctuation",
        process(with_method(OnThreads, punctuate=lambda self, time: None)),
        lambda b: out(
            b.stream("in")
            .process(OnThreads)
            .process(with_method(Forwarding, punctuate=lambda self, time: None))
        ),
        COPIED,
    ),
    walked(
        "definitions.check_async_processor_class: derive the class",
        process_async(Adding),
        process_async(ForwardingAsync),
        COPIED,
    ),
    walked(
        "definitions.check_async_processor_class: forward by the context",
        process_async(with_method(ForwardingAsync, process=async_generator)),
        process_async(ForwardingAsync),
        COPIED,
    ),
    walked(
        "definitions.check_async_processor_class: leave out threads=True",
        process_async(ForwardingAsync, threads=True),
        process_async(ForwardingAsync),
        COPIED,
    ),
    walked(
        "definitions.check_async_processor_class: write it with async def",
        process_async(with_method(ForwardingAsync, process=plain_process)),
        process_async(with_method(ForwardingAsync, process=plain_process), threads=True),
        COPIED,
    ),
    walked(
        "definitions.check_async_processor_class: write {} with def",
        process_async(with_method(ForwardingAsync, close=async_method)),
        process_async(ForwardingAsync),
        COPIED,
    ),
    walked(
        "definitions._refuse_async",
        process(with_method(Forwarding, process=async_method)),
        process_async(ForwardingAsync),
        COPIED,
    ),
    walked(
        "definitions._check_methods: write def {}(self{})",
        process(with_method(Processor, init=Forwarding.init)),
        process(with_method(Processor, init=Forwarding.init, process=plain_process)),
        COPIED,
    ),
    walked(
        "definitions._check_methods: write {} without yield",
        process(with_method(Forwarding, process=generator_method)),
        process(with_method(Forwarding, process=plain_process)),
        COPIED,
    ),
    walked(
        "definitions._check_methods: write def {}({})",
        process(with_method(Forwarding, process=other_process)),
        process(with_method(Forwarding, process=plain_process)),
        COPIED,
    ),
    walked("definitions._check_def", process(ForwardingAsync), process_async(ForwardingAsync), COPIED),
    walked("definitions.made", process(lambda: 7), process(lambda: Forwarding()), COPIED),
    # == functions
    walked(
        "function_checks._checked_plain",
        lambda b: b.stream("in").map_values(plus_one),
        lambda b: out(b.stream("in").map_values(lambda v: asyncio.run(plus_one(v)))),
        ADDED,
    ),
    walked(
        "function_checks._refuse_nothing",
        lambda b: b.stream("in").filter(nothing),
        lambda b: out(b.stream("in").filter(lambda k, v: v < 3)),
        [("a", 1), ("b", 2)],
    ),
    walked(
        "function_checks._refuse_generator",
        lambda b: b.stream("in").map_values(plus_one_generator),
        lambda b: out(b.stream("in").flat_map_values(plus_one_generator)),
        ADDED,
    ),
    walked(
        "function_checks.refuse_other_arguments",
        lambda b: b.stream("in").filter(lambda v: v < 3),
        lambda b: out(b.stream("in").filter(lambda key, value: value < 3)),
        [("a", 1), ("b", 2)],
    ),
    walked(
        "function_checks.check_functions",
        lambda b: b.stream("in").left_join(b.global_table("other"), lambda v, o: v, key=7),
        lambda b: out(b.stream("in").left_join(b.global_table("other"), lambda v, o: v, key=lambda k, v: k)),
        COPIED,
    ),
    walked(
        "function_checks.declared_beside",
        lambda b: b.stream("in").map_values(7),
        lambda b: out(b.stream("in").map_values(lambda v: v + 1)),
        ADDED,
    ),
    walked("function_checks.check_called_functions: pass a function", mapped(7), mapped(plus_one), ADDED),
    walked(
        "function_checks.check_called_functions: return a list",
        mapped(plus_one_async_generator),
        mapped(plus_one),
        ADDED,
    ),
    walked(
        "function_checks.check_called_functions: leave out threads=True",
        mapped(plus_one, threads=True),
        mapped(plus_one),
        ADDED,
    ),
    walked(
        "function_checks.check_called_functions: write it with async def",
        mapped(plus_one_plain),
        mapped(plus_one_plain, threads=True),
        ADDED,
    ),
    walked("function_checks.refuse_unfilled", mapped(with_resource), mapped(with_default), ADDED),
    # == options of calls
    walked(
        "calls.checked_options: give a whole number",
        mapped(plus_one, max_in_flight=0),
        mapped(plus_one, max_in_flight=1),
        ADDED,
    ),
    walked(
        "function_checks.check_choice",
        mapped(plus_one, order="none"),
        mapped(plus_one, order="key"),
        ADDED,
    ),
    walked(
        "calls.checked_options: give True or False",
        mapped(plus_one, threads=0),
        mapped(plus_one, threads=False),
        ADDED,
    ),
    walked(
        "calls.checked_options: pass a RetryPolicy",
        mapped(plus_one, retry=5, name="call"),
        mapped(plus_one, retry=RetryPolicy(attempts=5), name="call"),
        ADDED,
    ),
    walked(
        "calls.checked_options: name the node",
        mapped(plus_one, retry=RetryPolicy(attempts=5)),
        mapped(plus_one, retry=RetryPolicy(attempts=5), name="call"),
        ADDED,
    ),
    walked(
        "calls.checked_options: pass what makes the context manager",
        mapped(with_resource, resource=7),
        mapped(with_resource, resource=lambda: Opened()),
        ADDED,
    ),
    # == stores
    walked(
        "user_functions.processed_async",
        lambda b: b.stream("in").process_async(ForwardingAsync, spec()),
        lambda b: out(b.stream("in").process(Keeping, spec()).process_async(ForwardingAsync)),
        COPIED,
    ),
    walked(
        "validation._check_stateless",
        lambda b: out(b.stream("in").process(with_method(OnThreads, threads=True), spec())),
        lambda b: out(b.stream("in").process(Keeping, spec()).process(OnThreads)),
        COPIED,
    ),
    walked(
        "function_checks.check_choice",
        lambda b: spec(storage="disk"),
        lambda b: out(b.stream("in").process(Keeping, spec(storage="rocksdb"))),
        COPIED,
    ),
    walked(
        "store_specs.VersionedStoreSpec.__post_init__: give the milliseconds",
        lambda b: VersionedStoreSpec(name="v", key_serde=TEXT, value_serde=JSON, history_ms=-1),
        lambda b: out(
            b.stream("in")
            .to_table(store=VersionedStoreSpec(name="v", key_serde=TEXT, value_serde=JSON, history_ms=0))
            .to_stream()
        ),
        COPIED,
    ),
    walked(
        "store_specs.VersionedStoreSpec.__post_init__: leave cached out",
        lambda b: VersionedStoreSpec(name="v", key_serde=TEXT, value_serde=JSON, history_ms=0, cached=True),
        lambda b: out(
            b.stream("in")
            .to_table(store=VersionedStoreSpec(name="v", key_serde=TEXT, value_serde=JSON, history_ms=0))
            .to_stream()
        ),
        COPIED,
    ),
    walked(
        "store_specs.check_changelog_configs: leave changelog_configs out",
        lambda b: spec(logged=False, changelog_configs={"segment.bytes": "1048576"}),
        lambda b: out(b.stream("in").process(Keeping, spec(changelog_configs={"segment.bytes": "1048576"}))),
        COPIED,
    ),
    walked(
        "store_specs.check_changelog_configs: {nearest}",
        lambda b: spec(changelog_configs={"segment.byte": "1048576"}),
        lambda b: out(b.stream("in").process(Keeping, spec(changelog_configs={"segment.bytes": "1048576"}))),
        COPIED,
    ),
    walked(
        "store_specs.check_changelog_configs: leave {} out",
        lambda b: spec(changelog_configs={"cleanup.policy": "delete"}),
        lambda b: out(b.stream("in").process(Keeping, spec(changelog_configs={}))),
        COPIED,
    ),
    walked(
        "function_checks.check_choice",
        lambda b: b.global_table("other", storage="disk"),
        lambda b: out(
            b.stream("in").left_join(
                b.global_table("other", storage="rocksdb"), lambda v, o: v, key=lambda k, v: k
            )
        ),
        COPIED,
    ),
    walked(
        "stages._store_on_both_sides: keep two stores, or go through a topic between the two",
        lambda b: out(
            b.stream("in")
            .process(Keeping, spec())
            .map_values_async(plus_one)
            .process(with_method(Keeping), "kept")
        ),
        lambda b: out(
            b.stream("in")
            .process(Keeping, spec())
            .map_values_async(plus_one)
            .through("mid", value_serde=JSON)
            .process(with_method(Forwarding))
        ),
        ADDED,
    ),
    walked(
        "stages._store_on_both_sides: keep two stores",
        lambda b: crossing(b, "kept", "more"),
        lambda b: crossing(b, "fresh", "newer"),
        ADDED,
    ),
    # == what a topology reads and writes
    walked(
        "validation._check_reads_and_writes: add a source",
        lambda b: None,
        lambda b: out(b.stream("in")),
        COPIED,
    ),
    walked(
        "validation._check_reads_and_writes: add a sink",
        lambda b: b.stream("in").filter(lambda k, v: True),
        lambda b: out(b.stream("in")),
        COPIED,
    ),
    walked(
        "validation._check_stores: add it with add_state_store",
        lambda b: out(b.stream("in").process(Keeping, "kept")),
        lambda b: out(b.stream("in").process(Keeping, spec())),
        COPIED,
    ),
    walked(
        "validation._check_partitioners",
        lambda b: (
            b.stream("in").send_to("mid", partitioner=lambda topic, key, value, partitions: 0),
            b.stream("mid")
            .group_by_key()
            .count(store="counts")
            .to_stream()
            .send_to("out", value_serde=WHOLE),
        ),
        lambda b: (
            b.stream("in").send_to("mid", partitioner=lambda topic, key, value, partitions: 0),
            b.stream("mid")
            .repartition(1)
            .group_by_key()
            .count(store="counts")
            .to_stream()
            .send_to("out", value_serde=JSON),
        ),
        [("a", 1), ("b", 1), ("a", 2)],
    ),
    walked(
        "validation._check_global_tables",
        lambda b: out(b.stream("in").join(b.global_table("in"), max, key=lambda k, v: k)),
        lambda b: out(b.stream("in").join(b.table("in"), max)),
        COPIED,
    ),
    walked(
        "validation._check_names",
        lambda b: (
            out(b.stream("in", name="same")),
            b.stream("in").join(b.global_table("other", name="same"), max, key=lambda k, v: k),
        ),
        lambda b: out(
            b.stream("in", name="same").left_join(
                b.global_table("other", name="own"), lambda v, o: v, key=lambda k, v: k
            )
        ),
        COPIED,
    ),
    walked(
        "validation.two_sources_error",
        lambda b: (b.stream("in", value_serde=TEXT), out(b.stream("in"))),
        lambda b: (s := b.stream("in"), out(s), s.filter(lambda k, v: True).send_to("more")),
        COPIED,
    ),
    walked(
        "validation._check_internal_topics",
        lambda b: (
            out(b.stream("in").select_key(lambda k, v: k).repartition(1, name="again")),
            b.stream("in").send_to("again-repartition"),
        ),
        lambda b: (
            out(b.stream("in").select_key(lambda k, v: k).repartition(1, name="again")),
            b.stream("in").send_to("again"),
        ),
        COPIED,
    ),
    walked(
        "components._cycle_error",
        lambda b: (s := b.stream("in"), s.map_values(lambda v: v + 1).send_to("in")),
        lambda b: out(b.stream("in").map_values(lambda v: v + 1)),
        ADDED,
    ),
    # == sends by name
    walked(
        "sending.send_target: {LEGAL_TOPIC}",
        lambda b: b.stream("in").process(sends("a/b")).send_to("more"),
        lambda b: b.stream("in").process(sends("out")).send_to("out", value_serde=JSON),
        COPIED,
    ),
    walked(
        "sending.send_target: send to another topic",
        lambda b: b.stream("in").process(Keeping, spec()).process(sends("app-kept-changelog")).send_to("out"),
        lambda b: (
            b.stream("in").process(Keeping, spec()).process(sends("out")).send_to("out", value_serde=JSON)
        ),
        COPIED,
    ),
    walked(
        "sending.send_target: add a sink for the topic",
        lambda b: (b.stream("in").process(sends("mid")).send_to("more"), out(b.stream("mid"))),
        lambda b: (b.stream("in").process(Forwarding).send_to("mid"), out(b.stream("mid"))),
        COPIED,
    ),
    walked(
        "sending.send_target: forward to the sink",
        lambda b: b.stream("in").process(sends("out")).send_to("out", partitioner=lambda t, k, v, n: 0),
        lambda b: b.stream("in").process(Forwarding).send_to("out", partitioner=lambda t, k, v, n: 0),
        COPIED,
    ),
]


def scheduling(*given: Any, base: type = Forwarding, **options: Any) -> Define:
    """Define a processor that schedules a punctuation, with which it does nothing."""

    class Scheduling(base):  # type: ignore[misc]
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(*given, **options)

    return process(Scheduling)


def quiet(time_ms: int) -> None: ...


async def quiet_async(time_ms: int) -> None: ...


def quiet_generator(time_ms: int) -> Iterator[int]:
    yield time_ms


class Punctuating(Forwarding):
    def punctuate(self, stream_time_ms: int) -> None: ...


class OfNoStore(Forwarding):
    def init(self, context: Any) -> None:
        super().init(context)
        self.kept = context.state_store("kept")


class OtherKeys(Forwarding):
    def process(self, record: Any) -> None:
        self.context.forward(record.key + "x", record.value)


class Outside(Forwarding):
    """Forwards when stream time passes."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(1_000, callback=lambda time_ms: context.forward("a", 0))


class ToChild(Forwarding):
    def process(self, record: Any) -> None:
        self.context.forward(record.key, record.value, to="nowhere")


class ThreadsThatCommit(OnThreads):
    def process(self, record: Any) -> None:
        self.context.commit()


class Committing(Forwarding):
    def process(self, record: Any) -> None:
        super().process(record)
        self.context.commit()


RUNNING = [
    walked(
        "context.ProcessorContext.schedule: give whole milliseconds",
        scheduling(0.5, callback=quiet),
        scheduling(1, callback=quiet),
        COPIED,
    ),
    walked(
        "context.ProcessorContext.schedule: choose 'stream_time'",
        scheduling(1, clock="mine", callback=quiet),
        scheduling(1, clock="stream_time", callback=quiet),
        COPIED,
    ),
    walked(
        "context.ProcessorContext.schedule: choose 'each'",
        scheduling(1, jumps="all", callback=quiet),
        scheduling(1, jumps="last", callback=quiet),
        COPIED,
    ),
    walked(
        "context.ProcessorContext.schedule: define punctuate",
        scheduling(1),
        scheduling(1, base=Punctuating),
        COPIED,
    ),
    walked(
        "context.ProcessorContext.schedule: write it with def",
        scheduling(1, callback=quiet_async),
        scheduling(1, callback=quiet),
        COPIED,
    ),
    walked(
        "context.ProcessorContext.schedule: write it without yield",
        scheduling(1, callback=quiet_generator),
        scheduling(1, callback=quiet),
        COPIED,
    ),
    walked(
        "context.ProcessorContext.schedule: write schedule(",
        scheduling(1, "stream_time", quiet),
        scheduling(1, clock="stream_time", callback=quiet),
        COPIED,
    ),
    walked(
        "context.ProcessorContext.state_store",
        process(OfNoStore),
        lambda b: out(b.stream("in").process(OfNoStore, spec())),
        COPIED,
    ),
    walked(
        "context.refused_beside_others",
        process(ThreadsThatCommit),
        lambda b: out(b.stream("in").process(OnThreads).process(Committing)),
        COPIED,
    ),
    walked(
        "processor.FixedKey.kept_by.forward_keyed: forward record.key",
        lambda b: out(b.stream("in").process_values(OtherKeys)),
        lambda b: out(b.stream("in").process_values(Forwarding)),
        COPIED,
    ),
    walked(
        "processor.FixedKey.kept_by.forward_keyed: forward in process() alone",
        lambda b: out(b.stream("in").process_values(Outside)),
        lambda b: out(b.stream("in").process_values(Forwarding)),
        COPIED,
    ),
    walked("processor_outputs.ProcessorOutputs.child", process(ToChild), process(Forwarding), COPIED),
    walked(
        "map_batches.map_batches_operator: write pa.schema",
        lambda b: b.stream("in").map_batches(lambda t: t, schema=pa.schema([("value", pa.int64())])),
        lambda b: (
            b.stream("in")
            .map_batches(
                lambda t: t,
                schema=pa.schema([("key", pa.string()), ("value", pa.int64()), ("timestamp_ms", pa.int64())]),
            )
            .send_to("out", key_serde=TEXT, value_serde=JSON)
        ),
        COPIED,
    ),
    walked(
        "map_batches.map_batches_operator: write pa.schema",
        lambda b: b.stream("in").map_batches(
            lambda t: t,
            schema=pa.schema([("key", pa.string()), ("value", pa.int64()), ("timestamp_ms", pa.int64())]),
            with_offsets=True,
        ),
        lambda b: (
            b.stream("in")
            .map_batches(
                lambda t: t,
                schema=pa.schema(
                    [
                        ("key", pa.string()),
                        ("value", pa.int64()),
                        ("timestamp_ms", pa.int64()),
                        ("topic", pa.string()),
                        ("partition", pa.int64()),
                        ("offset", pa.int64()),
                    ]
                ),
                with_offsets=True,
            )
            .send_to("out", key_serde=TEXT, value_serde=JSON)
        ),
        COPIED,
    ),
    walked(
        "map_batches.map_batches_operator: give 1 or more",
        lambda b: b.stream("in").map_batches(lambda t: t, batch_size=0),
        lambda b: (
            b.stream("in")
            .map_batches(lambda t: t, batch_size=1)
            .send_to("out", key_serde=TEXT, value_serde=JSON)
        ),
        COPIED,
    ),
]


@pytest.mark.parametrize(("fault", "told", "wanted"), RUNNING)
def test_processor_does_as_the_error_says(fault: Define, told: Define, wanted: object) -> None:
    follow(fault, told, wanted)


class Opened:
    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(("fault", "told", "wanted"), DSL)
def test_what_the_error_says_gives_the_results(fault: Define, told: Define, wanted: object) -> None:
    follow(fault, told, wanted)


# == the builder of nodes

Build = Callable[[TopologyBuilder], object]


def source(b: Any, *topics: str, name: str = "in", **options: Any) -> Any:
    return b.add_source(name, *(topics or ("in",)), key_serde=TEXT, value_serde=JSON, **options)


def sink(b: Any, *parents: str) -> Any:
    return b.add_sink("sink", "out", *(parents or ("in",)), key_serde=TEXT, value_serde=JSON)


BUILDER = [
    walked(
        "topology_builder.TopologyBuilder._check_parents: name the nodes that forward to it",
        lambda b: source(b).add_sink("sink", "out"),
        lambda b: sink(source(b), "in"),
    ),
    walked(
        "topology_builder.TopologyBuilder.add_source: name at least one",
        lambda b: b.add_source("in"),
        lambda b: sink(source(b)),
    ),
    walked(
        "topology_builder.TopologyBuilder.add_source: name each topic once",
        lambda b: source(b, "in", "in"),
        lambda b: sink(source(b, "in")),
    ),
    walked(
        "topology_builder.TopologyBuilder.add_operator: write e.g.",
        lambda b: source(b).add_operator("p", copying(), "in", stores=spec()),
        lambda b: sink(
            source(b).add_operator("p", copying(), "in", stores=["kept"]).add_state_store(spec()), "p"
        ),
    ),
    walked(
        "topology_builder.TopologyBuilder.add_operator: give it all three",
        lambda b: source(b).add_operator("p", Forwarding, "in"),
        lambda b: sink(source(b).add_operator("p", copying(), "in"), "p"),
    ),
    walked(
        "topology_builder.TopologyBuilder.add_state_store: say what to make",
        lambda b: source(b).add_state_store("kept"),
        lambda b: sink(source(b).add_processor("p", Keeping, "in").add_state_store(spec(), "p"), "p"),
    ),
    walked(
        "topology_builder.TopologyBuilder.add_state_store: give each store its own name",
        lambda b: b.add_state_store(spec()).add_state_store(spec(value_serde=WHOLE)),
        lambda b: sink(
            source(b)
            .add_processor("p", Keeping, "in")
            .add_state_store(spec(), "p")
            .add_state_store(spec("more"), "p"),
            "p",
        ),
    ),
    walked(
        "topology_builder.TopologyBuilder.add_state_store: add the processor first",
        lambda b: source(b).add_state_store(spec(), "p"),
        lambda b: sink(source(b).add_processor("p", Keeping, "in").add_state_store(spec(), "p"), "p"),
    ),
    walked(
        "topology_builder.TopologyBuilder._add: give it a text",
        lambda b: source(b, name=""),
        lambda b: sink(source(b)),
    ),
    walked(
        "topology_builder.TopologyBuilder._add: give each node",
        lambda b: source(source(b), "other"),
        lambda b: sink(source(source(b), "other", name="other")),
    ),
    walked(
        "topology_builder.TopologyBuilder._check_parents: name each parent once",
        lambda b: sink(source(b), "in", "in"),
        lambda b: sink(source(b), "in"),
    ),
    walked(
        "topology_builder.TopologyBuilder._check_parents: name the nodes that forward to it one by one",
        lambda b: sink(source(b), ["in"]),  # type: ignore[arg-type]
        lambda b: sink(source(b), "in"),
    ),
    walked(
        "topology_builder.TopologyBuilder._check_parents: add parents before",
        lambda b: source(b).add_processor("p", Forwarding, "above"),
        lambda b: sink(
            source(b).add_processor("above", Forwarding, "in").add_processor("p", Forwarding, "above"), "p"
        ),
    ),
    walked(
        "topology_builder.TopologyBuilder._check_parents: a sink forwards nothing",
        lambda b: sink(source(b)).add_processor("p", Forwarding, "sink"),
        lambda b: sink(
            source(
                source(b).add_sink("mid", "mid", "in", key_serde=TEXT, value_serde=JSON), "mid", name="again"
            ),
            "again",
        ),
    ),
    walked(
        "topology_builder._retry_spec",
        lambda b: source(b).add_processor_async("p", ForwardingAsync, "in", order="key", retry=RetryPolicy()),
        lambda b: sink(
            source(b).add_processor_async(
                "p", ForwardingAsync, "in", order="key", retry=RetryPolicy(key_serde=TEXT, value_serde=JSON)
            ),
            "p",
        ),
    ),
    walked(
        "topology_builder._check_pattern: name topics, or",
        lambda b: source(b, "in", pattern="i."),
        lambda b: sink(source(b, "in")),
    ),
    walked(
        "topology_builder._check_pattern: write it as text",
        lambda b: b.add_source("in", pattern=7),
        lambda b: sink(source(b, "in")),
    ),
    walked(
        "topology_builder._check_pattern: write one as",
        lambda b: b.add_source("in", pattern="("),
        lambda b: sink(source(b, "in")),
    ),
    walked("topology_builder._check_topic", lambda b: source(b, "a/b"), lambda b: sink(source(b, "in"))),
    walked(
        "validation._check_stores: name it where the processor is added",
        lambda b: sink(source(b).add_state_store(spec())).build(),
        lambda b: sink(source(b)),
    ),
]


def copying() -> Any:
    from airflow_kstreams.streams import KStreamBuilder

    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=JSON)
    builder.stream("in").filter(lambda key, value: True, name="p").send_to("out")
    (operator,) = (node.operator for node in builder.build().nodes if node.name == "p")  # type: ignore[union-attr]
    return operator


@pytest.mark.parametrize(("fault", "told"), BUILDER)
def test_what_the_error_says_builds_a_topology_that_copies(fault: Build, told: Build) -> None:
    with pytest.raises(KStreamsError):
        fault(TopologyBuilder())
    builder = TopologyBuilder()
    told(builder)
    assert given(builder.build()) == COPIED
