"""Checks a whole topology before it is built; the builder checks each call by itself."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph import components
from airflow_kstreams.streams.graph.nodes import (
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    global_tables_of,
    options_of,
    traits_of,
)
from airflow_kstreams.streams.graph.stages import stages_of
from airflow_kstreams.streams.graph.store_specs import (
    NO_GLOBAL_TABLE,
    GlobalTableDef,
    RetryStoreSpec,
    StoreSpec,
)
from airflow_kstreams.streams.hints.function_checks import CallSite
from airflow_kstreams.streams.processor.operator import CallingProcessorOperator, ProcessorOperator
from airflow_kstreams.streams.timestamps import ASKED, TimestampExtractor
from airflow_kstreams.streams.topic_patterns import refuse_overlaps
from airflow_kstreams.streams.topology.topology import Topology


def validate(
    topology: Topology, *, store_sites: Mapping[str, CallSite], internal_owners: Mapping[str, tuple[str, ...]]
) -> None:
    """Refuse a topology that cannot run.

    :param store_sites: line that added each store.
    :param internal_owners: internal topic -> names of the nodes that the engine made for it.
    :raises TopologyError: the first fault, with the user's file and line.
    """
    _check_reads_and_writes(topology)
    _check_stores(topology, store_sites)
    _check_one_source_per_topic(topology)
    _check_internal_topics(topology, internal_owners)
    _check_patterns(topology)
    _check_partitioners(topology)
    _check_global_tables(topology)
    _check_tables(topology)
    for subtopology in topology.subtopologies():
        stages_of(subtopology.nodes)
    components.in_running_order(topology.subtopologies())


def _check_reads_and_writes(topology: Topology) -> None:
    sources = [node for node in topology.nodes if isinstance(node, SourceNode)]
    if not sources:
        raise TopologyError(
            "the topology has no source: it reads no topic", fix="add a source, e.g. stream('topic')"
        )
    ends = any(isinstance(node, SinkNode) or _is_end(node) for node in topology.nodes)
    if not ends and not any(store.logged for store in topology.stores):
        raise TopologyError(
            f"topology without sink: what {sources[0].name!r} ({sources[0].site}) reads is written nowhere",
            fix="add a sink, e.g. send_to('topic'), or foreach(action), or a processor, or a logged store",
        )


#: Operators that call what may have its effect there, so that a stream may end in them.
_ENDS = ("fixed_key_processor", "foreach", "foreach_async", "peek", "processor", "processor_async")


def _is_end(node: Node) -> bool:
    if traits_of(node).table is not None:
        return True
    return isinstance(node, ProcessorNode) and node.operator.type in _ENDS


def _check_tables(topology: Topology) -> None:
    """Refuse two sinks to one table: a run's commit to it is one snapshot, with one mark."""
    known: dict[tuple[str, str], Node] = {}
    names: dict[str, tuple[str, Node]] = {}
    for node in topology.nodes:
        table = traits_of(node).table
        if table is None:
            continue
        plan = table.plan
        other = known.setdefault((plan.format, plan.location), node)
        if other is not node:
            raise TopologyError(
                f"table {plan.location!r} is written at {node.site}, and at {other.site}",
                fix="merge both streams ahead of one send_to_table, or write one of them to another table",
            )
        location, other = names.setdefault(plan.name, (plan.location, node))
        if other is not node:
            raise TopologyError(
                f"table {plan.location!r} ({node.site}) has the name {plan.name!r}, and so has {location!r} "
                f"({other.site})",
                fix="give a DeltaTable another name=",
            )


def _check_stores(topology: Topology, sites: Mapping[str, CallSite]) -> None:
    known = [store.name for store in topology.stores]
    kinds = {store.name: store for store in topology.stores}
    used: set[str] = set()
    for node in topology.nodes:
        for store in components.connected_stores(node):
            if store not in known:
                raise TopologyError(
                    f"processor {node.name!r} ({node.site}) uses the store {store!r}, which no call added",
                    fix=f"add it with add_state_store; stores of this topology: {', '.join(known) or 'none'}"
                    f"; {NO_GLOBAL_TABLE}",
                )
            used.add(store)
            _check_stateless(node, store, kinds[store])
    for store in known:
        if store not in used:
            raise TopologyError(
                f"store {store!r} ({sites[store]}) is connected to no processor",
                fix=f"name it where the processor is added: process(definition, {store!r}); or remove it",
            )


def _check_stateless(node: Node, name: str, spec: StoreSpec) -> None:
    """Refuse a store of a processor whose calls run side by side."""
    operator = node.operator if isinstance(node, ProcessorNode) else None
    beside = isinstance(operator, CallingProcessorOperator)
    on_threads = isinstance(operator, ProcessorOperator) and not operator.traits.asks_for_commits
    if (beside or on_threads) and not isinstance(spec, RetryStoreSpec):
        why = "runs calls for several records at once" if beside else "declares threads = True"
        raise TopologyError(
            f"processor {node.name!r} ({node.site}) {why}, and is connected to the store {name!r}: what its "
            "calls see there would depend on time",
            fix="keep the store in a processor of its own, above or below, with process(definition, store)",
        )


def _check_one_source_per_topic(topology: Topology) -> None:
    readers: dict[str, SourceNode] = {}
    for node in topology.nodes:
        if not isinstance(node, SourceNode):
            continue
        for topic in node.topics:
            if topic in readers:
                raise two_sources_error(topic, readers[topic], node)
            readers[topic] = node


def _check_patterns(topology: Topology) -> None:
    """Refuse a pattern that matches a topic that the topology writes, or reads by name."""
    others = {
        topic: f"which is a global table ({table.site})"
        for topic, table in global_tables_of(topology.nodes).items()
    }
    for node in topology.nodes:
        if isinstance(node, SinkNode):
            others.setdefault(node.topic, f"which {node.name!r} ({node.site}) writes")
        elif isinstance(node, SourceNode) and not node.pattern:
            others |= dict.fromkeys(node.topics, f"which {node.name!r} ({node.site}) reads")
    for topic in topology.internal_topics:  # whose name in Kafka differs
        others.pop(topic.name, None)
    refuse_overlaps(topology.patterns, others)


def _check_partitioners(topology: Topology) -> None:
    """Refuse a partitioner that could part records from the state of their key: state lies in the task that
    reads a record, and the next record of its key may go to another one.
    """
    for sink in topology.nodes:
        if not isinstance(sink, SinkNode) or sink.partitioner is None:
            continue
        for node in _read_from(topology, sink.topic):
            if isinstance(node, ProcessorNode) and node.stores and options_of(node) is None:
                raise TopologyError(
                    f"sink {sink.name!r} ({sink.site}) places the records of {sink.topic!r} by a "
                    f"partitioner, and {node.name!r} ({node.site}) keeps state of what is read there: "
                    "records of one key may lie in several partitions",
                    fix="leave out partitioner=, or repartition what is read from the topic by its keys, "
                    "e.g. .repartition(n), ahead of what keeps state",
                )


def _check_global_tables(topology: Topology) -> None:
    """Refuse a global table whose topic the topology also reads as a stream, or writes: a run sees it as it
    was when the run began, and nothing of what it reads or writes itself.
    """
    tables = global_tables_of(topology.nodes)
    for node in topology.nodes:
        if isinstance(node, ProcessorNode):
            continue
        for topic in node.topics if isinstance(node, SourceNode) else (node.topic,):
            if topic in tables:
                does = "reads" if isinstance(node, SourceNode) else "writes"
                raise TopologyError(
                    f"{node.name!r} ({node.site}) {does} the topic {topic!r}, which is a global table "
                    f"({tables[topic].site}): every run sees that as it was when it began",
                    fix="use builder.table(topic), or another topic for the global table",
                )
    _check_names(topology, tables)


def _check_names(topology: Topology, tables: Mapping[str, GlobalTableDef]) -> None:
    """Refuse a global table that is called like a node, or like another one."""
    named: dict[str, CallSite | None] = {node.name: node.site for node in topology.nodes}
    # Those that the user named come last: of two alike, one of them is to have another name.
    for table in sorted(tables.values(), key=lambda table: bool(table.name)):
        for name in table.node_names:
            if table.name and name in named:
                raise TopologyError(
                    f"the name {name!r} is given to two nodes, at {named[name]} and at {table.site}",
                    fix="give each node its own name",
                )
            named[name] = table.site


def _read_from(topology: Topology, topic: str) -> list[Node]:
    """Return the nodes that get the records of a topic, in topological order."""
    reached: set[str] = set()
    found: list[Node] = []
    for subtopology in topology.subtopologies():
        for node in subtopology.nodes:
            reads = isinstance(node, SourceNode) and topic in node.topics
            if reads or not reached.isdisjoint(components.parents(node)):
                reached.add(node.name)
                found.append(node)
    return found


def two_sources_error(topic: str, first: SourceNode, second: SourceNode) -> TopologyError:
    """Describe two sources that read one topic, which has one committed offset and so can feed one of them
    only.
    """
    difference = ""
    if (first.key_serde, first.value_serde) != (second.key_serde, second.value_serde):
        difference = (
            f", with the serdes {first.key_serde!r}, {first.value_serde!r} and {second.key_serde!r}, "
            f"{second.value_serde!r}"
        )
    if {*first.topics} != {*second.topics}:
        difference += f", of the topics {', '.join(first.topics)} and of {', '.join(second.topics)}"
    if not same_timestamps(first.timestamps, second.timestamps):
        difference += ", with different timestamp extractors"
    other = "another" if first.name == second.name else repr(second.name)
    return TopologyError(
        f"topic {topic!r} is read by two sources, {first.name!r} ({first.site}) and {other} "
        f"({second.site}){difference}",
        fix="read it once, with one pair of serdes and one timestamp extractor, and use that source or "
        "stream twice",
    )


def same_timestamps(one: TimestampExtractor | None, other: TimestampExtractor | None) -> bool:
    """Return whether two extractors give records the same timestamps: their ids and policies say so, but for
    :func:`timestamps.extract`, whose function is the user's.

    :param one: None for the records' own timestamps.
    """
    if one is None or other is None or one.id != ASKED:
        return one == other
    return one == other and _alike(one.function, other.function)


def _alike(one: object, other: object) -> bool:
    """Return True if two functions are one, or are made by the same code with the same values around it."""
    if one == other or not (isinstance(one, FunctionType) and isinstance(other, FunctionType)):
        return one == other
    return one.__code__ is other.__code__ and all(
        getattr(one, name) == getattr(other, name)
        for name in ("__closure__", "__defaults__", "__kwdefaults__")
    )


def _check_internal_topics(topology: Topology, owners: Mapping[str, tuple[str, ...]]) -> None:
    for node in topology.nodes:
        if isinstance(node, ProcessorNode):
            continue
        for topic in node.topics if isinstance(node, SourceNode) else (node.topic,):
            if topic in owners and node.name not in owners[topic]:
                raise TopologyError(
                    f"{node.name!r} ({node.site}) names the topic {topic!r}, which the engine makes to "
                    "repartition a stream",
                    fix="rename the topic, or the store or group that the repartition topic is named after",
                )
