"""Defines topologies: frozen, not executable, divided into subtopologies that run one after another.

What draws them is imported when a picture is asked for: every run loads topologies, and few draw them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_kstreams.streams.errors import ConfigError, TopologyError
from airflow_kstreams.streams.graph import components
from airflow_kstreams.streams.graph.components import Subtopology
from airflow_kstreams.streams.graph.nodes import (
    InternalTopic,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    global_tables_of,
    options_of,
    purpose_of,
    tables_of,
    traits_of,
)
from airflow_kstreams.streams.graph.store_specs import (
    RetryStoreSpec,
    StoreSpec,
    VersionedStoreSpec,
    WindowStoreSpec,
)
from airflow_kstreams.streams.hints.function_checks import CallSite
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics, is_legal_topic
from airflow_kstreams.streams.partitioning.partition_groups import (
    EqualIds,
    GroupingRequest,
    Groups,
    PartitionGrouper,
    grouped,
)
from airflow_kstreams.streams.plan import (
    PROCESSOR,
    GivenWindows,
    MadeOf,
    StreamTimePlan,
    SubtopologyPlan,
    TopologyPlan,
)
from airflow_kstreams.streams.settings import ApplicationSettings, check_application_id
from airflow_kstreams.streams.topic_patterns import match_all, pattern_of, pattern_topic, refuse_overlaps
from airflow_kstreams.streams.topology.entry_keys import entry_keys, key_forms, key_suffixes
from airflow_kstreams.streams.topology.time_limits import description_of, stream_time_plans
from airflow_kstreams.streams.windows import SlidingWindow, sliding_retention_ms

if TYPE_CHECKING:
    from airflow_kstreams.streams.picture.chart import Chart
    from airflow_kstreams.streams.picture.description import TopicName

__all__ = ["Subtopology", "Topology"]

#: Fields that distinguish windows of a fold; grace does not.
_WINDOW_SIZES = ("size_ms", "advance_ms", "gap_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A checked topology; made by ``TopologyBuilder.build()`` or ``KStreamBuilder.build()``.

    Topics are named logically: an internal topic by its own name, every other topic by its name in Kafka.

    :param nodes: the nodes in build order, every parent before its children.
    :param stores: the stores in build order.
    :param internal_topics: the repartition topics that the engine creates.
    :param partition_grouper: decides which partitions one task reads together.
    :param grouper_site: line that gave it to the builder.
    :param written_as: every topic that may be written, by its name for processors; None if topics keep their
        names. Sinks have the real names.
    :param made_of: store -> what it is made of; of those that operators of the DSL keep.
    """

    nodes: tuple[Node, ...]
    stores: tuple[StoreSpec, ...] = ()
    internal_topics: tuple[InternalTopic, ...] = ()
    partition_grouper: PartitionGrouper = field(default_factory=EqualIds)
    grouper_site: CallSite | None = None
    written_as: Mapping[str, str] | None = None
    made_of: Mapping[str, MadeOf] = field(default_factory=dict)

    def subtopologies(self) -> tuple[Subtopology, ...]:
        """Return the connected components, by id: numbered in build order of their first node.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").through("checked-words").send_to("out")
        >>> [sub.source_topics for sub in builder.build().subtopologies()]
        [('words',), ('checked-words',)]
        """
        return components.subtopologies(self.nodes, self.stores)

    def ordered_subtopologies(self) -> tuple[Subtopology, ...]:
        """Return the connected components in running order: every writer of a topic comes before its readers.

        :raises TopologyError: the components form a cycle, as in no built topology.
        """
        return components.in_running_order(self.subtopologies())

    @property
    def patterns(self) -> tuple[str, ...]:
        """The placeholders of sources' patterns among the names of topics."""
        sources = (node for node in self.nodes if isinstance(node, SourceNode))
        return tuple(pattern_topic(node.pattern) for node in sources if node.pattern)

    def matched(self, names: Collection[str]) -> Topology:
        r"""Return the topology with matching topics in place of its patterns, and the same hash.

        :param names: names of all existing topics.
        :raises TopologyError: no topic matches a pattern, or two match one topic.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream(pattern=r"flights-\d+").send_to("flights")
        >>> topology = builder.build()
        >>> topology.plan("app").inputs
        ('/flights-\\d+/',)
        >>> topology.matched(["flights-2013", "flights-2014", "flights-old"]).plan("app").inputs
        ('flights-2013', 'flights-2014')
        """
        if not self.patterns:
            return self
        matches = match_all(self.patterns, names)

        def with_matches(node: Node) -> Node:
            if not isinstance(node, SourceNode) or not node.pattern:
                return node
            return replace(node, topics=matches[pattern_topic(node.pattern)])

        return replace(self, nodes=tuple(map(with_matches, self.nodes)))

    def real_topic(self, topic: str, application_id: str) -> str:
        """Return the name a topic has in Kafka: internal ones are prefixed with the application id.

        :param topic: the topic's name in the topology.
        :param application_id: the application.
        """
        internal = any(topic == internal.name for internal in self.internal_topics)
        return ProtocolTopics(application_id).internal(topic) if internal else topic

    def changelog_topic(self, store: str, application_id: str) -> str:
        """Return the name of a store's changelog topic in Kafka; that of parked records is the retry topic.

        :param store: name of the store.
        :param application_id: the application.
        """
        if any(spec.name == store and isinstance(spec, RetryStoreSpec) for spec in self.stores):
            return ProtocolTopics(application_id).internal(store)
        return ProtocolTopics(application_id).changelog(store)

    def topology_hash(self) -> str:
        """Return a hash over names, types, edges, topics, serde ids, stores and partition counts.

        Function bodies do not count, so that a corrected lambda may resume a failed run.
        """
        canonical: dict[str, Any] = {
            "nodes": [_node_facts(node) for node in self.nodes],
            "stores": [_store_facts(store) for store in self.stores],
            "internal_topics": [[topic.name, topic.partitions] for topic in self.internal_topics],
        }
        if tables := global_tables_of(self.nodes):
            canonical["global_tables"] = [
                [topic, table.key_serde.id, table.value_serde.id, *filter(None, [table.name])]
                for topic, table in sorted(tables.items())
            ]
        if written := tables_of(self.nodes):
            canonical["tables"] = [table.plan.identity for _, table in sorted(written.items())]
        if self._own_grouper:
            canonical["partition_grouper"] = self._own_grouper
        return hashlib.sha256(msgspec.json.encode(canonical, order="sorted")).hexdigest()

    @property
    def purposes(self) -> dict[str, str]:
        """Node -> what it does, and the user's line that made it; no part of the hash."""
        return {node.name: purpose_of(node) for node in self.nodes}

    def plan(self, application_id: str) -> TopologyPlan:
        """Reduce the topology to plain data under the application's real topic names.

        :raises ConfigError: the application id cannot name topics.
        :raises TopologyError: an internal topic's name is too long, or is also the name of a topic the user
            reads or writes.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> by_letter = builder.stream("words").group_by(lambda key, word: word[0], name="by-letter")
        >>> counts = by_letter.count(store="counts")
        >>> plan = builder.build().plan("app")
        >>> plan.inputs, plan.intermediates, plan.changelogs
        (('words',), ('app-by-letter-repartition',), {'app-counts-changelog': 1})
        """
        check_application_id(application_id)
        subs = self.ordered_subtopologies()
        times = stream_time_plans(subs, lambda topic: self.real_topic(topic, application_id))
        tables = tables_of(self.nodes)
        listed: dict[str, int | None] = {ProtocolTopics(application_id).table_files: 1} if tables else {}
        plan = TopologyPlan(
            application_id=application_id,
            topology_hash=self.topology_hash(),
            subtopologies=(
                *(self._subtopology_plan(sub, application_id, times[sub.id]) for sub in subs),
                *(SubtopologyPlan(id=len(subs), sources=(topic,), sinks=(), lands=True) for topic in listed),
            ),
            repartition_topics={
                self.real_topic(topic.name, application_id): topic.partitions
                for topic in self.internal_topics
            }
            | listed,
            tables=tuple(table.plan for _, table in sorted(tables.items())),
            partition_grouper=self._own_grouper,
            gives_up=any(map(_gives_up, self.nodes)),
            fed_by=fed_by(self, application_id),
            purposes=self.purposes,
            patterns={
                pattern_topic(node.pattern): tuple(
                    topic for topic in node.topics if pattern_of(topic) is None
                )
                for node in self.nodes
                if isinstance(node, SourceNode) and node.pattern
            },
        )
        _check_engine_topics(plan, self._user_topics())
        _check_patterns(plan)
        return plan

    def partition_groups(self, application_id: str, counts: Mapping[str, int]) -> dict[int, Groups]:
        """Group the source partitions of every subtopology.

        :param counts: partition count of every topic that is read, by real name.
        :return: groups by subtopology id, with real topic names.
        :raises TopologyError: the partition grouper fails, or its groups are not valid; the partitions are
            named.
        """
        names = {self.real_topic(topic.name, application_id): topic.name for topic in self.internal_topics}
        real = {name: topic for topic, name in names.items()}

        def logical(topic: str) -> str:
            return names.get(topic, topic)

        found: dict[int, Groups] = {}
        for sub in self.matched(counts).plan(application_id).subtopologies:
            if sub.lands:  # the engine's own topic is no business of the user's grouper
                found[sub.id] = tuple({topic: (0,)} for topic in sub.sources)
                continue
            request = GroupingRequest(
                subtopology=sub.id,
                counts={logical(topic): counts[topic] for topic in sub.sources},
                copartitioned=[set(map(logical, joined)) for joined in sub.copartitioned],
            )
            groups = grouped(self.partition_grouper, self.grouper_site, request)
            found[sub.id] = tuple(
                dict(sorted((real.get(topic, topic), numbers) for topic, numbers in group.items()))
                for group in groups
            )
        return found

    def describe(self, *, application_id: str | None = None, purposes: bool = False) -> str:
        """Return the topology as text, in the form of Kafka Streams.

        :param application_id: given, internal topics are shown by their names in Kafka, else by their logical
            names.
        :param purposes: whether each node's line ends with what it does and your line that made it:
            ``# filter at orders.py:17``.
        :raises ConfigError: the application id cannot name topics.
        :raises TopologyError: the application id gives internal topics names that Kafka does not allow.

        >>> from airflow_kstreams.streams import TopologyBuilder
        >>> builder = TopologyBuilder().add_source("in", "words").add_sink("out", "copies", "in")
        >>> print(builder.build().describe().rstrip())
        Topologies:
           Sub-topology: 0
            Source: in (topics: [words])
              --> out
            Sink: out (topic: copies)
              <-- in
        """
        from airflow_kstreams.streams.picture.description import describe

        return describe(self.subtopologies(), self._topic_name(application_id), purposes=purposes)

    def describe_stream_time(self, *, application_id: str | None = None) -> str:
        """Return the stream time to which the end of a run brings each subtopology (``stream.time.advance``).

        :param application_id: as in :meth:`describe`.
        :raises ConfigError: as :meth:`describe`.
        :raises TopologyError: as :meth:`describe`.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> window = TumblingWindow(size_ms=60_000, grace_ms=5_000)
        >>> counts = builder.stream("in").group_by_key().windowed_by(window).count(store="counts")
        >>> counts.suppress().to_stream(lambda window, count: window.key).through(
        ...     "counted", value_serde=serdes.int64()
        ... ).send_to("out")
        >>> print(builder.build().describe_stream_time().rstrip())
        Stream time at the end of a run (stream.time.advance):
          Sub-topology: 0: the run's moment
          Sub-topology: 1: the run's moment less 65000 ms, which nodes upstream may hold back
        """
        subs = self.ordered_subtopologies()
        return description_of(stream_time_plans(subs, self._topic_name(application_id)))

    def to_mermaid(self, *, application_id: str | None = None) -> str:
        """Return the topology as a Mermaid flowchart: a subgraph per subtopology, topics as pills, stores as
        cylinders.

        :param application_id: as in :meth:`describe`.
        :raises ConfigError: as :meth:`describe`.
        :raises TopologyError: as :meth:`describe`.
        """
        from airflow_kstreams.streams.picture.mermaid import mermaid

        return mermaid(self._chart(application_id))

    def to_svg(self, *, application_id: str | None = None) -> str:
        """Return the topology as a picture, an SVG document for light and dark pages.

        :param application_id: as in :meth:`describe`.
        :raises ConfigError: as :meth:`describe`.
        :raises TopologyError: as :meth:`describe`.
        """
        from airflow_kstreams.streams.picture.svg import to_svg

        return to_svg(self._chart(application_id))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Show the topology in a notebook: as a picture, and as text where no picture can be shown."""
        return {"text/plain": self.describe(), "image/svg+xml": self.to_svg()}

    def _chart(self, application_id: str | None) -> Chart:
        from airflow_kstreams.streams.picture.chart import chart

        internal = frozenset(topic.name for topic in self.internal_topics)
        return chart(self.ordered_subtopologies(), self._topic_name(application_id), internal)

    def _topic_name(self, application_id: str | None) -> TopicName:
        """Return the function that turns a topic's logical name into the one to show."""
        if application_id is None:
            return str
        self.plan(application_id)  # refuses an id that is not valid
        return lambda topic: self.real_topic(topic, application_id)

    @property
    def _own_grouper(self) -> str:
        """Id of the user's own partition grouper, empty for the default one."""
        return "" if type(self.partition_grouper) is EqualIds else self.partition_grouper.id

    def _user_topics(self) -> set[str]:
        subs = self.subtopologies()
        named = {topic for sub in subs for topic in (*sub.source_topics, *sub.sink_topics)}
        named |= global_tables_of(self.nodes).keys()
        return named - {topic.name for topic in self.internal_topics}

    def _subtopology_plan(
        self, sub: Subtopology, application_id: str, stream_time: StreamTimePlan
    ) -> SubtopologyPlan:
        def real(topics: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(sorted(self.real_topic(topic, application_id) for topic in topics))

        internal = frozenset(topic.name for topic in self.internal_topics)
        tables = tuple(sorted(tables_of(sub.nodes)))
        listed = (ProtocolTopics(application_id).table_files,) if tables else ()
        logged = {
            self.changelog_topic(store.name, application_id): store for store in sub.stores if store.logged
        }
        return SubtopologyPlan(
            id=sub.id,
            sources=real(sub.source_topics),
            sinks=tuple(sorted((*real(sub.sink_topics), *listed))),
            tables=tables,
            stores=tuple(sorted(store.name for store in sub.stores)),
            changelogs={store.name: topic for topic, store in logged.items()},
            changelog_configs={
                topic: {name: str(value) for name, value in store.changelog_configs.items()}
                for topic, store in logged.items()
                if store.changelog_configs
            },
            state_kinds={topic: _state_kind(store, sub) for topic, store in logged.items()},
            given_windows={
                topic: given
                for topic, store in logged.items()
                if (given := _given_windows(store.name, sub)) is not None
            },
            store_serdes={
                topic: f"{store.key_serde.stored_as} -> {store.value_serde.stored_as}"
                for topic, store in logged.items()
            },
            globals=tuple(sorted(global_tables_of(sub.nodes))),
            copartitioned=tuple(real(group) for group in components.copartitioned(sub, internal)),
            keyed_together=tuple(
                (*real(topics), *(name for name, store in logged.items() if store.name in stores))
                for topics, stores in components.keyed_together(sub)
            ),
            entry_keys={topic: entry_keys(store, sub, internal) for topic, store in logged.items()},
            key_suffixes={
                self.real_topic(topic, application_id): size for topic, size in key_suffixes(sub).items()
            },
            key_forms=key_forms(sub, internal),
            stream_time=stream_time,
            made_of={
                store.name: self.made_of.get(store.name) or _of_processors(store)
                for store in sub.stores
                if not isinstance(store, RetryStoreSpec)
            },
            calling=tuple(node.name for node in sub.nodes if options_of(node) is not None),
        )


def _of_processors(store: StoreSpec) -> MadeOf:
    return MadeOf(kind=PROCESSOR, reads=(), name=store.name, by="spec", named=True)


def fed_by(topology: Topology, application_id: str) -> dict[str, tuple[str, ...]]:
    """Return repartition topic -> the topics that its records are made of, see
    :class:`~airflow_kstreams.streams.plan.TopologyPlan`.
    """
    found: dict[str, frozenset[str]] = {topic.name: frozenset() for topic in topology.internal_topics}
    for sub in topology.ordered_subtopologies():
        above: dict[str, frozenset[str]] = {}
        for node in sub.nodes:
            if isinstance(node, SourceNode):
                read = (found.get(topic, {topic}) for topic in node.topics)
                above[node.name] = frozenset().union(*read)
                if node.pattern:
                    above[node.name] = frozenset({pattern_topic(node.pattern)})
                continue
            above[node.name] = frozenset().union(*(above[parent] for parent in node.parents))
            if isinstance(node, SinkNode) and node.topic in found:
                found[node.topic] |= above[node.name]
    return {
        topology.real_topic(name, application_id): tuple(sorted(topics)) for name, topics in found.items()
    }


def _node_facts(node: Node) -> list[Any]:
    match node:
        case SourceNode():
            topics = [pattern_topic(node.pattern)] if node.pattern else list(node.topics)
            facts = ["source", node.name, topics, node.key_serde.id, node.value_serde.id]
            if node.timestamps is not None:
                facts.append(f"{node.timestamps.id}/{node.timestamps.invalid}")
            return facts
        case ProcessorNode():
            return ["processor", node.name, node.operator.type, list(node.parents), list(node.stores)]
        case SinkNode():
            serdes = [node.key_serde.id, node.value_serde.id]
            placed = [] if node.partitioner is None else ["partitioner"]
            return ["sink", node.name, node.topic, list(node.parents), *serdes, *placed]


def _gives_up(node: Node) -> bool:
    options = options_of(node)
    return options is not None and options.retry is not None and options.retry.then == "dead-letter"


def _state_kind(store: StoreSpec, sub: Subtopology) -> str:
    """Return the meaning of a store's entries; state of another meaning would otherwise be misread."""
    for node in sub.nodes:
        window = traits_of(node).windows.get(store.name)
        if window is not None:
            sizes = (f"{name}={getattr(window, name)}" for name in _WINDOW_SIZES if hasattr(window, name))
            if not isinstance(window, SlidingWindow):
                return f"{store.type} {' '.join(sizes)}"
            # Later windows begin with what closed ones hold: where these are is part of the meaning.
            apart = isinstance(store, WindowStoreSpec) and store.retention_ms < sliding_retention_ms(window)
            return f"{store.type} sliding {' '.join(sizes)}{', closed ones apart' if apart else ''}"
    if isinstance(store, VersionedStoreSpec):
        # A longer history would ask for versions, and for deletions, that have left under a shorter one.
        return f"{store.type} history_ms={store.history_ms}"
    return store.type


def _given_windows(store: str, sub: Subtopology) -> GivenWindows | None:
    """Return when the windows in a store are given; None for a store of no windows, and where they are given
    in more than one way, or in none.
    """
    for node in sub.nodes:
        if store in traits_of(node).windows:
            below = [traits_of(other) for other in sub.nodes if node.name in components.parents(other)]
            ways = {each.closing.get(store, "change") for each in below}
            return GivenWindows(at=ways.pop(), may_go=traits_of(node).windows_go) if len(ways) == 1 else None
    return None


def _store_facts(store: StoreSpec) -> list[Any]:
    return [
        store.type,
        store.name,
        store.key_serde.id,
        store.value_serde.id,
        store.logged,
        store.cached,
        getattr(store, "retention_ms", getattr(store, "history_ms", None)),
    ]


def _check_patterns(plan: TopologyPlan) -> None:
    """Refuse a pattern that matches a topic of the engine, or one that is written under another name."""
    own = ProtocolTopics(plan.application_id)
    engines = (*own.protocol, own.dead_letters, *plan.repartition_topics, *plan.changelogs)
    others = dict.fromkeys(plan.outputs, "which the topology writes")
    others |= dict.fromkeys(engines, "which is the engine's")
    refuse_overlaps(plan.patterns, others, plan.application_id)


def _check_engine_topics(plan: TopologyPlan, user_topics: set[str]) -> None:
    application_id = plan.application_id
    owned = [*ProtocolTopics(application_id).protocol, *plan.repartition_topics, *plan.changelogs]
    seen = set(user_topics)
    for topic in owned:
        if topic in seen:
            raise TopologyError(
                f"application {application_id!r}: topic {topic!r} is the engine's, but the topology names it",
                fix="rename the topic, the store or the group, or choose another application id",
            )
        if not is_legal_topic(topic):
            raise TopologyError(
                f"application {application_id!r}: {topic!r} is too long for a topic's name: {len(topic)} "
                "characters, 249 allowed",
                fix="shorten the name of the store or group, or the application id",
            )
        seen.add(topic)


def has_dead_letters(plan: TopologyPlan, settings: ApplicationSettings) -> bool:
    """Return True if records may go to the dead-letter topic, by an error handler or after the last call."""
    return settings.dead_letters or plan.gives_up


def refuse_dead_letter_topic(plan: TopologyPlan, settings: ApplicationSettings) -> None:
    """Refuse a dead-letter topic, if records may go there, that the topology reads or that is a changelog.

    :raises ConfigError: the topology reads the topic, or it is a changelog.
    """
    topic = settings.dead_letter_topic
    taken = {*plan.sources, *plan.globals, *plan.changelogs}
    if has_dead_letters(plan, settings) and topic in taken:
        raise ConfigError(
            f"the dead-letter topic {topic!r} is also read by the topology, or is a changelog",
            fix="name another one by errors.dead.letter.queue.topic.name; process dead letters in an "
            "application of their own",
        )
