"""``dev/demo``: three increments of real flights through Airflow, Spark and Kafka, independently checked."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from confluent_kafka import KafkaException
from rich.console import Console

from airflow_kstreams.streams.errors import KStreamsError
from dev.flight_demo import chart, data, oracle
from dev.flight_demo.by_hand import ByHand
from dev.flight_demo.children import Children, end_leftovers
from dev.flight_demo.increments import DAG_ID, CarrierTable, Increments
from dev.flight_demo.local_airflow import AirflowError, LocalAirflow
from dev.flight_demo.publisher import PublishError, create_topics
from dev.flight_demo.view import View
from dev.servers.embedded import Broker, BrokerError, free_port

_ROOT = Path(__file__).resolve().parents[2]
_FOLDER = _ROOT / ".demo"
_REPORT_DAG_ID = "flight_delays_report"
_EMPTY_RUN_LIMIT_SECONDS = 3.0
_REPORT_SECONDS = 120.0


def main(arguments: list[str]) -> int:
    """Run the demo; 0 when the result is right, 1 when it is not or could not be had, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    days = data.DAYS if options.all else options.days
    view = View(Console(width=None if sys.stdout.isatty() else 110))
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with _only_one(), _fresh_folder():
            return _demo(view, days, with_airflow=not options.without_airflow)
    except (AirflowError, BrokerError, PublishError, KStreamsError, KafkaException, TimeoutError) as error:
        view.console.print(f"error: {error}", style="red", highlight=False, markup=False)
        view.say(
            f"logs are in {_FOLDER.relative_to(_ROOT)}/logs and {_FOLDER.relative_to(_ROOT)}/airflow/logs"
        )
        return 1
    except KeyboardInterrupt:
        view.say("interrupted: everything that was started has been stopped")
        return 130


def _demo(view: View, days: int, *, with_airflow: bool) -> int:
    started = time.monotonic()
    broker = Broker(port=free_port(), folder=_FOLDER / "broker", heap="1g")
    with broker, Children(_FOLDER / "logs") as children:
        view.say(f"Kafka broker on {broker.bootstrap}, started in {time.monotonic() - started:.1f} s")
        create_topics(broker.bootstrap)
        if with_airflow:
            runner: LocalAirflow | ByHand = _started_airflow(view, children, broker.bootstrap)
        else:
            runner = ByHand(children=children, bootstrap=broker.bootstrap, environment=dict(os.environ))
            view.say("without Airflow: each run starts spark_apps/flight_delays.py")
        increments = Increments(bootstrap=broker.bootstrap, airflow=runner, view=view)
        tables = _three_increments(view, increments, days)
        if with_airflow:
            _nothing_new(view, increments)
        view.heading("Check against the data set itself")
        verdict = oracle.judge(broker.bootstrap, days)
        view.verdict(verdict)
    picture = _FOLDER / "flight_delays.png"
    chart.draw(picture, tables)
    view.say(f"chart: {picture.relative_to(_ROOT)}")
    view.say(f"done in {time.monotonic() - started:.0f} s; every process that was started is stopped")
    return 1 if verdict.differences else 0


def _started_airflow(view: View, children: Children, bootstrap: str) -> LocalAirflow:
    airflow = LocalAirflow(folder=_FOLDER / "airflow", children=children, bootstrap=bootstrap)
    with view.console.status("starting Airflow: scheduler, DAG processor, triggerer, API server"):
        before = time.monotonic()
        airflow.start()
        for dag_id in (DAG_ID, _REPORT_DAG_ID):
            airflow.unpause(dag_id)
    view.say(f"Airflow on {airflow.url}, started in {time.monotonic() - before:.1f} s")
    return airflow


def _three_increments(view: View, increments: Increments, days: int) -> list[tuple[str, CarrierTable]]:
    tables = []
    airflow = increments.airflow
    for number, stretch in enumerate(data.stretches(days), start=1):
        run_id = f"increment-{number}"
        view.heading(f"Increment {number}: {stretch}")
        increments.publish(stretch)
        if number == 3 and isinstance(airflow, LocalAirflow):
            # Started first, so that its sensor really has something to wait for.
            airflow.trigger(_REPORT_DAG_ID, "report-3", {"run_id": run_id})
        increments.run(run_id)
        table = increments.carriers()
        view.carriers(f"carrier-delays after {run_id}", table)
        tables.append((stretch.last_day, table))
    if isinstance(airflow, LocalAirflow):
        _report(view, airflow)
    return tables


def _report(view: View, airflow: LocalAirflow) -> None:
    deadline = time.monotonic() + _REPORT_SECONDS
    while (state := airflow.run_state(_REPORT_DAG_ID, "report-3")) in ("queued", "running"):
        if time.monotonic() > deadline:
            raise AirflowError(
                f"dag run report-3 of {_REPORT_DAG_ID} did not end within {_REPORT_SECONDS:.0f} s"
            )
        time.sleep(0.3)
    if state != "success":
        raise AirflowError(
            f"{_REPORT_DAG_ID} ended as {state}: {airflow.log_tail(_REPORT_DAG_ID, 'report-3')}"
        )
    view.say(f"{_REPORT_DAG_ID} waited for increment-3 with its deferrable sensor and printed the same table")


def _nothing_new(view: View, increments: Increments) -> None:
    view.heading("A fourth run, with nothing new")
    summary, seconds = increments.run("nothing-new")
    fast = seconds < _EMPTY_RUN_LIMIT_SECONDS
    view.say(
        f"empty: {'yes' if summary.empty else 'NO'}; Spark was not started; the three operators took "
        f"{seconds:.2f} s ({'under' if fast else 'NOT UNDER'} {_EMPTY_RUN_LIMIT_SECONDS:.0f} s)"
    )


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    """Let one demo at a time use the folder; the lock goes with the process, however that ends."""
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BrokerError(f"another demo is running in {_FOLDER}: wait for its end, or stop it") from None
        yield


@contextlib.contextmanager
def _fresh_folder() -> Iterator[None]:
    """Remove what an earlier demo left behind, its processes included should they still run."""
    end_leftovers("AIRFLOW_HOME", str(_FOLDER / "airflow"))
    Broker(port=0, folder=_FOLDER / "broker").wipe()
    for name in ("airflow", "logs"):
        shutil.rmtree(_FOLDER / name, ignore_errors=True)
    (_FOLDER / "logs").mkdir()
    yield


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _days(text: str) -> int:
    days = int(text)
    if not 3 <= days <= data.DAYS:
        raise argparse.ArgumentTypeError(f"must be 3 to {data.DAYS}, got {days}")
    return days


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dev/demo", description=__doc__)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "--days",
        type=_days,
        default=90,
        help="publish the first N days of 2013 (default 90: a quarter of a year)",
    )
    amount.add_argument("--all", action="store_true", help="publish the whole year: 336,776 flights")
    parser.add_argument(
        "--without-airflow", action="store_true", help="start the application file itself for each increment"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
