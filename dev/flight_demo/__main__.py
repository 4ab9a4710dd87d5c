"""``dev/demo``: three increments of real flights through Airflow, Spark and Kafka, independently checked.

With ``--tables`` the totals land in an Iceberg and in a Delta table, too.
"""

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
from dev.flight_demo import chart, data, oracle, tables_check, tables_oracle
from dev.flight_demo.by_hand import ByHand
from dev.flight_demo.children import Children, end_leftovers
from dev.flight_demo.increments import APPLICATION_ID, DAG_ID, CarrierTable, Increments
from dev.flight_demo.kept import KeptDemo
from dev.flight_demo.lake import Lake
from dev.flight_demo.local_airflow import AirflowError, LocalAirflow
from dev.flight_demo.publisher import PublishError, create_topics
from dev.flight_demo.view import View
from dev.servers.embedded import Broker, BrokerError, free_port

_ROOT = Path(__file__).resolve().parents[2]
_FOLDER = _ROOT / ".demo"
_REPORT_DAG_ID = "flight_delays_report"
_EMPTY_RUN_LIMIT_SECONDS = 3.0
_REPORT_SECONDS = 120.0
_NOTHING_NEW = "nothing-new"


def main(arguments: list[str]) -> int:
    """Run the demo; 0 when the result is right, 1 when it is not or could not be had, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    days = data.DAYS if options.all else options.days
    view = View(Console(width=None if sys.stdout.isatty() else 110))
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with _only_one():
            kept = KeptDemo.found(_kept_file())
            if options.stop:
                return _stop(view, kept)
            if kept is not None and kept.ready:
                return _is_up(view, kept, wanted=options.keep)
            _make_fresh(kept)
            lake = Lake.made(_FOLDER / "lake") if options.tables else None
            return _demo(view, days, lake, with_airflow=not options.without_airflow, keep=options.keep)
    except (AirflowError, BrokerError, PublishError, KStreamsError, KafkaException, TimeoutError) as error:
        view.console.print(f"error: {error}", style="red", highlight=False, markup=False)
        view.say(
            f"logs are in {_FOLDER.relative_to(_ROOT)}/logs and {_FOLDER.relative_to(_ROOT)}/airflow/logs"
        )
        return 1
    except KeyboardInterrupt:
        view.say("interrupted: everything that was started has been stopped")
        return 130


def _demo(view: View, days: int, lake: Lake | None, *, with_airflow: bool, keep: bool) -> int:
    started = time.monotonic()
    broker = Broker(port=free_port(), folder=_FOLDER / "broker", heap="1g")
    with contextlib.ExitStack() as running:
        running.callback(broker.stop)
        broker.start(die_with_parent=not keep)
        children = running.enter_context(Children(_FOLDER / "logs", may_stay=keep))
        view.say(f"Kafka broker on {broker.bootstrap}, started in {time.monotonic() - started:.1f} s")
        create_topics(broker.bootstrap)
        if with_airflow:
            runner: LocalAirflow | ByHand = _started_airflow(view, children, broker, lake, keep=keep)
        else:
            runner = ByHand(
                children=children,
                bootstrap=broker.bootstrap,
                environment=os.environ | ({} if lake is None else lake.environment),
                tables_config=None if lake is None else lake.config_file,
            )
            view.say("without Airflow: each run starts spark_apps/flight_delays.py")
        increments = Increments(bootstrap=broker.bootstrap, airflow=runner, view=view)
        tables = _three_increments(view, increments, days)
        if with_airflow:
            _nothing_new(view, increments)
        view.heading("Check against the data set itself")
        verdict = oracle.judge(broker.bootstrap, days)
        view.verdict(verdict)
        right = lake is None or _tables_are_right(view, lake, increments, days)
        picture = _FOLDER / "flight_delays.png"
        chart.draw(picture, tables)
        view.say(f"chart: {picture.relative_to(_ROOT)}")
        if keep and isinstance(runner, LocalAirflow):
            # From here on it is up, and Ctrl-C would leave half of it.
            for ending in (signal.SIGINT, signal.SIGTERM):
                signal.signal(ending, signal.SIG_IGN)
            kept = _write_kept(broker, runner, lake, ready=True)
            children.leave()
            running.pop_all()
            view.say(f"done in {time.monotonic() - started:.0f} s; the demo stays up")
            _say_lines(view, kept)
    if not keep:
        view.say(f"done in {time.monotonic() - started:.0f} s; every process that was started is stopped")
    return 0 if right and not verdict.differences else 1


def _tables_are_right(view: View, lake: Lake, increments: Increments, days: int) -> bool:
    """Judge the tables, and ask the command that checks them."""
    finished = sorted(increments.ledger().values(), key=lambda run: run.finished_ms)
    # On the full hour the schedule itself may have got a run in between, which took an increment's records.
    runs = {run.run_id: run.empty or run.run_id == _NOTHING_NEW for run in finished}
    lines = tables_oracle.judge(lake, days, runs)
    view.comparisons(lines)
    copies = _FOLDER / "lake-copies"
    with view.console.status("asking airflow-kstreams tables, of copies that are changed by hand, too"):
        checks = list(tables_check.check_all(lake, APPLICATION_ID, increments.bootstrap, copies=copies))
    view.checks(checks)
    shutil.rmtree(copies)
    return all(line.is_equal for line in lines) and all(each.is_right for each in checks)


def _kept_file() -> Path:
    return _FOLDER / "kept.json"


def _write_kept(broker: Broker, airflow: LocalAirflow, lake: Lake | None, *, ready: bool) -> KeptDemo:
    kept = KeptDemo.of(
        {"broker": broker.pid or 0, **airflow.children.pids()},
        broker=broker.bootstrap,
        airflow=airflow.url,
        page=f"{airflow.url}/dags/{DAG_ID}/runs/increment-3",
        ready=ready,
        check="" if lake is None else tables_check.command(lake, APPLICATION_ID, broker.bootstrap),
    )
    kept.write(_kept_file())
    return kept


def _say_lines(view: View, kept: KeptDemo) -> None:
    for line in kept.lines():
        view.console.print(line, highlight=False, markup=False, soft_wrap=True)


def _is_up(view: View, kept: KeptDemo, *, wanted: bool) -> int:
    """Show the demo that is up; to start another beside it is an error."""
    if not wanted:
        raise BrokerError("a demo is up already, by --keep: stop it first with dev/demo --stop")
    view.say("the demo is up already, by an earlier --keep")
    _say_lines(view, kept)
    return 0


def _stop(view: View, kept: KeptDemo | None) -> int:
    if kept is None:
        view.say("no demo is up")
    else:
        kept.end()
        view.say(f"the demo is stopped; its logs stay in {_FOLDER.relative_to(_ROOT)}")
    _kept_file().unlink(missing_ok=True)
    return 0


def _started_airflow(
    view: View, children: Children, broker: Broker, lake: Lake | None, *, keep: bool
) -> LocalAirflow:
    airflow = LocalAirflow(
        folder=_FOLDER / "airflow",
        children=children,
        bootstrap=broker.bootstrap,
        more={} if lake is None else lake.airflow_environment,
    )
    with view.console.status("starting Airflow: scheduler, DAG processor, triggerer, API server"):
        before = time.monotonic()
        airflow.start()
        if keep:  # should this process be killed, the next one finds them by this
            _write_kept(broker, airflow, lake, ready=False)
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
    summary, seconds = increments.run(_NOTHING_NEW)
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


def _make_fresh(leftovers: KeptDemo | None) -> None:
    """Remove what an earlier demo left behind, its processes included should they still run."""
    if leftovers is not None:
        leftovers.end()
    _kept_file().unlink(missing_ok=True)
    end_leftovers("AIRFLOW_HOME", str(_FOLDER / "airflow"))
    Broker(port=0, folder=_FOLDER / "broker").wipe()
    for name in ("airflow", "logs", "lake", "lake-copies"):
        shutil.rmtree(_FOLDER / name, ignore_errors=True)
    (_FOLDER / "logs").mkdir()


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
        "--tables", action="store_true", help="let the totals land in an Iceberg and in a Delta table, too"
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--without-airflow", action="store_true", help="start the application file itself for each increment"
    )
    way.add_argument(
        "--keep", action="store_true", help="leave broker and Airflow up, and say where they are"
    )
    way.add_argument("--stop", action="store_true", help="stop what --keep left up")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
