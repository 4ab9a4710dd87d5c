"""``--quick``, ``--memory`` and ``--restore``: single questions, answered within minutes, nothing stored."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from airflow_kstreams.spark.session import STATIC_SETTINGS
from dev.benchmarks import applications
from dev.benchmarks.publish import create_topics, publish_events
from dev.benchmarks.restore import STORAGES, measure, publish_changelog, table_of
from dev.benchmarks.runs import Timing, time_hand_written, time_topology

PARTITIONS = 2
console = Console()


def open_session(folder: str, *, fresh_workers: bool) -> Any:
    """Open a local session."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master(f"local[{os.cpu_count() or 2},4]")
        .appName("bench")
        .config(map=STATIC_SETTINGS)
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", folder)
        .config("spark.python.worker.reuse", "false" if fresh_workers else "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def _prepare(bootstrap: str, records: int, keys: int) -> None:
    create_topics(bootstrap, {"bench-events": PARTITIONS})
    _clear_outputs(bootstrap)
    with _publishing(records) as progress:
        publish_events(bootstrap, "bench-events", records, keys=keys, progress=progress)


@contextmanager
def _publishing(records: int) -> Iterator[Callable[[int], None]]:
    """Show how many records are published; gives the function that is told."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("publishing", total=records)
        yield lambda done: progress.update(task, completed=done)


def restore(bootstrap: str, folder: str, keys: int) -> None:
    """Print how fast a changelog is replayed into each kind of store."""
    with _publishing(keys) as progress:
        publish_changelog(bootstrap, keys, progress)
    found = {storage: measure(bootstrap, storage, keys, folder) for storage in STORAGES}
    console.print(table_of(found))
    console.print(f"one task, one partition, JSON documents, {os.cpu_count()} cores shared with the broker")


def _clear_outputs(bootstrap: str) -> None:
    create_topics(bootstrap, {"bench-out": PARTITIONS, "bench-sums": PARTITIONS})


def quick(session: Any, bootstrap: str, records: int, rounds: int) -> None:
    """Print the DSL's speed beside the hand-written loop's."""
    _prepare(bootstrap, records, keys=50_000)
    time_hand_written(session, bootstrap, PARTITIONS)  # warms Python workers, page cache and the broker
    by_hand: list[Timing] = []
    by_dsl: list[Timing] = []
    for number in range(rounds):
        _clear_outputs(bootstrap)
        by_hand.append(time_hand_written(session, bootstrap, PARTITIONS))
        _clear_outputs(bootstrap)
        by_dsl.append(time_topology(session, bootstrap, applications.filter_map))
        console.print(
            f"round {number + 1}: hand-written {by_hand[-1].records_per_second:,.0f}/s, "
            f"DSL {by_dsl[-1].records_per_second:,.0f}/s"
        )
    yardstick = statistics.median(timing.records_per_second for timing in by_hand)
    table = Table("workload", "records/s", "ratio", "worker peak MB")
    table.add_row("hand-written filter + map", f"{yardstick:,.0f}", "1.00", "")
    speed = statistics.median(timing.records_per_second for timing in by_dsl)
    _add_row(table, "DSL filter + map", speed, yardstick, by_dsl[-1])
    for factory in (
        applications.flat_map,
        applications.map_batches,
        applications.branch_aggregate,
        applications.two_stage,
    ):
        _clear_outputs(bootstrap)
        timing = time_topology(session, bootstrap, factory)
        _add_row(table, f"DSL {factory.__name__}", timing.records_per_second, yardstick, timing)
    console.print(table)
    console.print(
        f"exactly once, {records:,} records, {PARTITIONS} partitions, {os.cpu_count()} cores, {rounds} rounds"
    )
    console.print(f"overhead of a run, two subtopologies: {_overhead(session, bootstrap):.2f} s")
    console.print(f"ratio {speed / yardstick:.2f}", highlight=False)


def _overhead(session: Any, bootstrap: str) -> float:
    """Return what a run costs when there is next to nothing to process."""
    create_topics(bootstrap, {"bench-events": PARTITIONS})
    publish_events(bootstrap, "bench-events", 1_000, keys=100, progress=lambda _: None)
    _clear_outputs(bootstrap)
    return statistics.median(
        time_topology(session, bootstrap, applications.two_stage).run_seconds for _ in range(3)
    )


def memory(session: Any, bootstrap: str, sizes: Sequence[int]) -> None:
    """Print the peak memory of the largest Python worker, each run with fresh workers."""
    table = Table("workload", "records", "keys", "records/s", "worker peak MB")
    for records in sizes:
        _prepare(bootstrap, records, keys=50_000)
        for factory in (applications.filter_map, applications.sum_by_key, applications.two_stage):
            _clear_outputs(bootstrap)
            timing = time_topology(session, bootstrap, factory)
            table.add_row(
                factory.__name__,
                f"{records:,}",
                "50,000",
                f"{timing.records_per_second:,.0f}",
                f"{timing.peak_memory_mb:,.0f}",
            )
    console.print(table)


def _add_row(table: Table, name: str, speed: float, yardstick: float, timing: Timing) -> None:
    table.add_row(
        name,
        f"{speed:,.0f}",
        f"{speed / yardstick:.2f}",
        f"{timing.peak_memory_mb:,.0f}",
    )
