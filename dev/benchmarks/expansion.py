"""``dev/bench expansion``: what it costs to give state twice as many processors while runs go on.

One application keeps a document for each key on four processors; its topic has grown to eight partitions.
Runs of the same size follow each other on one Spark session: alone, then while a catch-up in a process of its
own copies state at some rate, in turn. Each of these catch-ups is given up afterwards, so that the next one
begins anew; the last one goes to its end, and a run takes over. What another application needs to make the
same state from the topic's beginning, with eight processors at once, stands beside it.

A run's speed is that of its Spark job: restores, which grow from run to run, are in it. The changelog is as
long as the input, since Kafka compacts none that is so young; an old one is shorter.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from airflow_kstreams.batch.expand.processor_expansion import (
    CatchUpOptions,
    ProcessorExpansion,
    give_up_expansions,
)
from airflow_kstreams.batch.expand.processor_plan import CopiedSource
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.spark.driver.spark_session import open_session
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from dev.benchmarks import machine, marked
from dev.benchmarks.publish import Message, create_topics, publish
from dev.benchmarks.runs import Timing, run_topology
from dev.servers.embedded import Broker, free_port

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOCS = Path(__file__).parents[2] / "docs"
FILE = _DOCS / "internals" / "expansion.json"
PAGE = _DOCS / "internals" / "expansion.md"
PICTURE = _DOCS / "images" / "expansion.svg"
TOPIC = "bench-expansion-in"
FIRST, GROWN = 4, 8
#: Changelog records per second of a catch-up; None for as fast as it goes.
RATES: tuple[float | None, ...] = (5_000.0, 20_000.0, None)
_STRIDE = 7_368_787


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is.

    :param keys: with state.
    :param records: of each run that is timed.
    """

    keys: int = 200_000
    records: int = 150_000


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """Runs alone, and one while a catch-up goes on.

    :param rate: changelog records per second that the catch-up may read; None for as many as it can.
    :param alone: records per second of the runs before and after it.
    :param during: records per second of the run meanwhile.
    :param copied: changelog records that the catch-up read meanwhile, per second.
    """

    rate: float | None
    alone: float
    during: float
    copied: float

    @property
    def ratio(self) -> float:
        """What is left of a run's speed."""
        return self.during / self.alone


class Expanded(msgspec.Struct, frozen=True, kw_only=True):
    """What the whole cost.

    :param beside: by rate.
    :param catch_up: seconds of the last catch-up, from nothing copied to all.
    :param read: changelog records that it read.
    :param moved: entries that it wrote for the new processors.
    :param moved_bytes: keys and values of them.
    :param begin: seconds of a begin that takes nothing over.
    :param takeover: seconds of the one that does.
    :param rebuilt: seconds of a run that makes the state from the topic's beginning.
    :param rebuilt_records: that it reads.
    """

    sizes: Sizes
    machine: str
    beside: tuple[Beside, ...]
    catch_up: float
    read: int
    moved: int
    moved_bytes: int
    begin: float
    takeover: float
    rebuilt: float
    rebuilt_records: int


def topology() -> Topology:
    """Keep the last event and the number of events of each key."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("bench-expansion-in").group_by_key().aggregate(
        dict, lambda _, event, kept: {**event, "count": kept.get("count", 0) + 1}, store="events"
    )
    return builder.build()


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and store unless sizes were given."""
    console = Console(soft_wrap=True, highlight=False, width=150)
    parser = argparse.ArgumentParser(prog="dev/bench expansion", description=__doc__)
    parser.add_argument("--keys", type=int, help="with state; nothing is stored")
    parser.add_argument("--records", type=int, help="of each run that is timed; nothing is stored")
    options = parser.parse_args(arguments)
    sizes = Sizes(keys=options.keys or Sizes().keys, records=options.records or Sizes().records)
    measured = measure(sizes, console)
    for table in tables(measured):
        console.print(table)
    console.print(verdict(measured), markup=False)
    if sizes == Sizes():
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")
        draw(measured)
        PAGE.write_text(with_figures(PAGE.read_text(encoding="utf-8"), measured), encoding="utf-8")
    return 0


def measure(sizes: Sizes, console: Console) -> Expanded:
    """Measure all of it, on a broker and a Spark session of its own."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="kstreams-expansion-") as folder,
        Broker(port=free_port(), folder=Path(folder) / "broker", heap="1g") as broker,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        session = open_session("bench expansion")
        try:
            steps = progress.add_task("expansion", total=len(RATES) + 4)
            story = Story(bootstrap=broker.bootstrap, session=session, sizes=sizes)
            progress.update(steps, description="filling the state", advance=0)
            story.fill()
            progress.advance(steps)
            beside = []
            for rate in RATES:
                progress.update(steps, description=f"runs beside a catch-up at {_rate(rate)}")
                beside.append(story.beside(rate))
                progress.advance(steps)
            progress.update(steps, description="catch-up")
            seconds, sources = story.catch_up()
            progress.update(steps, description="takeover", advance=1)
            takeover = story.run().begin_seconds
            progress.update(steps, description="another application from the beginning", advance=1)
            rebuilt = story.rebuild()
            progress.advance(steps)
        finally:
            session.stop()
    return Expanded(
        sizes=sizes,
        machine=machine.describe(),
        beside=tuple(beside),
        catch_up=seconds,
        read=sum(each.end for each in sources),
        moved=sum(each.told.copied for each in sources),
        moved_bytes=sum(each.told.copied_bytes for each in sources),
        begin=median(story.begins),
        takeover=takeover,
        rebuilt=rebuilt,
        rebuilt_records=story.published,
    )


@dataclass(kw_only=True)
class Story:
    """The application and its topic.

    :ivar published: records of the topic.
    :ivar begins: seconds of each begin that found nothing unusual.
    """

    bootstrap: str
    session: Any
    sizes: Sizes
    application_id: str = "bench-expansion"
    published: int = 0
    runs: int = 0
    begins: list[float] = field(default_factory=list)

    def fill(self) -> None:
        """Make state of every key, and let the topic grow."""
        create_topics(self.bootstrap, {TOPIC: FIRST})
        self._publish(self.sizes.keys)
        self.run()
        admin = self._cluster().admin()
        admin.create_partitions(TOPIC, GROWN)
        admin.close()
        self._publish(self.sizes.records)
        for _ in range(2):
            self.run()

    def run(self) -> Timing:
        """Make a run."""
        self.runs += 1
        return self._run(self.application_id, f"run-{self.runs}")

    def timed(self) -> float:
        """Publish a run's records and make the run; how many per second it processed."""
        self._publish(self.sizes.records)
        timing = self.run()
        self.begins.append(timing.begin_seconds)
        return self.sizes.records / timing.seconds

    def beside(self, rate: float | None) -> Beside:
        """Make a run while a catch-up goes on, between two without one; then give the catch-up up."""
        before = self.timed()
        command = [sys.executable, "-m", __name__, self.bootstrap, "" if rate is None else str(rate)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as copying:
            if copying.stdout is None or copying.stdout.readline() != "copying\n":
                raise RuntimeError("the catch-up did not begin")
            first, started = self._position(), time.monotonic()
            during = self.timed()
            copied = (self._position() - first) / (time.monotonic() - started)
            copying.terminate()
        give_up_expansions(self._cluster(), self._settings())
        return Beside(rate=rate, alone=(before + self.timed()) / 2, during=during, copied=copied)

    def catch_up(self) -> tuple[float, Sequence[CopiedSource]]:
        """Copy all state; how long that takes, and what it was."""
        started = time.monotonic()
        with self._expansion() as tool:
            plan = tool.run(CatchUpOptions(follow=False))
        return time.monotonic() - started, plan.sources

    def rebuild(self) -> float:
        """Have another application read all of the topic; how long that takes."""
        return self._run(f"{self.application_id}-rebuilt", "run-1").run_seconds

    def _position(self) -> int:
        with self._expansion() as tool:
            return sum(each.position or 0 for each in tool.plan().sources)

    def _expansion(self) -> ProcessorExpansion:
        return ProcessorExpansion(self._cluster(), self._settings(), subtopology=None, count=GROWN)

    def _run(self, application_id: str, run_id: str) -> Timing:
        source = ApplicationFile.of(topology)
        return run_topology(
            self.session, self.bootstrap, source, application_id=application_id, run_id=run_id
        )

    def _settings(self) -> ApplicationSettings:
        return ApplicationSettings.parse(self.application_id)

    def _cluster(self) -> KafkaCluster:
        return KafkaCluster({"bootstrap.servers": self.bootstrap}, settings=self._settings())

    def _publish(self, count: int) -> None:
        publish(
            self.bootstrap,
            _events(self.published, count, self.sizes.keys),
            count=count,
            progress=lambda _: None,
        )
        self.published += count


def _events(first: int, count: int, keys: int) -> Iterator[Message]:
    for number in range(first, first + count):
        key = b"user-%09d" % (number * _STRIDE % keys)
        yield Message(TOPIC, b'{"id":%d,"amount":%d,"kind":"view"}' % (number, number % 1_000), key)


Rows = tuple[Sequence[str], Sequence[Sequence[str]]]


def rows_of(measured: Expanded) -> Iterator[Rows]:
    """Yield what was measured as tables: their columns and rows."""
    yield (
        ("catch-up at", "read, records/s", "runs alone, records/s", "meanwhile, records/s", "ratio"),
        [
            (
                _rate(each.rate),
                f"{each.copied:,.0f}",
                f"{each.alone:,.0f}",
                f"{each.during:,.0f}",
                f"{each.ratio:.2f}",
            )
            for each in measured.beside
        ],
    )
    yield (
        ("", f"{FIRST} to {GROWN} processors", "from the beginning"),
        [
            ("records read", f"{measured.read:,}", f"{measured.rebuilt_records:,}"),
            ("seconds", f"{measured.catch_up:.1f}", f"{measured.rebuilt:.1f}"),
            ("entries moved", f"{measured.moved:,} of {measured.sizes.keys:,} keys", ""),
            ("MB moved", f"{measured.moved_bytes / 1e6:.1f}", ""),
            ("processing stops for, s", f"{measured.takeover - measured.begin:.2f}", ""),
            ("begin, s", f"{measured.begin:.2f}; taking over {measured.takeover:.2f}", ""),
        ],
    )


def tables(measured: Expanded) -> Iterator[Table]:
    """Yield what was measured as tables of a terminal."""
    for columns, rows in rows_of(measured):
        table = Table(*columns)
        for row in rows:
            table.add_row(*row)
        yield table


def with_figures(page: str, measured: Expanded) -> str:
    """Return the page with what was measured between its marks."""
    lines = [f"Measured on {measured.machine}. The figures are in [expansion.json](expansion.json)."]
    for columns, rows in rows_of(measured):
        lines += ["", *marked.table_lines(columns, rows)]
    return marked.with_figures(page, "dev/bench expansion", lines)


def verdict(measured: Expanded) -> str:
    """Return the ratios in a line."""
    ratios = ", ".join(f"{each.ratio:.2f} at {_rate(each.rate)}" for each in measured.beside)
    return (
        f"runs beside a catch-up against runs alone: {ratios}; catch-up and takeover against all over again: "
        f"{(measured.catch_up + measured.takeover) / measured.rebuilt:.2f}; {measured.machine}"
    )


def draw(measured: Expanded, file: Path = PICTURE) -> None:
    """Draw the speed of runs beside catch-ups, and how long each way takes."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "expansion"  # the same figures give the same file
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.2), layout="constrained")
    labels = [_rate(each.rate) for each in measured.beside]
    _bars(left, labels, [each.ratio for each in measured.beside], "{:.2f}")
    left.set_title("Speed of a run while state is copied, of its speed alone", fontsize=10, loc="left")
    ways = ["process all again", "copy the state", "take over"]
    _bars(right, ways, [measured.rebuilt, measured.catch_up, measured.takeover - measured.begin], "{:.2f} s")
    right.set_title("Seconds; runs go on while state is copied", fontsize=10, loc="left")
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def _bars(axes: Axes, labels: Sequence[str], values: Sequence[float], text: str) -> None:
    bars = axes.barh(list(labels), list(values), color="#1f6f8b")
    axes.bar_label(bars, [text.format(value) for value in values], padding=3, fontsize=9)
    axes.margins(x=0.2)
    axes.xaxis.set_visible(False)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def _rate(rate: float | None) -> str:
    return "full speed" if rate is None else f"{rate:,.0f} records/s"


def _copy(bootstrap: str, rate: str) -> None:
    """Copy state until all is copied, or this process is ended."""
    settings = ApplicationSettings.parse("bench-expansion")
    cluster = KafkaCluster({"bootstrap.servers": bootstrap}, settings=settings)
    options = CatchUpOptions(rate=float(rate) if rate else None, follow=False)
    print("copying", flush=True)
    with ProcessorExpansion(cluster, settings, subtopology=None, count=GROWN) as tool:
        tool.run(options)


if __name__ == "__main__":
    _copy(*sys.argv[1:])
