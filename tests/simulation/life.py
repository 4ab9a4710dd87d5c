"""The life of an application: its code changes, it runs in batches and continuously, other people commit
offsets of its group, delete records and topics, damage its files, and answer its errors with the commands
that they print; and processes die at port calls.

Unlike a seed's other runs nothing happens at the same time. A life is drawn step by step from a random source
of its own. After each step the oracle (``life_lines.py``) says what each line may have given by now, and
after a run that read everything what it must have.
"""

from __future__ import annotations

import logging
import re
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.batch.reset.acceptance import partitions_in
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.reset.scenario import TO_EARLIEST
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import ConfigError, DataLossError, KStreamsError, TopologyError
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.streams.naming.topic_names import REPARTITION_ENDING
from airflow_kstreams.streams.ports import ClusterPort, CommittedOffset, TopicPartition
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka, ManualClock
from airflow_kstreams.testing.in_memory_kafka import LogRecord
from tests.simulation.crash_points import Died, Mortal, one_after_the_other
from tests.simulation.expectations import ViolationError
from tests.simulation.life_lines import (
    APP,
    BRANCHED,
    FAILING,
    HISTORIES_MS,
    KEYS,
    KINDS,
    LETTERS,
    OLD_MS,
    SHARED,
    SIZE_MS,
    SIZES_MS,
    TOPICS,
    Book,
    Line,
    Met,
    Span,
    Told,
    Version,
    decoded,
)
from tests.simulation.sometimes import sometimes
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_at, accept_in_memory, other_way, printed_commands
from tests.support.topology.crashing_files import let_go_of_locks

_PARTITIONS = 2
_LEASE_SECONDS = 10
_MOST_TRIES = 15
_PIN = re.compile(r'(?:store|name)="([^"]+)"')
_MOVED = re.compile(r"--to-offset (\d+) instead leaves them out")

#: Share of the seeds that have one.
SHARE = 0.34
#: What is done with a view of the cluster, under an order.
_Body = Callable[[ClusterPort, tuple[int, int]], None]


@dataclass(slots=True)
class Life:
    """One life.

    :param draw: decides everything.
    :param disk: folder for local files; empty for state in memory.
    :param trace: takes one line for each step.
    :ivar version: the code as it is deployed.
    :ivar former: the code with which the last run was made.
    :ivar met: all that was written to inputs.
    :ivar read_to: where the oracle stands in each input.
    :ivar books: of each line that there was, by its state.
    :ivar told: likewise, what it has given.
    :ivar known: likewise, the line.
    :ivar away: lines with state that passed records by while they were taken out.
    :ivar seen: partitions that a run has read.
    :ivar doubtful: what may make a run refuse to begin.
    :ivar letters: numbers in dead letters that were not replayed.
    :ivar came_from: the topic that each number was written to.
    :ivar brought: numbers that a replay has brought back between two subtopologies.
    :ivar times: the newest time in each partition.
    :ivar replaced: partitions in which other records took the offsets of those that were read.
    :ivar warnings: those of the runs' plans.
    :ivar unknown: partitions whose committed offset does not say which record lies before it.
    """

    draw: Random
    disk: str = ""
    trace: Callable[[str], None] = lambda line: None
    kafka: InMemoryKafka = field(init=False)
    version: Version = field(init=False)
    former: Version | None = None
    met: dict[TopicPartition, list[Met]] = field(default_factory=dict)
    read_to: dict[TopicPartition, int] = field(default_factory=dict)
    books: dict[str, Book] = field(default_factory=dict)
    told: dict[str, Told] = field(default_factory=dict)
    known: dict[str, Line] = field(default_factory=dict)
    heard: Counter[TopicPartition] = field(default_factory=Counter)
    away: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    letters: Counter[int] = field(default_factory=Counter)
    came_from: dict[int, str] = field(default_factory=dict)
    brought: Counter[int] = field(default_factory=Counter)
    times: dict[TopicPartition, Span] = field(default_factory=dict)
    replaced: set[TopicPartition] = field(default_factory=set)
    unknown: set[TopicPartition] = field(default_factory=set)
    settings: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    seen: set[TopicPartition] = field(default_factory=set)
    half: bool = False
    endless: bool = False
    numbers: int = 0
    runs: int = 0
    patterned: int = 0

    def __post_init__(self) -> None:
        random = Random(self.draw.random())
        self.kafka = InMemoryKafka(clock=ManualClock(now_ms=1_700_000_000_000), random=random)
        for topic in (*TOPICS, FAILING):
            self._create(topic)
        for topic in (LETTERS, *(line.out for line in _LINES.values())):
            self.kafka.create_topic(topic, partitions=_PARTITIONS)
        lines = [self._line("copy", FAILING)] if self.draw.random() < 0.6 else []
        if self.draw.random() < 0.4:
            lines.append(self._line("pattern", "p"))
            self._add_topic()
        if self.draw.random() < 0.4:
            lines.append(self._line("branched", self.draw.choice(BRANCHED)))
        for _ in range(self.draw.randint(1, 3)):
            lines = self._with_another(lines)
        self.version = Version(lines=tuple(lines))
        self._change_settings()

    # == the story

    def live(self) -> None:
        """Live it.

        :raises ViolationError: something came that must not have, is missing, or was refused for no reason.
        """
        with one_after_the_other():
            self._produce()
            self._run()
            for _ in range(self.draw.randint(5, 12)):
                self._produce()
                step = self._drawn_step()
                self.trace(f"== {step.__name__.strip('_')}")
                step()
            self._produce()
            self._run()

    def _drawn_step(self) -> Callable[[], None]:
        steps: list[tuple[int, Callable[[], None]]] = [
            (6, self._run),
            (3, self._run_continuously),
            (2, self._leave_half),
            (6, self._deploy),
            (1, self._change_settings),
            (4, self._replay),
            (2, self._replay_after_deployment),
            (1, self._reset),
            (2, self._move_offsets),
            (1, self._expire_offsets),
            (2, self._retain),
            (1, self._lose),
            (3, self._cut),
            (1, self._make_anew),
            (1, self._backfill),
            (1, self._compact),
        ]
        if any(line.kind == "pattern" for line in self.version.lines):
            steps += [(2, self._add_topic), (3, self._delete_topic)]
        if self.disk:
            steps.append((8, self._damage))
        weights, found = zip(*steps, strict=True)
        step: Callable[[], None] = self.draw.choices(found, weights)[0]
        return step

    # == inputs

    def _create(self, topic: str) -> None:
        self.kafka.create_topic(topic, partitions=_PARTITIONS)
        for tp in self.kafka.partitions(topic):
            self.met[tp], self.read_to[tp] = [], 0

    def _produce(self) -> None:
        topics = sorted({tp.topic for tp in self.met})
        for _ in range(self.draw.choice((0, 2, 4, 8))):
            self._write(self.draw.choice(topics), self.draw.choice(KEYS))

    def _write(self, topic: str, key: str) -> None:
        """Write a record, mostly of now, some of a little before, and a few of 1970."""
        self.numbers += 1
        self.kafka.clock.sleep(self.draw.choice((0.001, 0.02, 0.09, 0.3)))
        tp = TopicPartition(topic, KEYS.index(key) % _PARTITIONS)
        time_ms = self.kafka.clock.now_ms()
        if self.draw.random() < 0.2:
            time_ms -= self.draw.choice((40, 120, 300))
        elif self.draw.random() < 0.04:
            time_ms = 1 + self.numbers
        value = b'{"n": %d}' % self.numbers
        offset = self.kafka.append(topic, value, key.encode(), partition=tp.partition, timestamp_ms=time_ms)
        self.met[tp].append(Met(tp, offset, key, self.numbers, time_ms))
        self.came_from[self.numbers] = topic

    def _ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        with closing(self.kafka.admin()) as admin:
            return dict(admin.end_offsets([*tps], isolation="read_committed"))

    def _starts(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        with closing(self.kafka.admin()) as admin:
            return dict(admin.start_offsets([*tps]))

    def _read(self, lines: Iterable[Line] | None = None) -> list[TopicPartition]:
        """Return the partitions that lines read."""
        lines = self.version.lines if lines is None else lines
        return sorted(tp for tp in self.met if any(line.reads(tp.topic) for line in lines))

    # == runs

    def _application(self, cluster: ClusterPort | None = None) -> Application:
        return Application(
            application_id=APP,
            topology=self.version.topology(self._storage),
            on=cluster or self.kafka,
            launching=self.kafka,
            clock=self.kafka.clock,
            settings=self.settings,
        )

    @property
    def _storage(self) -> Storage:
        return "rocksdb" if self.disk else "memory"

    def _run(self) -> None:
        self.runs += 1
        run_id, moved = f"run-{self.runs}", self._moved()
        self._until_through(lambda cluster, order: self._batch(run_id, cluster, order))
        self.half = self.endless = False
        self._take_all()
        self._hear(moved=moved)

    def _batch(self, run_id: str, cluster: ClusterPort, order: tuple[int, int]) -> None:
        if read_ledger(self.kafka, APP, clock=self.kafka.clock).is_finished(run_id):
            return
        app = self._application(cluster)
        while True:
            slice_ = app.begin(run_id, order)
            self.warnings += slice_.plan.warnings
            app.tasks(slice_)
            app.finish(slice_.run_id)
            if slice_.run_id == run_id:
                return
            sometimes("a run that was left in the middle was finished by the next")

    def _leave_half(self) -> None:
        """Begin a run and process some of its tasks."""
        self.runs += 1

        def begin(cluster: ClusterPort, order: tuple[int, int]) -> None:
            app = self._application()
            slice_ = app.begin(f"run-{self.runs}", order)
            tasks = slice_.plan.topology.subtopologies if not slice_.plan.empty else ()
            app.tasks(slice_, [sub.id for sub in tasks[: self.draw.randint(0, len(tasks))]])

        self._until_through(begin, dies=False)
        self.half = True
        self._take_committed()
        self._hear(partly=True)

    def _run_continuously(self) -> None:
        self.runs += 1
        app = SwitchingApplication(
            topology=self.version.topology(self._storage),
            cluster=self.kafka,
            clock=self.kafka.clock,
            application_id=APP,
            settings=self.settings,
        )
        begun: list[Any] = []

        def begin(cluster: ClusterPort, order: tuple[int, int]) -> None:
            app.topology = self.version.topology(self._storage)
            begun.append(app.run_continuously(f"run-{self.runs}", order))

        self._until_through(begin, dies=False)
        self.half = False
        running = begun[-1]
        for _ in range(self.draw.randint(0, 6)):
            self._produce()
            running.rounds(self.draw.randint(0, 3))
            self.kafka.clock.sleep(self.draw.choice((0.0, 0.2)))
        if self.draw.random() < 0.5:
            running.stop()
            sometimes("a continuous run stopped, and another run followed")
        else:
            self._wait()
            self._free_files()
            sometimes("a continuous run was killed, and another run followed")
        self.endless = True
        self._take_committed()
        self._hear(partly=True)

    def _until_through(
        self, body: Callable[[ClusterPort, tuple[int, int]], None], *, dies: bool = True
    ) -> None:
        """Do something, again and again while its process dies or is refused; answer what is printed."""
        for number in range(1, _MOST_TRIES):
            cluster: ClusterPort = self.kafka
            if dies and number < 4 and self.draw.random() < 0.3:
                mortal = Mortal(self.draw.randint(1, 120), takes_effect=self.draw.random() < 0.5)
                cluster = FaultyCluster(self.kafka, mortal)
            try:
                body(cluster, (0, number))
            except Died:
                sometimes("a process of an application with a past died")
                self._free_files()
                self._wait()
            except KStreamsError as error:
                self.trace(f"   {type(error).__name__}: {error}")
                if not error.is_retriable:
                    self._answer(error)
                self._wait()
            else:
                self._refuse_silent_beginnings()
                if passed := self.replaced.intersection(self._read()):
                    raise ViolationError(f"{passed}: other records took offsets that were read, in silence")
                self.former = self.version
                self.doubtful.clear()
                return
        raise ViolationError(f"not through after {_MOST_TRIES} tries")

    def _refuse_silent_beginnings(self) -> None:
        """Refuse that a line does not go on with its state while that lies under another name."""
        now = {line.number: line for line in self.version.lines}
        for line in self.former.lines if self.former else ():
            state = self._state(line)
            if line.number in now and self._state(now[line.number]) != state:
                book = self.books.get(state, Book())
                if book.lists or book.windows:
                    raise ViolationError(f"{line.out} leaves {state} in silence")

    def _wait(self) -> None:
        self.kafka.clock.sleep(_LEASE_SECONDS + 1)

    def _free_files(self) -> None:
        if self.disk:
            let_go_of_locks(Path(self.disk))

    # == refusals

    def _answer(self, error: KStreamsError) -> None:
        """Do what an error says.

        :raises ViolationError: there was no reason for it, or it says nothing.
        """
        if not self.doubtful:
            raise ViolationError(f"refused for no reason: {error}") from error
        commands = printed_commands(error.fix)
        if self.endless and isinstance(error, DataLossError) and "--accept" in error.fix:
            self._accept_where_reading_ended(error)
            return
        ways: list[Callable[[], None]] = []
        if self.former not in (None, self.version):
            ways.append(self._go_back)
        if commands and "--unread-topics" not in error.fix:
            ways.append(lambda: self._execute(error))
            if "in place of --internal-topics" in error.fix:
                ways.append(lambda: self._execute(TopologyError("", fix=other_way(error))))
        if isinstance(error, DataLossError) and _MOVED.search(error.fix):
            ways.append(lambda: self._execute(_leaving_out(error)))
        pins = _PIN.findall(error.fix)
        if pins and "renamed" in self.doubtful:
            ways += [lambda: self._pin(pins)] * 2
        if not ways:
            raise ViolationError(f"an error says no way out: {error}") from error
        self.draw.choice(ways)()

    def _go_back(self) -> None:
        assert self.former is not None
        sometimes("a deployment was taken back because it was refused")
        self.trace("   back")
        self.version = self.former

    def _pin(self, names: Sequence[str]) -> None:
        """Write the name that a store has where the error says."""
        assert self.former is not None
        known = {line.number: line for line in self.former.lines}
        found = []
        for line in self.version.lines:
            was = known.get(line.number, line)
            name = next((n for n in names if n in self._state(was)), "")
            found.append(replace(line, store=name) if name and was.store != line.store else line)
        sometimes("state went on under the name that an error printed")
        self.trace(f"   pin {names}")
        self.version = replace(self.version, lines=tuple(found))

    def _execute(self, error: KStreamsError) -> None:
        """Execute what an error prints, and do the same to the oracle."""
        for command in accept_in_memory(error, self.kafka):
            self.trace(f"   {' '.join(command)}")
            self._account_for(command)
        sometimes("a printed command was followed to its result")

    def _accept_where_reading_ended(self, error: KStreamsError) -> None:
        """Go on at the offset that a person knows, where the error says that otherwise records come twice."""
        known = dict(self._starts(self.read_to))
        for command in printed_commands(error.fix):
            if "--accept" not in command:
                self._execute(KStreamsError("", fix=shlex.join(command)))
                continue
            for tp in partitions_in([command[command.index("--accept") + 1]]):
                self.read_to[tp] = min(max(self.read_to[tp], known[tp]), self._ends([tp])[tp])
                self.replaced.discard(tp)
                accept_at(self.kafka, {tp: self.read_to[tp]}, APP)
                self.trace(f"   {tp} at {self.read_to[tp]}, where reading ended")
        sometimes("reading went on where a person knew that it had ended")

    def _account_for(self, command: Sequence[str]) -> None:
        options: dict[str, list[str]] = {}
        for word in command[2:]:
            if word.startswith("--"):
                given = options.setdefault(word, [])
            else:
                given += word.split(",")
        if command[0] != "airflow-kstreams":
            return
        for tp in partitions_in([",".join(options.get("--accept", ()))] if "--accept" in options else None):
            self.replaced.discard(tp)
            if "--to-offset" in options:
                self.read_to[tp] = int(options["--to-offset"][0])
            elif "--to-latest" in options:
                self.read_to[tp] = self._ends([tp])[tp]
            else:
                self.read_to[tp] = self._starts([tp])[tp]
        for changelog in options.get("--internal-topics", ()):
            self._forget(changelog)
            self._expect_what_waits_between(changelog, options["--internal-topics"])
        if "--input-topics" in options:
            self._start_over(options["--input-topics"])

    def _forget(self, state: str) -> None:
        """Take it that a line begins empty."""
        self.books[state], self.told[state] = Book(), Told()
        self.away.discard(state)

    def _expect_what_waits_between(self, changelog: str, deleted: Container[str]) -> None:
        """Take it that a line's empty store gets what waits in its repartition topic, where that stays."""
        topic = f"{changelog.removesuffix('-changelog')}-repartition"
        if topic in deleted or topic not in self.kafka.topics():
            return
        with closing(self.kafka.reader(group_id=APP)) as reader:
            read = reader.committed(self.kafka.partitions(topic))
        for record in self.kafka.records(topic):
            at = read.get(TopicPartition(topic, record.partition()))
            if at is None or record.offset() >= at.offset:
                key = (record.key() or b"").decode()
                self.books[changelog].lists.setdefault(key, []).append(decoded(record.value())["n"])

    def _start_over(self, topics: Iterable[str]) -> None:
        """Take it that all state is gone, and topics are read again."""
        again = [tp for tp in self.met if tp.topic in topics]
        for tp, start in self._starts(again).items():
            self.read_to[tp] = start
            self._may_begin_time_anew(tp)
        self.replaced.difference_update(again)
        self.brought.clear()
        for state, line in self.known.items():
            if line.kind not in ("copy", "pattern", "branched") or any(line.reads(topic) for topic in topics):
                self._forget(state)

    def _may_begin_time_anew(self, tp: TopicPartition) -> None:
        """Take it that the time of a partition goes on or not: both are right. Where it does not, a
        window that was given may come again, with what is read from now on.
        """
        self.times[tp] = Span(-1, self.times.get(tp, Span()).high)
        for state, book in self.books.items():
            if self.known[state].reads(tp.topic) and tp.partition in book.closed:
                book.closed[tp.partition] = Span(-1, book.closed[tp.partition].high)
                told = self.told.get(state, Told()).windows
                for given in [window for window in told if book.partitions[window[0]] == tp.partition]:
                    told.pop(given)
                    book.windows.pop(given, None)

    def _state(self, line: Line) -> str:
        """Return by what the state of a line is known: its changelog, or its output if it has none."""
        named = Line(number=line.number, kind=line.kind, topic=line.topic, store=line.store)
        plan = Version(lines=(named,)).topology(self._storage).plan(APP)
        return next(iter(plan.changelogs), line.out)

    # == what came

    def _moved(self) -> set[TopicPartition]:
        """Return the partitions with new records."""
        return {tp for tp in self._read() if any(one.offset >= self.read_to[tp] for one in self.met[tp])}

    def _take_committed(self) -> None:
        """Give what a run has read so far to the lines of this version."""
        with closing(self.kafka.reader(group_id=APP)) as reader:
            committed = reader.committed(self._read())
        self._take({tp: at.offset for tp, at in committed.items()}, partly=True)

    def _take_all(self) -> None:
        """Give all that there is to read to the lines of this version."""
        self._take(self._ends(self._read()))
        self._take_brought(self.books)
        here = {line.topic for line in self.version.lines if line.kind == "branched"}
        self.brought = Counter(
            {n: count for n, count in self.brought.items() if self.came_from[n] not in here}
        )
        if self.brought:
            raise ViolationError(
                f"{dict(self.brought)} came back to {SHARED}, and code without their branch ran"
            )

    def _take_brought(self, books: dict[str, Book]) -> None:
        """Give what replays have brought back between two subtopologies to its own line."""
        for line in self.version.lines:
            if line.kind == "branched":
                book = books.setdefault(self._state(line), Book())
                book.branched.update(
                    {n: count for n, count in self.brought.items() if self.came_from[n] == line.topic}
                )

    def _take(self, ends: Mapping[TopicPartition, int], *, partly: bool = False) -> None:
        states = {self._state(line): line for line in self.version.lines}
        self.known |= states
        for tp, end in ends.items():
            new = [one for one in self.met[tp] if self.read_to[tp] <= one.offset < end]
            self.read_to[tp] = end
            self.seen.add(tp)
            if new:
                self.unknown.discard(tp)
            if any(self._is_new(state, line, tp) for state, line in states.items()):
                self._may_begin_time_anew(tp)
            time = self.times.get(tp, Span())
            self.times[tp] = time.after(new, partly=partly)
            for state, line in states.items():
                if line.reads(tp.topic):
                    book = self.books.setdefault(state, Book())
                    book.take(line, new, mended=self.version.mended, time=time)
                    book.close(line, tp.partition, self.times[tp])
            for state, book in self.books.items():
                held = book.lists or book.windows or (book.copied and self.known[state].kind == "history")
                if new and state not in states and self.known[state].reads(tp.topic) and held:
                    self.away.add(state)
        for state in self.away & {*states}:
            raise ViolationError(f"{state} goes on, and records passed it by")

    def _is_new(self, state: str, line: Line, tp: TopicPartition) -> bool:
        """Whether a line is the first to need the time of a partition: nothing was given by it yet."""
        book = self.books.get(state, Book())
        return line.kind == "window" and line.reads(tp.topic) and tp.partition not in book.closed

    def _hear(self, *, partly: bool = False, moved: Iterable[TopicPartition] = ()) -> None:
        """Compare what came since with what may have come, and must have."""
        books = self.books
        states = {line.out: (state, line) for state, line in self.known.items()}
        states |= {line.out: (self._state(line), line) for line in self.version.lines}
        if partly:
            books = deepcopy(self.books)
            for tp in self._read():
                new = [one for one in self.met[tp] if one.offset >= self.read_to[tp]]
                for line in self.version.lines:
                    if line.reads(tp.topic):
                        book = books.setdefault(self._state(line), Book())
                        time = self.times.get(tp, Span())
                        if self._is_new(self._state(line), line, tp):
                            time = Span(-1, time.high)
                        book.take(line, new, mended=self.version.mended, time=time)
                        book.close(line, tp.partition, time.after(new, partly=True))
            self._take_brought(books)
        for out, (state, line) in states.items():
            told, book = self.told.setdefault(state, Told()), books.get(state, Book())
            given = [((r.key() or b"").decode(), decoded(r.value())) for r in self._news(out)]
            told.hear(line, given, book)
        self._hear_letters(books, partly=partly)
        for state, line in states.values():
            if not partly and line in self.version.lines:
                partitions = {tp.partition for tp in moved if line.reads(tp.topic)}
                self.told[state].refuse_missing(line, books.get(state, Book()), partitions)

    def _news(self, topic: str) -> list[LogRecord]:
        """Return what came to a topic since the last call."""
        while self.kafka.hanging_transactions():
            self._wait()
        found = []
        for record in self.kafka.records(topic):
            tp = TopicPartition(topic, record.partition())
            if record.offset() >= self.heard[tp]:
                self.heard[tp] = record.offset() + 1
                found.append(record)
        return found

    def _hear_letters(self, books: Mapping[str, Book], *, partly: bool) -> None:
        book, told = books.get(_COPY, Book()), self.told.setdefault(_COPY, Told())
        for letter in self._news(LETTERS):
            number = decoded(letter.value())["n"]
            self.letters[number] += 1
            if self.came_from[number] == FAILING:
                told.letters[number] += 1
                continue
            line = self._line("branched", self.came_from[number])
            of_branch = self.told.setdefault(self._state(line), Told())
            of_branch.letters[number] += 1
            of_branch.refuse_too_many(line, number, books.get(self._state(line), Book()))
        if told.letters - book.refused or (not partly and book.refused - told.letters):
            raise ViolationError(f"dead letters of {told.letters}, expected {book.refused}")

    # == deployments

    def _line(self, kind: str, topic: str) -> Line:
        return next(line for line in _LINES.values() if (line.kind, line.topic) == (kind, topic))

    def _with_another(self, lines: Sequence[Line]) -> list[Line]:
        kind, topic = self.draw.choice(KINDS), self.draw.choice(TOPICS)
        size_ms, grace_ms = self.draw.choice(SIZES_MS), self.draw.choice((0, 50, 200))
        line = self._line(kind, topic)
        if kind == "window":
            line = replace(line, size_ms=size_ms, grace_ms=grace_ms)
        if self.draw.random() < 0.4:
            line = replace(line, store=f"n{self.draw.randrange(1_000_000)}")
        if any(each.topic == topic and _named_alike(each, line) for each in lines):
            return [*lines]
        found = [*lines]
        found.insert(self.draw.randint(0, len(found)), line)
        return found

    def _deploy(self) -> None:
        """Change the code, and mostly run it."""
        self._change()
        if self.draw.random() < 0.7:
            self._produce()
            self._run()

    def _replay_after_deployment(self) -> None:
        """Bring the dead letters back before the new code has run."""
        if self.letters and not self.half:
            self._change()
            sometimes("letters came back right after a deployment")
            before = self._ends(self.kafka.partitions(FAILING))
            self._replay()
            back = self._ends(before) != before
            self.warnings.clear()
            self._run()
            read = any(line.topic == FAILING for line in self.version.lines)
            if back and not read and not any(f"no task reads topic {FAILING}" in w for w in self.warnings):
                raise ViolationError(f"letters came back to {FAILING}, which code that ran drops in silence")

    def _change(self) -> None:
        """Change the code."""
        lines = [*self.version.lines]
        at = self.draw.randrange(len(lines))
        kind = self.draw.choice(("swap", "step") if self.half else _CHANGES)
        if kind == "swap":
            self.draw.shuffle(lines)
            sometimes("the lines of an application were swapped")
        elif kind == "insert":
            lines = self._with_another(lines)
            sometimes("an application got another line, and its topic")
        elif kind == "remove" and len(lines) > 1:
            makes_letters = ("copy", "branched") if self.letters else ()
            those = [number for number, each in enumerate(lines) if each.kind in makes_letters]
            del lines[self.draw.choice(those) if those else at]
            sometimes("an application lost a line, and its topic")
        elif kind == "mend":
            self.version = replace(self.version, mended=not self.version.mended)
        elif kind == "exchange":
            self._exchange(lines, at)
        elif kind == "branch":
            lines = [self._with_other_branch(line) for line in lines]
        else:
            lines[at] = self._changed(lines[at], kind)
        self.version = replace(self.version, lines=tuple(lines))
        self.doubtful.add("deployed")
        self.trace(f"   {kind}: {[*map(str, self.version.lines)]}")

    def _exchange(self, lines: list[Line], at: int) -> None:
        """Give a line the name of another one's store, and that one its own."""
        if not (others := _alike(lines, at)):
            return
        line, other = lines[at], self.draw.choice(others)
        one, two = replace(line, store=lines[other].store), replace(lines[other], store=line.store)
        if self._state(one) != self._state(two):
            lines[at], lines[other] = one, two
            self.doubtful.add("renamed")
            sometimes("two stores exchanged their names")

    def _changed(self, line: Line, kind: str) -> Line:
        if kind == "step":
            return replace(line, steps=self.draw.randint(0, 2))
        if kind == "rename" and line.kind in ("list", "rekeyed", "window", "history"):
            self.doubtful.add("renamed")
            sometimes("a store was renamed")
            return replace(line, store=f"s{self.numbers}")
        if kind == "grace" and line.kind == "window":
            sometimes("the grace of windows was changed")
            return replace(line, grace_ms=self.draw.choice((0, 30, 150, 400)))
        if kind == "size" and line.kind == "window":
            sometimes("the size of windows was changed")
            return replace(
                line, size_ms=self.draw.choice([size for size in SIZES_MS if size != line.size_ms])
            )
        if kind == "history" and line.kind == "history":
            sometimes("the history of a table was changed")
            others = [history for history in HISTORIES_MS if history != line.history_ms]
            return replace(line, history_ms=self.draw.choice(others))
        return line

    def _with_other_branch(self, line: Line) -> Line:
        if line.kind != "branched":
            return line
        sometimes("another branch got the topic of one")
        return self._line("branched", *{*BRANCHED} - {line.topic})

    def _change_settings(self) -> None:
        self.settings = {
            "settle.ms": 0,
            "lease.ms": _LEASE_SECONDS * 1_000,
            "processing.exception.handler": "dead-letter",
            "commit.every.records": self.draw.choice((0, 1, 2)),
            "buffered.records.per.partition": self.draw.choice((1, 2, 1_000)),
            **({"state.dir": self.disk} if self.disk else {}),
        }

    # == the application's own commands

    def _replay(self) -> None:
        """Bring the dead letters back."""
        if not self.letters or self.half:
            return
        self.runs += 1
        replay_id, letters = f"replay-{self.runs}", Counter(self.letters)
        reads = all(map(self._is_read, letters))
        between = {tp: self._ends([tp])[tp] for tp in self._between()}
        done = False
        for number in range(_MOST_TRIES):
            cluster: ClusterPort = self.kafka
            if number < 3 and self.draw.random() < 0.4:
                mortal = Mortal(self.draw.randint(1, 60), takes_effect=self.draw.random() < 0.5)
                cluster = FaultyCluster(self.kafka, mortal)
            checked = self._application().checked
            tool = DeadLetterReplay(cluster, checked, replay_id=replay_id, clock=self.kafka.clock)
            try:
                tool.run()
            except Died:
                sometimes("a replay died, and went on")
            except ConfigError as error:
                gone = "does not exist any more" in str(error) and not self._between()
                if reads and not gone:
                    raise ViolationError(f"a replay was refused for no reason: {error}") from error
                sometimes("a replay was refused because nobody would read the letters")
                break
            else:
                if not reads:
                    raise ViolationError(f"a replay brought {letters} back, which no line reads")
                done = True
                sometimes("dead letters came back")
                break
        # A record of which several letters were made comes back once; a try that died may have brought some
        # back before the next one was refused.
        back = self._brought_back(between)
        if (done and back.keys() != letters.keys()) or not back <= letters:
            raise ViolationError(f"a replay brought back {back}, expected {letters}")
        for number in back:
            del self.letters[number]

    def _is_read(self, number: int) -> bool:
        """Whether the code of the last run reads what a letter was made of."""
        topic = self.came_from[number]
        kind = "copy" if topic == FAILING else "branched"
        return self.former is not None and any(
            (line.kind, line.topic) == (kind, topic) for line in self.former.lines
        )

    def _between(self) -> list[TopicPartition]:
        """Return the partitions of the topic that branched lines go through, if it is there."""
        topic = f"{APP}-{SHARED}{REPARTITION_ENDING}"
        return [*self.kafka.partitions(topic)] if topic in self.kafka.topics() else []

    def _brought_back(self, between: Mapping[TopicPartition, int]) -> Counter[int]:
        """Take note of the records that a replay has written.

        :param between: end of each partition between two subtopologies before it.
        """
        while self.kafka.hanging_transactions():
            self._wait()
        back: Counter[int] = Counter()
        for record in self.kafka.records(FAILING):
            tp = TopicPartition(FAILING, record.partition())
            newest = self.met[tp][-1].offset if self.met[tp] else -1
            if record.offset() > newest:
                number, key = decoded(record.value())["n"], (record.key() or b"").decode()
                self.met[tp].append(Met(tp, record.offset(), key, number, record.timestamp()[1]))
                back[number] += 1
        of_branches = Counter(
            decoded(record.value())["n"]
            for tp, end in between.items()
            for record in self.kafka.records(tp.topic)
            if record.partition() == tp.partition and record.offset() >= end
        )
        if of_branches:
            sometimes("letters of a branch came back")
        self.brought += of_branches
        return back + of_branches

    def _reset(self) -> None:
        """Start over: all state, from the start of the topics with state."""
        if self.former is None:
            return
        topics = tuple(sorted({tp.topic for tp in self._read(self.former.lines)} & {*TOPICS}))
        self.runs += 1
        request = ResetRequest(
            application_id=APP,
            input_topics=topics,
            scenario=TO_EARLIEST if topics else ResetRequest(application_id=APP).scenario,
            delete_stop_offsets=True,
            reset_id=f"reset-{self.runs}",
        )
        self._hear(partly=True)
        half, self.half = self.half, False
        for number in range(_MOST_TRIES):
            cluster: ClusterPort = self.kafka
            if number < 3 and self.draw.random() < 0.4:
                mortal = Mortal(self.draw.randint(1, 60), takes_effect=self.draw.random() < 0.5)
                cluster = FaultyCluster(self.kafka, mortal)
            try:
                with ApplicationReset(cluster, request, clock=self.kafka.clock) as reset:
                    reset.run()
            except Died:
                self._wait()
                sometimes("a reset died, and was made again")
            except ConfigError as error:
                # The version that is deployed has not begun a run, so its topics are no inputs yet.
                if "does not read topic" not in str(error):
                    raise
                self.half = half
                return
            else:
                break
        self._start_over(topics)
        sometimes("an application started over")

    def _backfill(self) -> None:
        """Process an interval again in another application; the live one goes on as it would have."""
        topic = self.draw.choice(TOPICS)
        tps = self.kafka.partitions(topic)
        dated = [one for tp in tps for one in self.met[tp] if one.time_ms >= OLD_MS]
        if not dated or any(start for start in self._starts(tps).values()):
            return
        self.runs += 1
        app, out = f"back-{self.runs}", f"back-out-{self.runs}"
        self.kafka.create_topic(out)
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        builder.stream(topic).send_to(out)
        first = self.draw.choice(dated).time_ms
        interval = (first, first + self.draw.choice((1, SIZE_MS, 5_000, 60_000)))
        Application(
            application_id=app,
            topology=builder.build(),
            on=self.kafka,
            clock=self.kafka.clock,
            settings={"settle.ms": 0, "autostop.at": "interval"},
        ).run("backfill", interval_ms=interval)
        found = Counter(decoded(value)["n"] for value in self.kafka.values(out))
        wanted = Counter(one.number for one in dated if interval[0] <= one.time_ms < interval[1])
        if found != wanted:
            raise ViolationError(f"a backfill of {interval} gave {found}, expected {wanted}")
        sometimes("an interval was backfilled beside the application")

    # == other people

    def _move_offsets(self) -> None:
        """Commit as a consumer does that has the application's id as its group."""
        if self.half or self.former is None:
            return
        behind = [
            tp for tp, end in self._ends(self._read(self.former.lines)).items() if end > self.read_to[tp]
        ]
        if self.draw.random() < 0.5:
            self.kafka.join_group(APP)
            sometimes("another consumer was a member of the application's group")
        if behind:
            tp = self.draw.choice(behind)
            at = self.draw.randint(self.read_to[tp] + 1, self._ends([tp])[tp])
            with closing(self.kafka.reader(group_id=APP)) as reader:
                reader.commit({tp: CommittedOffset(at)})
            self.doubtful.add("moved")
            self.trace(f"   {tp} to {at} from {self.read_to[tp]}")
            sometimes("another consumer committed an offset ahead")
        self._run()
        self.kafka.leave_group(APP)

    def _expire_offsets(self) -> None:
        """Let Kafka forget offsets of the group."""
        if self.half:
            return
        known = [tp for topic in self.kafka.topics() for tp in self.kafka.partitions(topic)]
        if self.endless:
            # Where reading ended between subtopologies no person knows.
            known = [*self.met]
        gone = [tp for tp in known if self.draw.random() < 0.7]
        self.kafka.expire_offsets(APP, gone)
        self.unknown.update(gone)
        if self.endless:
            self.doubtful.add("expired")
        sometimes("committed offsets of an application with a past expired")

    def _retain(self) -> None:
        """Delete records that were read."""
        tps = [tp for tp in self.met if self.read_to[tp]]
        if tps:
            tp = self.draw.choice(tps)
            self.kafka.expire({tp: self.draw.randint(1, self.read_to[tp])})
            sometimes("retention deleted records that runs had read")

    def _lose(self) -> None:
        """Delete records that nobody has read."""
        ends = self._ends(self._read())
        behind = [tp for tp, end in ends.items() if tp in self.seen and end > self.read_to[tp]]
        if behind and not self.half and self.former is not None:
            tp = self.draw.choice(behind)
            self.kafka.expire({tp: self.draw.randint(self.read_to[tp] + 1, self._ends([tp])[tp])})
            self.doubtful.add("lost")
            sometimes("retention deleted records that nobody had read")
            self._run()

    def _cut(self) -> None:
        """Cut the end of a log, as an unclean election does, and let it grow again; then run."""
        logs = {tp: (start, self._ends([tp])[tp]) for tp, start in self._starts(self._read()).items()}
        tps = [tp for tp, (start, end) in logs.items() if tp in self.seen and start < end]
        if not tps or self.former is None:
            return
        tp = self.draw.choice(tps)
        start, end = logs[tp]
        at = self.draw.randint(max(start, end - 5), end - 1)
        self.kafka.truncate(tp, at)
        self.met[tp] = [one for one in self.met[tp] if one.offset < at]
        for _ in range(self.draw.choice((0, 1, 2, 4, 8))):
            self._write(
                tp.topic, self.draw.choice([k for k in KEYS if KEYS.index(k) % _PARTITIONS == tp.partition])
            )
        self.trace(f"   {tp} to {at} of {end}, read to {self.read_to[tp]}, now {self._ends([tp])[tp]}")
        self.doubtful.add("cut")
        if self.half:
            sometimes("the end of a log was cut while a run was under way")
        elif at < self.read_to[tp]:
            sometimes("the end of a log was cut, and records that were read with it")
        # An offset that has expired takes with it what it says of the record before it.
        if at < self.read_to[tp] and tp not in self.unknown:
            self.replaced.add(tp)
            if self._ends([tp])[tp] >= self.read_to[tp]:
                sometimes("the end of a log was cut, and others took the offsets of what was read")
        if self.draw.random() < 0.7:
            self._run()
        else:
            self._run_continuously()

    def _make_anew(self) -> None:
        """Delete a topic that runs read, and make it anew; then run."""
        topics = sorted({tp.topic for tp in self._read() if tp in self.seen} & {*TOPICS})
        if not topics or self.half or self.former is None:
            return
        topic = self.draw.choice(topics)
        with closing(self.kafka.admin()) as admin:
            admin.delete_topics([topic])
        self._create(topic)
        for tp in self.kafka.partitions(topic):
            self._may_begin_time_anew(tp)
        self._produce()
        self.doubtful.add("anew")
        sometimes("a topic was made anew")
        self._run()

    def _compact(self) -> None:
        for topic in self.kafka.compacted_topics():
            self.kafka.compact(topic)

    def _add_topic(self) -> None:
        self.patterned += 1
        self._create(f"p-{self.patterned}")
        sometimes("a pattern came to match another topic")

    def _delete_topic(self) -> None:
        """Delete a topic that a pattern matches."""
        topics = sorted({tp.topic for tp in self.met if tp.topic.startswith("p-")})
        if len(topics) < 2 or self.half:
            return
        topic = self.draw.choice(topics)
        with closing(self.kafka.admin()) as admin:
            admin.delete_topics([topic])
        for tp in [tp for tp in self.met if tp.topic == topic]:
            del self.met[tp], self.read_to[tp]
            self.seen.discard(tp)
        self.doubtful.add("topic")
        sometimes("a topic that a pattern matched was deleted")
        self._run()

    # == local files

    def _damage(self) -> None:
        """Remove, exchange or damage what a task has on its machine's disk."""
        folder = Path(self.disk)
        kept = folder.with_name("kept")
        found = sorted(path for path in folder.rglob("*") if path.name != "LOCK")
        if not found:
            return
        kind = self.draw.choice(
            ("bring back", "bring back", "remove", "cut", "flip") if kept.is_dir() else ("keep",)
        )
        files = [path for path in found if path.is_file() and path.stat().st_size]
        if kind == "keep":
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
        elif kind == "bring back" and kept.is_dir():
            shutil.rmtree(folder)
            shutil.copytree(kept, folder)
            sometimes("local files were exchanged for an older copy")
        elif kind == "remove":
            path = self.draw.choice(found)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            sometimes("local files were removed")
        elif kind in ("cut", "flip") and files:
            path = self.draw.choice(files)
            data = bytearray(path.read_bytes())
            at = self.draw.randrange(len(data))
            path.write_bytes(
                data[:at] if kind == "cut" else bytes([*data[:at], data[at] ^ 64, *data[at + 1 :]])
            )
            self.doubtful.add("damaged")
            sometimes("a local file was damaged")


_CHANGES = (
    "swap",
    "step",
    "insert",
    "insert",
    "remove",
    "remove",
    "rename",
    "rename",
    "exchange",
    "grace",
    "grace",
    "size",
    "size",
    "size",
    "history",
    "history",
    "branch",
    "branch",
    "mend",
)
#: The state of the copy that refuses records.
_COPY = "out-0"
#: Every line that there may be: what it is says which store it has.
_LINES = {
    number: Line(number=number, kind=kind, topic=topic)
    for number, (kind, topic) in enumerate(
        [
            ("copy", FAILING),
            ("pattern", "p"),
            *((k, t) for t in TOPICS for k in sorted({*KINDS})),
            *(("branched", t) for t in BRANCHED),
        ]
    )
}


def _alike(lines: Sequence[Line], at: int) -> list[int]:
    """Return the places of the other lines whose stores hold what that of one line holds."""
    kinds = next(({*kinds} for kinds in (("list", "rekeyed"), ("window",)) if lines[at].kind in kinds), set())
    return [other for other, line in enumerate(lines) if other != at and line.kind in kinds]


def _named_alike(one: Line, other: Line) -> bool:
    """Whether two lines of a topic have stores of one name, which no topology may have."""
    if "history" in (one.kind, other.kind):
        return one.kind == other.kind
    return "branched" not in (one.kind, other.kind) and (one.kind == "window") == (other.kind == "window")


def _leaving_out(error: KStreamsError) -> KStreamsError:
    """Return an error whose command leaves out what another program has read, as its text offers."""
    to = _MOVED.findall(error.fix)[0]
    return KStreamsError("", fix=re.sub(r"--to-offset \d+$", f"--to-offset {to}", error.fix, flags=re.M))


def live(seed: int, *, trace: Callable[[str], None] | None = None) -> str:
    """Live the life of a seed, if it has one.

    :return: what must not have happened; empty if nothing.
    """
    draw = Random(f"{seed} life")
    if draw.random() >= SHARE:
        return ""
    logging.disable(logging.CRITICAL if trace is None else logging.NOTSET)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        disk = ""
        if draw.random() < 0.3:
            disk = f"{folder}/disk"
            Path(disk).mkdir()
        try:
            Life(draw, disk, trace or (lambda line: None)).live()
        except (ViolationError, KStreamsError) as error:
            return f"life: {type(error).__name__}: {error}"
        finally:
            logging.disable(logging.NOTSET)
            if disk:
                let_go_of_locks(Path(disk))
    return ""
