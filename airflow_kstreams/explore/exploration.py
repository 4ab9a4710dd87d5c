"""Starts an exploration and shows its findings; opens the stores of an application that runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_kstreams.batch.inspect.state import StoredState
from airflow_kstreams.explore.difference import Difference, Result, difference, reduced
from airflow_kstreams.explore.node_records import NodeCounts, RecordFailure
from airflow_kstreams.explore.record_table import ROWS, RecordTable
from airflow_kstreams.explore.sample import Sample
from airflow_kstreams.explore.sample_run import SampleRun
from airflow_kstreams.explore.sampling import Last, take_sample
from airflow_kstreams.explore.tables import Progress, Table, shown_progress
from airflow_kstreams.streams.errors import ConfigError, TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.record_counts import shown_node
from airflow_kstreams.streams.graph.nodes import (
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    purpose_of,
    table_of,
    tables_of,
)
from airflow_kstreams.streams.settings import ApplicationSettings, nearest
from airflow_kstreams.streams.table_plan import table_label
from airflow_kstreams.streams.topology.topology import Topology

#: Names internal topics unless the caller does; nothing of that name is made.
APPLICATION_ID = "explore"
#: ``client.timeout.ms`` while a user waits at a terminal.
_TIMEOUT_MS = 4_000


def explore(
    topology: Topology,
    bootstrap: str | Mapping[str, object] | None = None,
    last: Last = 1000,
    *,
    sample: Sample | str | Path | None = None,
    application_id: str = APPLICATION_ID,
    progress: bool = True,
) -> Exploration:
    """Run a sample of real input through a topology and return the records at every node.

    Nothing is written to Kafka: no record, no offset, no topic, no group.

    :param bootstrap: Kafka's address, ``host:port[,host:port]``, or client settings by librdkafka's names;
        only needed to take a new sample.
    :param last: number of records of each input topic, the last ones over all its partitions; or numbers by
        topic, with 1000 for the others.
    :param sample: a sample to run on instead of taking one; or a file, which is read if it exists and else
        written, so that the next exploration runs on the same records.
    :param application_id: names internal topics, and the group of the client.
    :param progress: whether to show the progress of reading the sample.
    :raises ConfigError: there is neither a sample nor an address, or a setting, number or file is wrong.
    :raises TopologyError: the topology cannot run, e.g. topics that are joined differ in their partitions.
    :raises KafkaClientError: the sample could not be read.
    :raises RecordError: a processor's ``init`` failed; later errors are findings.

    >>> from airflow_kstreams.explore import Sample, SampleRecord
    >>> from airflow_kstreams.streams import KStreamBuilder, serdes
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    >>> builder.stream("numbers").map_values(lambda value: 2 * value).send_to("doubled")
    >>> record = SampleRecord(topic="numbers", offset=7, key=b"a", value=b"21", timestamp_ms=100)
    >>> seen = explore(builder.build(), sample=Sample(records=(record,)))
    >>> [(one.key, one.value, one.origin) for one in seen.outputs("doubled")]
    [('a', 42, 'numbers-0@7')]
    """
    if not isinstance(sample, Sample):
        sample = _sample(
            topology, bootstrap, last, file=sample, application_id=application_id, progress=progress
        )
    return Exploration(topology, sample, application_id=application_id)


def _sample(
    topology: Topology,
    bootstrap: str | Mapping[str, object] | None,
    last: Last,
    *,
    file: str | Path | None,
    application_id: str,
    progress: bool,
) -> Sample:
    if file is not None and Path(file).exists():
        return Sample.load(file)
    if bootstrap is None:
        missing = "" if file is None else f": {str(file)!r} does not exist"
        raise ConfigError(
            f"there is no sample to explore{missing}, and no Kafka to take one from",
            fix="give the address of a Kafka broker, host:port, or a sample",
        )
    settings = ApplicationSettings.parse(application_id, {"client.timeout.ms": _TIMEOUT_MS})
    cluster = _cluster(bootstrap, settings)
    with shown_progress("reading the sample", show=progress) as show:
        taken = take_sample(cluster, topology.plan(application_id), last, show)
    if file is not None:
        taken.save(file)
    return taken


def _cluster(bootstrap: str | Mapping[str, object], settings: ApplicationSettings) -> KafkaCluster:
    # Imported here: a stored sample is explored without a Kafka client.
    from airflow_kstreams.kafka.cluster import KafkaCluster

    config = {"bootstrap.servers": bootstrap} if isinstance(bootstrap, str) else bootstrap
    return KafkaCluster(config, settings=settings, in_child=True)


def stored_state(
    topology: Topology,
    store: str,
    bootstrap: str | Mapping[str, object],
    *,
    application_id: str,
    progress: Progress | None = None,
) -> StoredState:
    """Open a store of an application as its last finished run left it; while a run is under way, as of the
    last commit of each of its tasks, which ``as_of`` says.

    ::

        with stored_state(topology(), "totals", "localhost:9092", application_id="orders") as totals:
            totals.get("ann")
            [(entry.key, entry.value) for entry in totals.all()]
            print(totals.as_of())  # as of run scheduled__2026-01-01T00:00:00, finished ...

    Only the store's changelog is read, and nothing is written to Kafka.

    :param topology: the application file's, which holds the serdes.
    :param store: name of the store.
    :param bootstrap: Kafka's address, ``host:port[,host:port]``, or client settings by librdkafka's names.
    :param application_id: the application.
    :param progress: called with the number of offsets read so far, and of all that are to be read.
    :raises ConfigError: there is no such store, or no run has written it yet; or a setting is wrong.
    :raises StateStoreError: the runs have written the store with other serdes, or as another kind of store.
    :raises DataLossError: a part of the changelog was deleted.
    :raises KafkaClientError: the broker does not answer, or does not let this user read what is needed.
    """
    cluster = _cluster(bootstrap, ApplicationSettings.parse(application_id, {}))
    return StoredState(cluster, topology, application_id, store, progress=progress)


if TYPE_CHECKING:
    from airflow_kstreams.kafka.cluster import KafkaCluster


class Exploration:
    """The records of a sample at every node of a topology.

    ``exploration["NODE"]`` is the table of the records that a node forwarded, or a sink wrote. Shown by
    itself, the exploration is the table of counts.

    :param topology: the topology that the sample runs through, at once.
    :param sample: the input records.
    :param application_id: names internal topics.
    """

    def __init__(self, topology: Topology, sample: Sample, *, application_id: str = APPLICATION_ID) -> None:
        topology = topology.matched(sample.partitions)
        ran = SampleRun(topology, sample, application_id)
        self._topology = topology
        self._application_id = application_id
        self._findings = ran.findings
        #: The sample that it ran on.
        self.sample = sample
        #: Remarks on the sample, a line each.
        self.notes: tuple[str, ...] = tuple(ran.notes)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes, parents before children."""
        return tuple(node.name for node in self._topology.nodes)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the topology writes, and those that its processors sent to by name."""
        written = (node.topic for node in self._topology.nodes if isinstance(node, SinkNode))
        rows = set(map(table_label, self.tables))
        return tuple(dict.fromkeys([*written, *(name for name in self._findings.topics if name not in rows)]))

    @property
    def output_topics(self) -> tuple[str, ...]:
        """The topics that the topology writes and does not read again."""
        read = {
            topic for node in self._topology.nodes if isinstance(node, SourceNode) for topic in node.topics
        }
        return tuple(topic for topic in self.topics if topic not in read)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables of a lakehouse that the topology writes to, by the names of their sinks."""
        return tuple(tables_of(self._topology.nodes))

    @property
    def errors(self) -> tuple[RecordFailure, ...]:
        """The errors, record by record; each record was left out at the node that failed."""
        return tuple(self._findings.failures)

    def counts(self, node: str) -> NodeCounts:
        """Return the numbers of records that reached, left, were dropped and failed at a node.

        :raises TopologyError: there is no such node.
        """
        return self._findings.counts[self._known(node)]

    def purpose(self, node: str) -> str:
        """Return what a node does, and your line that made it: ``filter at orders.py:17``.

        :raises TopologyError: there is no such node.
        """
        return self._topology.purposes[self._known(node)]

    def at(self, node: str) -> RecordTable:
        """Return the records that a node forwarded; those that a sink wrote.

        :raises TopologyError: there is no such node.
        """
        return RecordTable(self._known(node), self._findings.records[node], shown_as=self._named(node))

    __getitem__ = at

    def __contains__(self, node: object) -> bool:
        return node in self._findings.records

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes)

    def outputs(self, topic: str) -> RecordTable:
        """Return the records that the topology would have written to a topic, by its name in the topology.

        :raises TopologyError: the topology does not write the topic.
        """
        if topic not in self.topics:
            raise TopologyError(
                f"the topology does not write the topic {topic!r}",
                fix=f"topics it writes: {', '.join(self.topics) or 'none'}",
            )
        return RecordTable(topic, self._findings.topics.get(topic, []))

    def rows(self, table: str) -> RecordTable:
        """Return the rows that the topology would have written to a table, each as a record with the key of
        the record that made it; the value is None where a row is deleted.

        :param table: name of the table.
        :raises TopologyError: the topology does not write to the table.
        """
        if table not in self.tables:
            raise TopologyError(
                f"the topology does not write to the table {table!r}",
                fix=f"tables it writes to: {', '.join(self.tables) or 'none'}",
            )
        return RecordTable(table_label(table), self._findings.topics.get(table_label(table), []))

    def sinks(self, topics: Collection[str]) -> tuple[str, ...]:
        """Return the names of the sinks that write these topics, and of those that write to tables."""
        nodes = self._topology.nodes
        return tuple(
            node.name
            for node in nodes
            if table_of(node) is not None or (isinstance(node, SinkNode) and node.topic in topics)
        )

    def summary(self) -> Table:
        """Return the table of counts."""
        read = ", ".join(f"{count:,} of {topic}" for topic, count in self.sample.topics().items() if count)
        return Table(
            title=f"sample: {read or 'no record'}",
            columns=("node", "does", "in", "out", "dropped", "failed"),
            numbers=4,
            rows=[(node.name, _does(node), *self._numbers(node.name)) for node in self._topology.nodes],
        )

    def failures(self, rows: int = ROWS) -> Table:
        """Return the table of errors."""
        shown = self.errors[: max(rows, 0)]
        return Table(
            title=f"{len(self.errors):,} failed, each left out at that node",
            columns=("input record", "node", "error"),
            rows=[
                (
                    one.origin,
                    self._named(one.node),
                    f"{type(one.error).__name__}: {' '.join(str(one.error).split())}",
                )
                for one in shown
            ],
            more=len(self.errors) - len(shown),
        )

    def rerun(self, topology: Topology) -> Exploration:
        """Run the same sample through another topology, e.g. an edited one."""
        return Exploration(topology, self.sample, application_id=self._application_id)

    def result(self) -> Result:
        """Return the findings in a form that can be saved and compared with later."""
        return reduced(self.sample.digest(), {node: self._findings.records[node] for node in self.nodes})

    def diff(self, before: Exploration | Result) -> Difference:
        """Return the difference at each node to an earlier exploration of the same sample.

        :param before: the earlier exploration, or its saved result.
        :raises ConfigError: the earlier one was of another sample.
        """
        before = before if isinstance(before, Result) else before.result()
        return difference(before, self.result(), self._topology.purposes)

    def __str__(self) -> str:
        parts = [str(self.summary()), *self.notes]
        return "\n".join([*parts, str(self.failures())] if self.errors else parts)

    def __repr__(self) -> str:
        records, nodes = counted(len(self.sample.records), "record"), counted(len(self.nodes), "node")
        return f"<Exploration of {records} at {nodes}>"

    def _repr_html_(self) -> str:
        tables = [self.summary(), *([self.failures()] if self.errors else [])]
        notes = Table(title="notes", columns=("",), rows=[(note,) for note in self.notes])
        return "".join(table._repr_html_() for table in ([*tables, notes] if self.notes else tables))

    def _named(self, node: str) -> str:
        return shown_node(node, self._topology.purposes)

    def _numbers(self, node: str) -> Iterator[str]:
        counts = self._findings.counts[node]
        yield f"{counts.records_in:,}"
        yield f"{counts.records_out:,}"
        yield f"{counts.dropped:,}" if counts.dropped else ""
        yield f"{counts.failed:,}" if counts.failed else ""

    def _known(self, node: str) -> str:
        if node not in self._findings.records:
            raise TopologyError(
                f"the topology has no node {node!r}; {nearest(node, list(self.nodes))}",
                fix=f"nodes of this topology: {', '.join(self.nodes)}",
            )
        return node


def _does(node: Node) -> str:
    at = "" if node.site is None else f" at {node.site.short}"
    match node:
        case SourceNode():
            return f"reads {', '.join(node.topics)}{at}"
        case ProcessorNode():
            table = table_of(node)
            return purpose_of(node) if table is None else f"writes to table {table.name}{at}"
        case SinkNode():
            return f"writes {node.topic}{at}"
