"""Runs a sample through the real tasks of a topology, on topics in memory.

Rule: the records come in a run's order, and each is processed and committed with all its results before the
next, as in the test driver. Cached tables therefore show every change, where a run folds many into one. The
wall clock shows the time at which the sample was taken.

An error at a node is kept there (see ``taps.py``) and the exploration goes on. An error outside the taps (a
record that its source cannot decode, a store's value that its serde cannot encode) leaves the driver
unusable; then a new driver gets the records before it again, without findings, and the record is left out.
Records that the source cannot decode, the usual case, are recognised before, at no such cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_kstreams.explore.node_records import Findings
from airflow_kstreams.explore.sample import Sample, SampleRecord
from airflow_kstreams.explore.taps import tapped
from airflow_kstreams.streams.errors import KStreamsError, RecordError
from airflow_kstreams.streams.graph.nodes import SourceNode
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing import TopologyTestDriver

#: Number of drivers that are replaced before the rest of the sample is given up; each new one repeats all
#: records before.
MOST_RESTARTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRun:
    """The outcome of a sample's run.

    :param findings: the findings at every node.
    :param notes: remarks on the sample for the user, a line each.
    """

    findings: Findings
    notes: tuple[str, ...]


def run_sample(topology: Topology, sample: Sample, application_id: str) -> SampleRun:
    """Run a sample through a topology.

    :raises ConfigError: the application id cannot name topics.
    :raises TopologyError: the topology cannot run with these partition counts.
    :raises RecordError: a processor's ``init`` failed.
    """
    return _Runner(topology, sample, application_id).run()


class _Runner:
    def __init__(self, topology: Topology, sample: Sample, application_id: str) -> None:
        self._topology = topology = topology.matched(sample.partitions)
        self._sample = sample
        self._application_id = application_id
        self._plan = topology.plan(application_id)
        self._partitions = _partition_counts(self._plan, sample)
        self._sources = {
            topic: node.name
            for node in topology.nodes
            if isinstance(node, SourceNode)
            for topic in node.topics
        } | {topic: f"global table {topic}" for topic in self._plan.globals}
        self._findings = Findings()
        for topic in self._plan.globals:
            self._findings.add_node(self._sources[topic])
        self._good: list[SampleRecord] = []
        self._restarts = 0
        self._findings.begin(None)
        self._driver = self._new_driver()
        self._findings.keep()

    def run(self) -> SampleRun:
        """Process all records, then let the processors close."""
        # A run sees the global tables of its beginning.
        ordered = [*self._sample.in_run_order()]
        records = [
            record
            for topics in (self._plan.globals, self._plan.inputs)
            for record in ordered
            if record.topic in topics
        ]
        notes = list(_notes(self._plan, self._sample))
        for number, record in enumerate(records):
            if self._restarts == MOST_RESTARTS:
                notes.append(
                    f"stopped after {MOST_RESTARTS} records that left a task unusable: the last "
                    f"{len(records) - number} records of the sample were not run"
                )
                break
            self._findings.begin(record)
            if self._decodes(record):
                self._process(record)
            else:
                self._findings.keep()
        self._close()
        return SampleRun(findings=self._findings, notes=tuple(notes))

    def _decodes(self, record: SampleRecord) -> bool:
        try:
            self._driver.decode_input(record.topic, key=record.key, value=record.value)
        except Exception as error:
            self._findings.failed(self._sources[record.topic], error)
            return False
        return True

    def _process(self, record: SampleRecord) -> None:
        try:
            _pipe(self._driver, record)
        except KStreamsError as error:
            self._findings.failed(self._node_of(error), error)
            self._findings.keep_failures_only()
            self._restart()
        else:
            self._findings.keep()
            self._good.append(record)

    def _close(self) -> None:
        self._findings.begin(None)
        try:
            self._driver.close()
        except KStreamsError as error:
            self._findings.failed(self._node_of(error), error)
        self._findings.keep()

    def _restart(self) -> None:
        """Bring a new driver to the state of the last one before the record that broke it."""
        self._restarts += 1
        self._driver = self._new_driver()
        for record in self._good:
            _pipe(self._driver, record)
        self._findings.forget()

    def _new_driver(self) -> TopologyTestDriver:
        return TopologyTestDriver(
            tapped(self._topology, self._findings),
            application_id=self._application_id,
            partitions=self._partitions,
            # With a clock of its own, two explorations of one sample would differ.
            wall_clock_ms=self._sample.taken_ms,
        )

    def _node_of(self, error: KStreamsError) -> str:
        """Return the node that an error names, or the first source where it names none of the topology."""
        name = error.node if isinstance(error, RecordError) else ""
        return name if name in self._findings.counts else next(iter(self._findings.counts))


def _pipe(driver: TopologyTestDriver, record: SampleRecord) -> None:
    driver.pipe_bytes(
        record.topic,
        key=record.key,
        value=record.value,
        timestamp_ms=record.timestamp_ms,
        partition=record.partition,
        headers=record.headers,
    )


def _partition_counts(plan: TopologyPlan, sample: Sample) -> Mapping[str, int]:
    """Return the partition counts of the topics that a user makes.

    A topic that does not exist yet has as many as the largest input, as co-partitioning requires.
    """
    known = dict(sample.partitions)
    for record in sample.records:
        known[record.topic] = max(known.get(record.topic, 1), record.partition + 1)
    largest = max((known[topic] for topic in plan.inputs if topic in known), default=1)
    topics = {*plan.sources, *plan.outputs, *plan.globals} - {*plan.repartition_topics}
    return {topic: known.get(topic, largest) for topic in topics}


def _notes(plan: TopologyPlan, sample: Sample) -> list[str]:
    counts = sample.topics()
    notes = [f"the sample has no record of {topic!r}" for topic in plan.inputs if not counts.get(topic)]
    notes += [
        f"the topology does not read {topic!r}: {count} records of the sample were left out"
        for topic, count in counts.items()
        if count and topic not in plan.inputs and topic not in plan.globals
    ]
    return notes
