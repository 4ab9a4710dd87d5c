"""A whole Airflow with a broker of its own, which runs the example DAGs on real flights."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.kafka.cluster import KafkaCluster
from dev.flight_demo import oracle
from dev.flight_demo.children import Children, end_leftovers
from dev.flight_demo.data import Stretch, records
from dev.flight_demo.local_airflow import EXAMPLES, AirflowError, LocalAirflow
from dev.flight_demo.publisher import create_topics, publish
from dev.servers.embedded import Broker, free_port
from tests.conftest import Row, read_rows

APPLICATION_ID = "flight-delays"
HOURLY, REPORT, FOLLOWED = "flight_delays_hourly", "flight_delays_report", "flight_delays_followed"
TELL = "tell_new_runs"
BACKFILL, BACKFILLED = "flight_delays_backfill", "carrier-delays-backfilled"
SIDE_BY_SIDE, COPIED = "flights_copied", "flights-copied"
_CURSOR = f"{APPLICATION_ID}-finished-runs-{FOLLOWED}"
_SECONDS = 30.0


@dataclass(slots=True, kw_only=True)
class Deployment:
    """Airflow's components on a database, the example DAGs unpaused.

    :param airflow: the components.
    :param bootstrap: of the broker.
    :param lineage_file: where OpenLineage writes its events.
    :ivar days: how many days of 2013 were published.
    """

    airflow: LocalAirflow
    bootstrap: str
    lineage_file: Path
    days: int = 0
    _runs: int = field(default=0, init=False)

    def publish_day(self) -> None:
        """Publish the flights and the weather of one more day."""
        day = records(Stretch(first_day=self.days, end_day=self.days + 1))
        publish(self.bootstrap, day, on_progress=lambda _: None)
        self.days += 1

    def await_no_scheduled_run(self) -> None:
        """Wait while a scheduled run of the hourly DAG is near: it would take what a story's runs are for."""
        # Seconds: in which the scheduler has made the hour's run, and in which a story has ended.
        hour, after, before = 3600, 10, 100

        def quiet() -> bool:
            return after < time.time() % hour < hour - before and not self.airflow.unfinished_runs(HOURLY)

        self.airflow.wait(quiet, "no scheduled run is near")

    def trigger(self, run_id: str) -> str:
        """Start a dag run of the hourly DAG with a logical date in the past, and return its id."""
        self._runs += 1
        self.airflow.trigger(HOURLY, run_id, logical_date=f"2013-02-01T{self._runs:02}:00:00Z")
        return run_id

    def ended(self, dag_id: str, run_id: str) -> str:
        """Wait until a dag run has ended, and return its state."""
        over = ("success", "failed")
        self.airflow.wait(lambda: self.airflow.run_state(dag_id, run_id) in over, f"{dag_id} {run_id} ended")
        return self.airflow.run_state(dag_id, run_id)

    def succeeds(self, run_id: str) -> RunSummary:
        """Wait for a dag run of the hourly DAG that must succeed, and return what the ledger says of it."""
        state = self.ended(HOURLY, run_id)
        assert state == "success", self.airflow.log_tail(HOURLY, run_id, lines=60)
        ledger = self._ledger()
        return ledger.detailed(ledger.all_runs()[run_id])

    def finished_run(self) -> RunSummary:
        """Return the last run that was triggered, had records and is finished; make one if there is none."""
        ledger = self._ledger()
        runs = ledger.all_runs().values()
        ours = [run for run in runs if not (run.empty or run.run_id.startswith("scheduled"))]
        if ours:
            return ledger.detailed(max(ours, key=lambda run: run.finished_ms))
        self.publish_day()
        return self.succeeds(self.trigger("the-only-one"))

    def _ledger(self) -> Ledger:
        return read_ledger(KafkaCluster({"bootstrap.servers": self.bootstrap}), APPLICATION_ID)

    def results(self) -> list[Row]:
        """Return every record of the result topic."""
        rows = read_rows(self.bootstrap, "carrier-delays")
        return sorted(rows, key=lambda row: (row.partition, row.offset))

    def clear(self, run_id: str, *, only_failed: bool) -> None:
        """Clear a dag run of the hourly DAG."""
        body = {"dry_run": False, "only_failed": only_failed}
        self.airflow.call("POST", f"/dags/{HOURLY}/dagRuns/{run_id}/clear", body)

    def define_spark(self) -> None:
        """Make the connection to Spark."""
        body = {"connection_id": "spark_default", "conn_type": "spark", "host": "local[2,4]"}
        self.airflow.call("POST", "/connections", body)

    def forget_spark(self) -> None:
        """Take the connection to Spark away."""
        self.airflow.call("DELETE", "/connections/spark_default")

    def result(self, dag_id: str, run_id: str, task_id: str) -> Any:
        """Return what a task left in XCom; None if it left nothing."""
        where = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries"
        keys = [entry["key"] for entry in self.airflow.call("GET", where)["xcom_entries"]]
        return self.airflow.call("GET", f"{where}/return_value")["value"] if "return_value" in keys else None

    def differences(self, days: int) -> tuple[str, ...]:
        """Compare the carrier table with the data set's first days."""
        return oracle.judge(self.bootstrap, days).differences

    def create_backfill(self, dag_id: str, *, days: int, **more: Any) -> None:
        """Let Airflow backfill the first days of 2013, by UTC; with SQLite it may take several tries.

        :param more: further parts of the request.
        """
        self.airflow.unpause(dag_id)
        dates = {"from_date": "2013-01-01T00:00:00Z", "to_date": f"2013-01-{days:02}T00:00:00Z"}
        body = {"dag_id": dag_id, "reprocess_behavior": "failed", **dates, **more}

        def created() -> bool:
            try:
                self.airflow.call("POST", "/backfills", body)
            except AirflowError as error:
                # What Airflow says, having undone its part, when something else writes into SQLite meanwhile.
                if ": 503 " not in str(error) or "Database is locked" not in str(error):
                    raise
                return False
            return True

        self.airflow.wait(created, "the backfill is created")

    def backfilled(self, dag_id: str, *, days: int) -> None:
        """Wait until each day of a backfill has succeeded."""

        def done() -> bool:
            runs = self.airflow.call("GET", f"/dags/{dag_id}/dagRuns?limit=100")["dag_runs"]
            states = {run["dag_run_id"]: run["state"] for run in runs if run["run_type"] == "backfill"}
            failed = [run_id for run_id, state in states.items() if state == "failed"]
            assert not failed, self.airflow.log_tail(dag_id, failed[0], lines=60)
            return [*states.values()] == ["success"] * days

        self.airflow.wait(done, f"{days} days are backfilled by {dag_id}")

    def ledgers(self, prefix: str) -> dict[str, Ledger]:
        """Return the ledger of every application whose id begins so."""
        cluster = KafkaCluster({"bootstrap.servers": self.bootstrap})
        topics = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2}).list_topics(
            timeout=_SECONDS
        )
        names = [name.removesuffix("-runs") for name in topics.topics if name.endswith("-runs")]
        return {name: read_ledger(cluster, name) for name in names if name.startswith(prefix)}

    def followers(self) -> dict[str, str]:
        """Return the state of every dag run of the DAG that follows the finished runs."""
        runs = self.airflow.call("GET", f"/dags/{FOLLOWED}/dagRuns?limit=100")["dag_runs"]
        return {run["dag_run_id"]: run["state"] for run in runs}

    def told(self) -> Counter[str]:
        """Return how often each run was told by the DAG that follows them."""
        results = [self.result(FOLLOWED, run_id, TELL) for run_id in self.followers()]
        return Counter(run_id for result in results for run_id in result or ())

    def announced(self, run_id: str) -> list[dict[str, Any]]:
        """Return what the watcher's asset events say of a run."""
        events: list[dict[str, Any]] = []

        def shown() -> bool:
            try:
                events[:] = self.airflow.call("GET", "/assets/events?limit=100")["asset_events"]
            except AirflowError as error:
                if ": 500 " not in str(error):
                    raise
                # Airflow 3.3 cannot show an event as long as a run that it created has not started.
                return False
            return True

        self.airflow.wait(shown, "asset events are shown")
        payloads = [event["extra"]["payload"] for event in events if event["extra"].get("from_trigger")]
        return [payload for payload in payloads if payload["run_id"] == run_id]

    def set_cursor_back(self, run_id: str) -> None:
        """Move the watcher's cursor before a run, as if its triggerer had died before it moved."""
        topic = f"{APPLICATION_ID}-runs"
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        offset = next(row.offset for row in read_rows(self.bootstrap, topic) if row.key == run_id.encode())
        moved = ConsumerGroupTopicPartitions(_CURSOR, [TopicPartition(topic, 0, offset)])
        for future in admin.alter_consumer_group_offsets([moved]).values():
            future.result(_SECONDS)

    def lineage(self, run_id: str) -> dict[str, Any]:
        """Return OpenLineage's last event of each task of a dag run of the hourly DAG, by task id."""
        events = map(json.loads, self.lineage_file.read_text().splitlines())
        return {
            event["job"]["name"].rpartition(".")[2]: event
            for event in events
            if event["run"]["facets"].get("airflow", {}).get("dagRun", {}).get("run_id") == run_id
            and event["job"]["name"].startswith(HOURLY)
        }


@contextmanager
def deployed(
    folder: Path,
    home: Path,
    *,
    database: str = "",
    standalone: bool = False,
    dag_folders: Mapping[str, Path] = EXAMPLES,
    more: Mapping[str, str] | None = None,
) -> Iterator[Deployment]:
    """Start broker and Airflow, and unpause the example DAGs; everything ends with the block.

    :param folder: for all that they write.
    :param home: Airflow's home with the configuration, and with an empty SQLite database.
    :param database: of another database than SQLite.
    :param standalone: start the components by ``airflow standalone``.
    :param dag_folders: of the example DAGs, and more, by the names of their bundles.
    :param more: environment of all components.
    """
    logs = folder / "logs"
    logs.mkdir()
    lineage = folder / "lineage.jsonl"
    with ExitStack() as stack:
        broker = stack.enter_context(
            Broker(port=free_port(Broker.PORTS), folder=folder / "broker", heap="512m")
        )
        # Components of a standalone that ended before them are nobody's children.
        stack.callback(end_leftovers, "AIRFLOW_HOME", str(folder / "airflow"))
        children = stack.enter_context(Children(logs))
        create_topics(broker.bootstrap)
        airflow = LocalAirflow(
            folder=folder / "airflow",
            children=children,
            bootstrap=broker.bootstrap,
            config=home / "airflow.cfg",
            empty_database=home / "airflow-empty.db",
            database=database,
            standalone=standalone,
            dag_folders=dag_folders,
            more={
                # In the database instead, where a test can take it away.
                "AIRFLOW_CONN_SPARK_DEFAULT": None,
                # Parsing takes a good part of a core, and the files do not change.
                "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "300",
                # A triggerer that was killed is noticed soon.
                "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
                "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "4",
                "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                    {"type": "file", "log_file_path": str(lineage), "append": True}
                ),
                **(more or {}),
            },
        )
        airflow.start()
        deployment = Deployment(airflow=airflow, bootstrap=broker.bootstrap, lineage_file=lineage)
        deployment.define_spark()
        for dag_id in (HOURLY, REPORT, FOLLOWED):
            airflow.unpause(dag_id)
        # Its watcher begins with the parse that follows its unpausing.
        airflow.parse_again(FOLLOWED)
        yield deployment
