"""``dev/conformance``: every case with every reader; shows the table and writes the page of the results."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dev.bounded_reads.airflow_reader import ConsumeFromTopic
from dev.bounded_reads.page import PAGE, READERS, Results, cell, write_page
from dev.bounded_reads.spark_readers import AvailableNow, BatchRead, spark
from dev.servers.embedded import Broker, free_port
from tests.conformance.cases import CASES
from tests.conformance.ours import incremental_batch
from tests.conformance.playing import OpenReader, Outcome, play
from tests.conformance.scene import Scene
from tests.conformance.steps import Case

#: How many cases are read side by side: these two wait most of the time.
_SIDE_BY_SIDE = {"ours": 4, "airflow": 8}
console = Console(width=160)


def main(arguments: list[str]) -> int:
    """Run the command; the exit code is 1 when this engine fails a case."""
    options = _parser().parse_args(arguments)
    cases = [case for case in CASES if not options.cases or case.name in options.cases]
    readers = options.readers or list(READERS)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kstreams-conformance-")))
        broker = stack.enter_context(Broker(port=free_port(), folder=folder / "broker"))
        results: Results = {
            reader: _play_all(broker.bootstrap, reader, cases, _opener(reader, folder, stack))
            for reader in readers
        }
    console.print(_table(results, cases))
    if not options.readers and not options.cases:
        write_page(results)
        console.print(f"written: {PAGE}")
    else:
        for reader in results:
            for case in cases:
                _explain(reader, case, results[reader][case.name])
    return 1 if any(outcome.faults for outcome in results.get("ours", {}).values()) else 0


def _opener(reader: str, folder: Path, stack: ExitStack) -> OpenReader[Scene]:
    match reader:
        case "ours":
            return incremental_batch
        case "airflow":
            # Its operators say at every call that no Airflow runs them.
            os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "CRITICAL"
            logging.getLogger("airflow").setLevel(logging.CRITICAL)
            return lambda scene: ConsumeFromTopic(scene=scene)
    session = stack.enter_context(spark(folder))
    if reader == "spark-available-now":
        return lambda scene: AvailableNow(session=session, scene=scene, folder=folder / scene.topic)
    return lambda scene: BatchRead(session=session, scene=scene)


def _play_all(
    bootstrap: str, reader: str, cases: Sequence[Case], open_reader: OpenReader[Scene]
) -> dict[str, Outcome]:
    def verdict(number: int) -> Outcome:
        scene = Scene(bootstrap=bootstrap, topic=f"{reader}-{number}", case=cases[number])
        try:
            return play(cases[number], scene, open_reader)
        finally:
            scene.close()

    results: dict[str, Outcome] = {}
    with ThreadPoolExecutor(_SIDE_BY_SIDE.get(reader, 1)) as pool:
        for case, outcome in zip(cases, pool.map(verdict, range(len(cases))), strict=True):
            results[case.name] = outcome
            console.print(f"{reader}: {case.name}: {cell(outcome)}")
    return results


def _table(results: Results, cases: Sequence[Case]) -> Table:
    table = Table("case", *(READERS[reader] for reader in results))
    for case in cases:
        table.add_row(case.name, *(cell(results[reader][case.name]) for reader in results))
    return table


def _explain(reader: str, case: Case, outcome: Outcome) -> None:
    if outcome.faults or outcome.said:
        console.print(f"\n{reader}, {case.name}: {cell(outcome)}", *outcome.evidence, sep="\n  ")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dev/conformance", description=__doc__)
    parser.add_argument("--readers", nargs="+", choices=sorted(READERS), help="only these; writes no page")
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=[case.name for case in CASES],
        metavar="NAME",
        help="only these cases; writes no page",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
