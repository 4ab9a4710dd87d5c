"""Builds topologies of sources, processors, sinks and stores by name. The DSL compiles to it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Self

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.calls import (
    CallOptions,
    CallOrder,
    ResourceFactory,
    RetryPolicy,
    checked_options,
    retry_spec,
)
from airflow_kstreams.streams.graph.nodes import (
    InternalTopic,
    Node,
    Operator,
    Partitioner,
    ProcessorNode,
    SinkNode,
    SourceNode,
)
from airflow_kstreams.streams.graph.store_specs import SessionStoreSpec, StoreSpec, WindowStoreSpec
from airflow_kstreams.streams.hints.function_checks import CallSite, call_site, check_functions
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.naming.topic_names import LEGAL_TOPIC, ProtocolTopics, is_legal_topic
from airflow_kstreams.streams.partitioning.partition_groups import (
    EqualIds,
    PartitionGrouper,
    check_partition_grouper,
)
from airflow_kstreams.streams.processor.definitions import check_async_processor_def, check_processor_def
from airflow_kstreams.streams.processor.operator import CallingProcessorOperator, ProcessorOperator
from airflow_kstreams.streams.processor.processor import AsyncProcessorDef, ProcessorDef
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.serde_checks import check_serdes
from airflow_kstreams.streams.timestamps import TimestampExtractor, check_timestamps
from airflow_kstreams.streams.topic_patterns import pattern_topic
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.streams.topology.validation import validate


@answers_java_names
class TopologyBuilder:
    """Collects nodes and stores, parents before children; every method but ``build`` returns the builder.

    :param partition_grouper: decides which partitions one task reads together; by default equal partition
        numbers.
    :raises TopologyError: the object is no partition grouper.

    >>> class Upper(Processor):
    ...     def init(self, context):
    ...         self.context = context
    ...
    ...     def process(self, record):
    ...         self.context.forward(record.key, record.value.upper())
    >>> builder = TopologyBuilder().add_source("in", "words", value_serde=serdes.string())
    >>> builder = builder.add_processor("upper", Upper, "in")
    >>> builder = builder.add_sink("out", "loud-words", "upper", value_serde=serdes.string())
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     driver.pipe_input("words", key=None, value="ant", timestamp_ms=0)
    ...     [record.value for record in driver.read_output("loud-words")]
    ['ANT']
    """

    def __init__(self, *, partition_grouper: PartitionGrouper | None = None) -> None:
        self._grouper_site = call_site()
        self._grouper = EqualIds() if partition_grouper is None else partition_grouper
        check_partition_grouper(self._grouper, self._grouper_site)
        self._nodes: dict[str, Node] = {}
        self._stores: dict[str, StoreSpec] = {}
        self._store_sites: dict[str, CallSite] = {}
        self._internal: dict[str, InternalTopic] = {}
        self._internal_owners: dict[str, tuple[str, ...]] = {}

    def add_source(
        self,
        name: str,
        *topics: str,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        timestamps: TimestampExtractor | None = None,
        pattern: str = "",
    ) -> Self:
        """Add a node that reads topics.

        :param name: unique in the topology.
        :param topics: one or more; none if there is a pattern.
        :param pattern: a regular expression for the whole names of the topics that exist when a run begins;
            see :meth:`KStreamBuilder.stream`.
        :param key_serde: serde of keys; bytes by default.
        :param value_serde: serde of values; bytes by default.
        :param timestamps: extractor of the records' timestamps; their own by default.
        :raises TopologyError: the name is taken, a topic's name is illegal or given twice, or the pattern is
            no regular expression, or is given with names.
        """
        site = call_site()
        check_serdes(f"source {name!r}", key_serde=key_serde, value_serde=value_serde)
        check_timestamps(f"source {name!r}", timestamps)
        if pattern:
            _check_pattern(pattern, topics, f"source {name!r} at {site}")
        elif not topics:
            raise TopologyError(f"source {name!r} at {site} names no topic", fix="name at least one")
        for topic in topics:
            _check_topic(topic, f"source {name!r} at {site} reads")
        if len(set(topics)) < len(topics):
            raise TopologyError(f"source {name!r} at {site} names a topic twice", fix="name each topic once")
        return self._add(
            SourceNode(
                name=name,
                topics=(pattern_topic(pattern),) if pattern else topics,
                key_serde=key_serde or serdes.bytes(),
                value_serde=value_serde or serdes.bytes(),
                timestamps=timestamps,
                pattern=pattern,
                site=site,
            )
        )

    def add_processor(
        self, name: str, processor_def: ProcessorDef, *parents: str, stores: tuple[str, ...] | list[str] = ()
    ) -> Self:
        """Add a node that runs a processor.

        :param name: unique in the topology.
        :param processor_def: a class, or a function without arguments that makes a new :class:`Processor` for
            each task.
        :param parents: names of the nodes that forward to it.
        :param stores: names of the stores that it may use.
        :raises TopologyError: the name is taken, a parent is unknown, or the definition cannot be called.
        """
        check_processor_def(processor_def, f"processor {name!r}", call_site())
        return self.add_operator(name, ProcessorOperator(definition=processor_def), *parents, stores=stores)

    def add_processor_async(  # noqa: PLR0913  (options)
        self,
        name: str,
        processor_def: AsyncProcessorDef,
        *parents: str,
        max_in_flight: int = 64,
        order: CallOrder = "partition",
        timeout_ms: int = 30_000,
        retry: RetryPolicy | None = None,
        threads: bool = False,
        resource: ResourceFactory | None = None,
    ) -> Self:
        """Add a node that runs a processor whose calls for several records run at once.

        :param name: unique in the topology; part of idempotency keys and of the retry topic's name.
        :param processor_def: a class, or a function without arguments that makes a new
            :class:`AsyncProcessor` for each task.
        :param parents: names of the nodes that forward to it.
        :param max_in_flight: this and the options behind it as for :meth:`KStream.map_values_async`. A
            ``retry`` with order ``key`` or ``unordered`` names the serdes of the node's keys and values.
        :raises TopologyError: the name is taken, a parent is unknown, the definition makes no such processor,
            an option is not valid, or ``retry`` lacks a serde.

        >>> class Priced(AsyncProcessor):
        ...     def init(self, context):
        ...         self.context = context
        ...
        ...     async def process(self, record):
        ...         self.context.forward(record.key, f"{record.value}: 2", to="priced")
        >>> builder = TopologyBuilder().add_source("in", "articles", value_serde=serdes.string())
        >>> builder = builder.add_processor_async("price", Priced, "in", max_in_flight=8)
        >>> builder = builder.add_sink("priced", "prices", "price", value_serde=serdes.string())
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("articles", key=None, value="pear", timestamp_ms=0)
        ...     [record.value for record in driver.read_output("prices")]
        ['pear: 2']
        """
        what = f"processor {name!r}"
        options = CallOptions(
            max_in_flight=max_in_flight,
            order=order,
            timeout_ms=timeout_ms,
            retry=retry,
            threads=threads,
            resource=resource,
        )
        checked_options(what, options, name)
        check_async_processor_def(processor_def, what, call_site(), threads=threads)
        store = None
        if retry is not None and options.parks:
            sources_only = all(isinstance(self._nodes.get(parent), SourceNode) for parent in parents)
            store = _retry_spec(name, retry, keys_changed=not sources_only)
        operator = CallingProcessorOperator(definition=processor_def, calls=options)
        self.add_operator(name, operator, *parents)
        return self if store is None else self.add_state_store(store, name)

    def add_operator(
        self, name: str, operator: Operator, *parents: str, stores: tuple[str, ...] | list[str] = ()
    ) -> Self:
        """Add a node that runs an operator; ``add_processor`` and the DSL call this.

        :raises TopologyError: the name is taken, a parent is unknown, or the operator has no traits.

        :param name: unique in the topology.
        :param operator: the operator, which makes the closure that runs once per record.
        :param parents: names of the nodes that forward to it.
        :param stores: names of the stores that it may use.
        """
        site = call_site()
        self._check_parents(f"processor {name!r}", parents, site)
        if not isinstance(operator, Operator):
            raise TopologyError(
                f"processor {name!r} at {site} is given {type(operator).__name__} as operator, which lacks "
                "type, traits or bind",
                fix="give it all three; traits are an OperatorTraits, by which the engine knows it",
            )
        if not isinstance(stores, list | tuple) or not all(isinstance(each, str) for each in stores):
            raise TopologyError(
                f"processor {name!r} at {site} has stores={stores!r:.80}, expected a list of names",
                fix="write e.g. stores=['totals']; add_state_store takes specs",
            )
        return self._add(
            ProcessorNode(
                name=name, parents=parents, operator=operator, stores=tuple(dict.fromkeys(stores)), site=site
            )
        )

    def move_children(self, parent: str, node: str) -> Self:
        """Move the children of a node to a new child of it.

        :param parent: name of the parent, which has the new node as its only child from now on.
        """
        below = self._nodes.pop(node)
        nodes = self._nodes
        self._nodes = {}
        for name, known in nodes.items():
            if isinstance(known, ProcessorNode | SinkNode):
                parents = tuple(node if each == parent else each for each in known.parents)
                known = dataclasses.replace(known, parents=parents)
            self._nodes[name] = known
            if name == parent:
                self._nodes[node] = below
        return self

    def add_sink(
        self,
        name: str,
        topic: str,
        *parents: str,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        partitioner: Partitioner | None = None,
    ) -> Self:
        """Add a node that writes a topic.

        :param name: unique in the topology.
        :param topic: name of a topic that exists when a run begins.
        :param parents: names of the nodes that forward to it.
        :param key_serde: serde of keys; bytes by default.
        :param value_serde: serde of values; bytes by default.
        :param partitioner: as for :meth:`KStream.send_to`.
        :raises TopologyError: the name is taken, a parent is unknown, the topic's name is illegal, or the
            partitioner is no function.
        """
        site = call_site()
        check_serdes(f"sink {name!r}", key_serde=key_serde, value_serde=value_serde)
        if partitioner is not None:
            check_functions(f"sink {name!r}", partitioner=partitioner)
        _check_topic(topic, f"sink {name!r} at {site} writes")
        self._check_parents(f"sink {name!r}", parents, site)
        return self._add(
            SinkNode(
                name=name,
                parents=parents,
                topic=topic,
                key_serde=key_serde or serdes.bytes(),
                value_serde=value_serde or serdes.bytes(),
                partitioner=partitioner,
                site=site,
            )
        )

    def add_state_store(self, spec: StoreSpec, *processors: str) -> Self:
        """Add a store, one instance per task.

        :param spec: the store's spec; adding an equal one again changes nothing, so that several processors
            may add it.
        :param processors: names of processors, added before, that may use it.
        :raises TopologyError: another store has the name, the name is illegal, or a processor is unknown.

        >>> class Count(Processor):
        ...     def init(self, context):
        ...         self.counts = context.state_store("counts")
        ...
        ...     def process(self, record):
        ...         self.counts.put(record.value, (self.counts.get(record.value) or 0) + 1)
        >>> builder = TopologyBuilder().add_source("in", "words", value_serde=serdes.string())
        >>> spec = StoreSpec(name="counts", key_serde=serdes.string(), value_serde=serdes.int64())
        >>> topology = builder.add_processor("count", Count, "in").add_state_store(spec, "count").build()
        >>> with TopologyTestDriver(topology, application_id="demo") as driver:
        ...     for word in ("ant", "bee", "ant"):
        ...         driver.pipe_input("words", key=None, value=word, timestamp_ms=0)
        ...     dict(driver.store("counts").all())
        {'ant': 2, 'bee': 1}
        """
        site = call_site()
        if not isinstance(spec, StoreSpec):
            raise TopologyError(
                f"add_state_store at {site} is given {spec!r:.80}, expected a StoreSpec",
                fix="say what to make: StoreSpec(name='totals', key_serde=..., value_serde=...)",
            )
        known = self._stores.get(spec.name)
        if known is not None and known != spec:
            raise TopologyError(
                f"store {spec.name!r} has two specs, at {self._store_sites[spec.name]} and at {site}",
                fix="give each store its own name, or use one StoreSpec for both",
            )
        _check_topic(spec.name, f"a store at {site} has the name")
        self._stores[spec.name] = spec
        self._store_sites.setdefault(spec.name, site)
        for name in processors:
            node = self._nodes.get(name)
            if not isinstance(node, ProcessorNode):
                raise TopologyError(
                    f"store {spec.name!r} at {site} is connected to {name!r}, which is no processor",
                    fix="add the processor first; sources and sinks use no stores",
                )
            self._nodes[name] = dataclasses.replace(
                node, stores=tuple(dict.fromkeys([*node.stores, spec.name]))
            )
        return self

    def add_repartition(
        self, name: str, parent: str, *, key_serde: Serde, value_serde: Serde, partitions: int | None = None
    ) -> Self:
        """Add an internal topic, with the sink that writes it and the source that reads it.

        :param name: the topic becomes ``<application id>-<name>-repartition``, the source
            ``<name>-repartition-source``.
        :param parent: the node that forwards to it.
        :param partitions: None for as many as the largest source of the writing subtopology.
        :raises TopologyError: a name is taken.
        """
        topic = InternalTopic(name=ProtocolTopics.repartition(name), partitions=partitions)
        sink, source = f"{topic.name}-sink", f"{topic.name}-source"
        self.add_sink(sink, topic.name, parent, key_serde=key_serde, value_serde=value_serde)
        self.add_source(source, topic.name, key_serde=key_serde, value_serde=value_serde)
        self._internal[topic.name] = topic
        self._internal_owners[topic.name] = (sink, source)
        return self

    def build(self) -> Topology:
        """Return the topology built so far.

        :raises TopologyError: the topology cannot run; the user's file and line are named.
        """
        topology = Topology(
            nodes=_with_expiry(self._nodes, self._stores),
            stores=tuple(self._stores.values()),
            internal_topics=tuple(self._internal.values()),
            partition_grouper=self._grouper,
            grouper_site=self._grouper_site,
        )
        validate(topology, store_sites=self._store_sites, internal_owners=self._internal_owners)
        return topology

    def _add(self, node: Node) -> Self:
        if not isinstance(node.name, str) or not node.name:
            raise TopologyError(
                f"the node at {node.site} has the name {node.name!r}", fix="give it a text of its own"
            )
        known = self._nodes.get(node.name)
        if known is not None:
            raise TopologyError(
                f"the name {node.name!r} is given to two nodes, at {known.site} and at {node.site}",
                fix="give each node its own name",
            )
        self._nodes[node.name] = node
        return self

    def _check_parents(self, what: str, parents: tuple[str, ...], site: CallSite) -> None:
        if not parents:
            raise TopologyError(f"{what} at {site} has no parent", fix="name the nodes that forward to it")
        for parent in parents:
            if not isinstance(parent, str):
                raise TopologyError(
                    f"{what} at {site} has {type(parent).__name__} as parent, expected a node's name",
                    fix="name the nodes that forward to it one by one: ..., 'first', 'second'",
                )
        if len(set(parents)) < len(parents):
            raise TopologyError(f"{what} at {site} names a parent twice", fix="name each parent once")
        for parent in parents:
            node = self._nodes.get(parent)
            if node is None:
                known = ", ".join(self._nodes) or "none"
                raise TopologyError(
                    f"{what} at {site} has an unknown parent {parent!r}",
                    fix=f"add parents before their children; nodes so far: {known}",
                )
            if isinstance(node, SinkNode):
                raise TopologyError(
                    f"{what} at {site} has the sink {parent!r} ({node.site}) as parent",
                    fix="a sink forwards nothing; read its topic with a source of its own",
                )


def _with_expiry(nodes: Mapping[str, Node], stores: Mapping[str, StoreSpec]) -> tuple[Node, ...]:
    """Return the nodes, in which the first processor of a window or session store expires its entries. The
    DSL's operators expire their own stores.
    """
    result = dict(nodes)
    for name, spec in stores.items():
        if not isinstance(spec, WindowStoreSpec | SessionStoreSpec):
            continue
        users = [node for node in result.values() if isinstance(node, ProcessorNode) and name in node.stores]
        operators = [node.operator for node in users if isinstance(node.operator, ProcessorOperator)]
        if operators and len(operators) == len(users):
            keeper = dataclasses.replace(operators[0], expires=(*operators[0].expires, name))
            result[users[0].name] = dataclasses.replace(users[0], operator=keeper)
    return tuple(result.values())


def _retry_spec(name: str, retry: RetryPolicy, *, keys_changed: bool) -> StoreSpec:
    """Return the spec of the store of a processor's parked records.

    :param keys_changed: True if it may get other keys than those of the consumed records.
    :raises TopologyError: a serde is missing.
    """
    if retry.key_serde is None or retry.value_serde is None:
        missing = "key_serde" if retry.key_serde is None else "value_serde"
        raise TopologyError(
            f"processor {name!r} at {call_site()} has a retry topic, and its RetryPolicy no {missing}",
            fix=f"give RetryPolicy({missing}=...): what the node gets is kept in it",
        )
    return retry_spec(name, retry.key_serde, retry.value_serde, keys_changed=keys_changed)


def _check_pattern(pattern: object, topics: tuple[str, ...], what: str) -> None:
    if topics:
        raise TopologyError(
            f"{what} is given topics, {', '.join(map(repr, topics))}, and a pattern",
            fix="name topics, or give a pattern that matches all of them",
        )
    if not isinstance(pattern, str):
        raise TopologyError(
            f"{what} has the pattern {pattern!r}, expected a regular expression as text",
            fix="write it as text, e.g. r'flights-\\d{4}'",
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise TopologyError(
            f"{what} has the pattern {pattern!r}, which is no regular expression: {error}",
            fix="write one as Python's module re takes them, e.g. r'flights-\\d{4}'",
        ) from None


def _check_topic(name: str, what: str) -> None:
    if not is_legal_topic(name):
        raise TopologyError(
            f"{what} {name!r}, which Kafka does not allow for a topic",
            fix=LEGAL_TOPIC,
        )
