"""A real Airflow on this machine: scheduler, DAG processor, triggerer and API server, on a fresh database."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dev.flight_demo.children import Children
from dev.servers.embedded import HOST, free_port

_ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 180.0
#: A server that has just started makes its routes first: half a minute where the machine is busy.
_REQUEST_SECONDS = 60.0
_LOCK_SECONDS = 15
#: The folder of the example DAGs, by the name of its bundle.
EXAMPLES = {"examples": _ROOT / "dags"}
#: Python modules that Airflow finds in its home.
_LOCAL_SETTINGS = Path(__file__).parent / "airflow_config"
_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"
_PROGRAMS = Path(sys.executable).parent
_STANDALONE = "standalone"
#: With their options. Logs are read from their files: a server of logs would listen beyond this machine.
_COMPONENTS: dict[str, tuple[str, ...]] = {
    "api-server": (),
    "scheduler": ("--skip-serve-logs",),
    "dag-processor": (),
    "triggerer": ("--skip-serve-logs",),
}
#: As the REST API calls what has a health.
_HEALTHY_PARTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")
_SINGLE_USER = {
    "AIRFLOW__CORE__AUTH_MANAGER": (
        "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager"
    ),
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
}


class AirflowError(Exception):
    """Airflow did not do what was asked of it; the text says what, and where its logs are."""


def dag_bundles(folders: Mapping[str, Path]) -> str:
    """Return Airflow's setting of the folders of DAGs, by the names of their bundles."""
    bundles = folders.items()
    return json.dumps(
        [{"name": name, "classpath": _BUNDLE, "kwargs": {"path": str(path)}} for name, path in bundles]
    )


def add_local_settings(home: Path) -> None:
    """Let an Airflow that is thrown away not wait for the disk (``airflow_local_settings.py`` says why)."""
    shutil.copytree(_LOCAL_SETTINGS, home / "config", ignore=shutil.ignore_patterns("__pycache__"))


@dataclass(slots=True, kw_only=True)
class LocalAirflow:
    """Airflow's components as child processes, and a client of its REST API.

    :param folder: everything it writes.
    :param children: starts and ends its processes.
    :param bootstrap: of the broker behind the connection ``kafka_default``.
    :param config: an ``airflow.cfg``; the environment has the last word.
    :param empty_database: a SQLite database without history, which is copied.
    :param database: SQLAlchemy's address of a database without history, to use instead of a copy.
    :param standalone: start the components by ``airflow standalone``, not one by one.
    :param dag_folders: where the DAGs are, by the names of their bundles.
    :param more: environment of all components besides what they need; None takes a variable away.
    """

    folder: Path
    children: Children
    bootstrap: str
    config: Path = _ROOT / ".airflow" / "airflow.cfg"
    empty_database: Path = _ROOT / ".setup" / "airflow-empty.db"
    database: str = ""
    standalone: bool = False
    dag_folders: Mapping[str, Path] = field(default_factory=lambda: EXAMPLES)
    more: Mapping[str, str | None] = field(default_factory=dict)
    _port: int = 0
    _token: str = field(default="", repr=False)
    #: Environment of all components: secrets that each would make up for itself are in it.
    _shared: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def url(self) -> str:
        """Where its pages are."""
        return f"http://{HOST}:{self._port}"

    @property
    def times_file(self) -> Path:
        """Where the demo's listener notes how long tasks ran."""
        return self.folder / "execute-times.jsonl"

    def start(self) -> None:
        """Start all components and wait until they are healthy.

        :raises AirflowError: one of them ended, or they are not healthy in time.
        """
        self.folder.mkdir(parents=True)
        shutil.copy(self.config, self.folder / "airflow.cfg")
        add_local_settings(self.folder)
        if not self.database:
            shutil.copy(self.empty_database, self.folder / "airflow.db")
        self._port = free_port()
        self._shared = self._environment()
        if self.standalone:
            # It ends its components when it is interrupted, as by Ctrl-C; another signal leaves them behind.
            self._start(_STANDALONE, end_by=signal.SIGINT)
        else:
            for component in _COMPONENTS:
                self.start_component(component)
        for part in _HEALTHY_PARTS:
            self.wait(partial(self._is_healthy, part), f"{part} is healthy")

    def start_component(self, component: str) -> None:
        """Start one component, without waiting for it."""
        self._start(component, end_by=signal.SIGTERM)

    def kill_component(self, component: str) -> None:
        """End one component and what it has started at once, as ``kill -9`` does."""
        if self.children.is_running(component):
            self.children.kill(component)
        else:
            self.children.kill_part(_STANDALONE, component)

    def _start(self, command: str, *, end_by: signal.Signals) -> None:
        line = [str(_PROGRAMS / "airflow"), command, *_COMPONENTS.get(command, ())]
        self.children.start(command, line, self._shared, end_by=end_by)

    def unpause(self, dag_id: str) -> None:
        """Wait until a DAG is parsed, then let the scheduler run it.

        :raises AirflowError: the DAG file does not import, or is not parsed in time.
        """
        self.wait(lambda: self._is_known(dag_id), f"DAG {dag_id} is parsed")
        self.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})

    def parse_again(self, dag_id: str) -> None:
        """Ask the DAG processor to parse the DAG's file soon, whether it has changed or not."""
        token = self.call("GET", f"/dags/{dag_id}")["file_token"]
        self.call("PUT", f"/parseDagFile/{token}")

    def trigger(
        self,
        dag_id: str,
        run_id: str,
        params: Mapping[str, str] | None = None,
        *,
        logical_date: str | None = None,
    ) -> None:
        """Trigger a dag run."""
        body = {"dag_run_id": run_id, "logical_date": logical_date, "conf": dict(params or {})}
        self.call("POST", f"/dags/{dag_id}/dagRuns", body)

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return the state of a dag run: ``queued``, ``running``, ``success`` or ``failed``."""
        self._check_processes()
        state: str = self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"]
        return state

    def unfinished_runs(self, dag_id: str) -> int:
        """Return how many dag runs are queued or running."""
        count: int = self.call("GET", f"/dags/{dag_id}/dagRuns?state=queued&state=running")["total_entries"]
        return count

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Return task id -> state."""
        tasks = self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return {task["task_id"]: task["state"] or "waiting" for task in tasks}

    def execute_seconds(self, run_id: str) -> dict[str, float]:
        """Return task id -> seconds its ``execute`` took, of a finished dag run."""
        lines = self.times_file.read_text().splitlines() if self.times_file.exists() else []
        times = [json.loads(line) for line in lines]
        return {time["task_id"]: time["seconds"] for time in times if time["run_id"] == run_id}

    def log_tail(self, dag_id: str, run_id: str, *, lines: int = 15) -> list[str]:
        """Return the end of the log of the first failed task of a dag run."""
        for task in self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]:
            if task["state"] in ("failed", "up_for_retry"):
                return self.task_log(dag_id, run_id, task["task_id"], task["try_number"])[-lines:]
        return []

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> list[str]:
        """Return the messages of a task's log."""
        where = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        return [line for entry in self.call("GET", where)["content"] for line in _log_lines(entry)]

    def _environment(self) -> dict[str, str]:
        log_port = free_port()
        spark = {"conn_type": "spark", "host": "local[2,4]"}
        kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": self.bootstrap}}
        given = os.environ | {
            # Where ``airflow standalone`` finds Airflow.
            "PATH": os.pathsep.join((str(_PROGRAMS), os.environ.get("PATH", os.defpath))),
            "AIRFLOW_HOME": str(self.folder),
            **_SINGLE_USER,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.database or self._sqlite(),
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": dag_bundles(self.dag_folders),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(Path(__file__).parent / "airflow_plugins"),
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            # The first task of a server waits until that has made its routes: seconds, or half a minute where
            # the machine is busy, in which five attempts of 5 s each, the default, are over.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            "AIRFLOW__API__HOST": HOST,
            "AIRFLOW__API__PORT": str(self._port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            # Given to all components, because each would make up its own.
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.folder / "logs"),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(log_port),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(log_port + 1),
            "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps(kafka),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
            "KSTREAMS_DEMO_EXECUTE_TIMES": str(self.times_file),
            **self.more,
        }
        return {name: value for name, value in given.items() if value is not None}

    def _sqlite(self) -> str:
        # One writes at a time, and a busy machine's disk makes the others wait for longer than SQLite's 5 s.
        return f"sqlite:///{self.folder / 'airflow.db'}?timeout={_LOCK_SECONDS}"

    def _is_healthy(self, part: str) -> bool:
        try:
            health = self.call("GET", "/monitor/health")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return (health.get(part) or {}).get("status") == "healthy"

    def _is_known(self, dag_id: str) -> bool:
        errors = self.call("GET", "/importErrors")["import_errors"]
        if errors:
            raise AirflowError(f"{errors[0]['filename']} does not import: {errors[0]['stack_trace'].strip()}")
        return any(dag["dag_id"] == dag_id for dag in self.call("GET", "/dags")["dags"])

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is so; a question that the API server leaves unanswered is asked again.

        :raises AirflowError: a component ended, or it is not so in time.
        """
        deadline = time.monotonic() + _START_SECONDS

        def is_so() -> bool:
            with suppress(TimeoutError):
                return condition()
            return False

        while not is_so():
            self._check_processes()
            if time.monotonic() > deadline:
                raise AirflowError(
                    f"Airflow: after {_START_SECONDS:.0f} s it is still not so that {what}; "
                    f"{self.children.last_words()}"
                )
            time.sleep(0.3)

    def _check_processes(self) -> None:
        name = self.children.ended()
        if name is not None:
            raise AirflowError(f"airflow {name} ended; {self.children.last_words()}")

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Ask the REST API; answers decoded JSON, or None where there is no content."""
        content = self._send(method, f"/api/v2{path}", body, token=self._logged_in())
        return json.loads(content) if content else None

    def page(self, path: str) -> str:
        """Return a page of the API server."""
        return self._send("GET", path, None, token=self._logged_in()).decode()

    def _logged_in(self) -> str:
        if not self._token:
            self._token = json.loads(self._send("GET", "/auth/token", None))["access_token"]
        return self._token

    def _send(self, method: str, path: str, body: dict[str, Any] | None, *, token: str = "") -> bytes:
        request = urllib.request.Request(self.url + path, method=method)  # noqa: S310 - always our own server
        request.add_header("Accept", "application/json")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS) as answer:  # noqa: S310 - as above
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            raise AirflowError(f"{method} {path}: {error.code} {error.read().decode()[:500]}") from None


def _log_lines(entry: dict[str, Any]) -> list[str]:
    """Turn one entry of a task's log into text; Airflow keeps exceptions apart from the message."""
    failures = [f"{error['exc_type']}: {error['exc_value']}" for error in entry.get("error_detail") or ()]
    return [line for text in (entry.get("event", ""), *failures) for line in str(text).splitlines()]
