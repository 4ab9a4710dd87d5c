"""Another program that keeps KIP-95 to the letter: bare keys and values as text, no headers, no transactions.

It may be killed between any two of its records. What it reads and writes beside the metadata topic it does in
transactions, so that the output tells whose fault a lost or doubled record is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition, WriterPort
from tests.contract.conftest import Contract
from tests.support.kafka.in_process import Application

Step = tuple[str, Callable[[], None]]


@dataclass(kw_only=True)
class Scene:
    """One application that two programs run: input (2 partitions) -> topic of the user's own (1) -> output.

    Its names hold underscores, dashes and digits, and begin alike.
    """

    contract: Contract
    app: str = field(init=False)
    source: str = field(init=False)
    middle: str = field(init=False)
    target: str = field(init=False)
    arrived: list[bytes] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        unique = self.contract.group
        self.app = f"{unique}_1"
        self.source = self.contract.topic(2, name=f"{unique}_0-in_1")
        self.middle = self.contract.topic(1, name=f"{unique}_0")
        self.target = self.contract.topic(1, name=f"{unique}-out")
        self.plain = self.contract.writer(None)

    @property
    def metadata(self) -> str:
        return f"{self.app}-metadata"

    @property
    def partitions(self) -> list[TopicPartition]:
        """All that is read."""
        return [*(TopicPartition(self.source, number) for number in range(2)), TopicPartition(self.middle, 0)]

    @property
    def application(self) -> Application:
        """The application as our own program runs it."""
        return Application(
            application_id=self.app,
            topology=self.topology(),
            settings={"settle.ms": 2_000},
            on=self.contract.cluster,
            clock=self.contract.clock,
        )

    def topology(self) -> Topology:
        builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
        middle = builder.stream(self.source).map_values(lambda value: value + b"m").through(self.middle)
        middle.map_values(lambda value: value + b"n").send_to(self.target)
        return builder.build()

    def arrive(self, *partitions: int) -> None:
        """Let a record arrive on each of these input partitions."""
        for partition in partitions:
            value = b"%d" % next(self._numbers)
            self.arrived.append(value)
            self.plain.produce(self.source, value, b"k", partition)
        self.plain.flush()

    def bare(self, key: str, value: int | None) -> None:
        """Write a record of the spec's format, as another program does."""
        if self.metadata not in self.contract.admin.describe_topics([self.metadata]):
            self.contract.topic(1, name=self.metadata, cleanup_policy="compact")
        self.plain.produce(self.metadata, None if value is None else b"%d" % value, key.encode(), 0)
        self.plain.flush()

    def ends(self) -> dict[int, int]:
        """The ends of the input partitions."""
        source = self.partitions[:2]
        ends = self.contract.admin.end_offsets(source, isolation="read_committed")
        return {tp.partition: ends[tp] for tp in source}

    def settled_end(self, topic: str) -> int:
        """Where partition 0 of a topic ends, once the markers of all transactions are there."""
        tp = TopicPartition(topic, 0)
        ends: list[int] = []

        def settled() -> bool:
            ends[:] = self.contract.ends(tp)
            return ends[0] == ends[1]

        self.contract.until(settled, f"{tp} to be decided")
        return ends[0]

    def results(self) -> list[bytes | None]:
        """The committed output, sorted."""
        target = TopicPartition(self.target, 0)
        return sorted(self.contract.values(target, self.contract.ends(target)[1]))

    def last_stops(self) -> dict[int, int]:
        """The stops of the run that our ledger says finished last."""
        ledger = read_ledger(self.contract.cluster, self.app, clock=self.contract.clock)
        last = ledger.last()
        assert last is not None
        return {part.partition: part.stop_offset for part in ledger.detailed(last).inputs}

    def live_keys(self) -> set[str]:
        """The metadata topic's keys that hold a value."""
        if self.metadata not in self.contract.admin.describe_topics([self.metadata]):
            return set()
        found = self.metadata_records().items()
        return {key.decode() for key, (value, _) in found if value is not None}

    def metadata_records(self) -> dict[bytes, tuple[bytes | None, bool]]:
        """The metadata topic's last record of each key: its value, and whether it carries headers."""
        tp = TopicPartition(self.metadata, 0)
        records, _ = self.contract.read({tp: 0}, {tp: self.contract.ends(tp)[1]}, self.contract.reader())
        return {record.key() or b"": (record.value(), bool(record.headers())) for record in records[tp]}


class ForeignProgram:
    """The other program, as it is started: it begins a run of its own, whatever the metadata topic says.

    :ivar stops: of its run that is under way, by input partition; None when none is.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._frozen: dict[int, int] = {}
        self._writer: WriterPort | None = None
        self.stops: dict[int, int] | None = None

    def steps(self) -> list[Step]:
        """Return what it does, step by step: tombstones if there was a run before, and then its own run."""
        live = self._scene.live_keys()
        app = self._scene.app
        keys = sorted(live - {app}) + sorted(live & {app})  # the marker comes last
        return [*((f"tombstone of {key}", partial(self._tombstone, key)) for key in keys), *self._run()]

    def _run(self) -> list[Step]:
        scene = self._scene
        steps: list[Step] = [(f"stop offset of {number}", partial(self._stop, number)) for number in range(2)]
        steps.append(("completed marker", partial(self._mark, 0)))
        for number in range(2):
            key = f"{scene.source}_{number}-{scene.middle}_0"
            steps.append((f"input {number}", partial(self._process_input, number)))
            steps.append((f"notification {key}", partial(self._notify, key)))
        steps.append(("middle", self._process_middle))
        steps.append(("finished marker", partial(self._mark, 1)))
        return steps

    def _notify(self, key: str) -> None:
        self._scene.bare(key, self._scene.settled_end(self._scene.middle))

    def _tombstone(self, key: str) -> None:
        self._scene.bare(key, None)

    def _stop(self, number: int) -> None:
        self._frozen[number] = self._scene.ends()[number]
        self._scene.bare(f"{self._scene.source}_{number}", self._frozen[number])

    def _mark(self, value: int) -> None:
        self._scene.bare(self._scene.app, value)
        self.stops = dict(self._frozen) if value == 0 else None

    def _process_input(self, number: int) -> None:
        self._copy(TopicPartition(self._scene.source, number), self._frozen[number], self._scene.middle, b"m")

    def _process_middle(self) -> None:
        middle = self._scene.middle
        self._copy(TopicPartition(middle, 0), self._scene.settled_end(middle), self._scene.target, b"n")

    def _copy(self, tp: TopicPartition, stop: int, topic: str, mark: bytes) -> None:
        """Copy what is left of a partition up to its stop."""
        contract = self._scene.contract
        if self._writer is None:
            self._writer = contract.writer(f"{self._scene.app}-foreign")
        reader = contract.reader(group=self._scene.app)
        committed = reader.committed([tp])
        start = committed[tp].offset if tp in committed else 0
        records, _ = contract.read({tp: start}, {tp: stop}, reader)
        self._writer.begin()
        for record in records[tp]:
            self._writer.produce(topic, (record.value() or b"") + mark, record.key(), 0)
        self._writer.send_offsets({tp: CommittedOffset(stop)}, reader)
        self._writer.commit()
