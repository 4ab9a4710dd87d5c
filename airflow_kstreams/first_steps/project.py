"""Writes the files of a first project: application, test, DAG, connections, and records to try it with.

The files come from the templates beside this module, which hold placeholders for little more than names. All
of them are written, or none: a file that exists is never touched.
"""

from __future__ import annotations

import json
import keyword
import re
import shlex
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final, Literal

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import check_application_id

Example = Literal["orders", "flights", "empty"]

_TEMPLATES = files(__package__) / "templates"
_SPARK = {"conn_type": "spark", "host": "local[2,4]"}
#: What Airflow calls a schedule besides a cron expression of five fields, and besides None.
_PRESETS = ("@once", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly", "@continuous")
_CRON = re.compile(r"[\w*/,#?-]+( [\w*/,#?-]+){4}", re.ASCII)
#: Packages that a project meets where it runs, though they need not be installed where it is written.
_WHERE_IT_RUNS = frozenset({"airflow", "confluent_kafka", "pandas", "pyarrow", "pyspark"})
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleRecords:
    """The file of records that an example has, and the fields by which it is published.

    :param file: its name.
    :param key, time: fields that hold each record's key and time.
    """

    file: str
    key: str
    time: str = "at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The answers that a first project is written from.

    :param example: the topology that it begins with.
    :param bootstrap_servers: Kafka's address, ``host:port[,host:port]``.
    :param schedule: of the DAG: a cron expression, a preset such as ``@hourly``, or ``none``.
    :raises ConfigError: the id, the schedule or an address is not valid.
    """

    example: Example
    application_id: str
    bootstrap_servers: str
    schedule: str

    def __post_init__(self) -> None:
        check_application_id(self.application_id)
        check_schedule(self.schedule)
        check_addresses(self.bootstrap_servers)

    @property
    def module(self) -> str:
        """Name of the application's module, of its DAG, and of their files."""
        name = re.sub(r"\W", "_", self.application_id, flags=re.ASCII).lower()
        if not name.isidentifier() or keyword.iskeyword(name):
            name = f"app_{name}"
        # A file of this name would hide a module that others import.
        return f"{name}_app" if name.startswith("test_") or _is_installed(name) else name

    @property
    def topics(self) -> tuple[str, str]:
        """The topic that the application reads, and the one that it writes."""
        match self.example:
            case "orders":
                return "orders", "customer-totals"
            case "flights":
                return "flights", "carrier-days"
            case "empty":
                return f"{self.application_id}-in", f"{self.application_id}-out"

    @property
    def records(self) -> ExampleRecords:
        """The records that the example has."""
        return _RECORDS[self.example]

    def texts(self) -> dict[str, str]:
        """Return the text of each file, by its path below the project's folder."""
        kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": self.bootstrap_servers}}
        own, shared = _TEMPLATES / self.example, _TEMPLATES / "shared"
        names = {
            "module": self.module,
            "application_id": self.application_id,
            "schedule": "None" if self.schedule == "none" else json.dumps(self.schedule),
            "bootstrap_servers": shlex.quote(self.bootstrap_servers),
            "kafka_connection": shlex.quote(json.dumps(kafka)),
            "spark_connection": shlex.quote(json.dumps(_SPARK)),
        }
        templates = {
            f"{self.module}.py": own / "application.py.template",
            f"test_{self.module}.py": own / "test.py.template",
            f"dags/{self.module}_dag.py": shared / "dag.py.template",
            "connections.env": shared / "connections.env.template",
        }
        texts = {
            path: Template(template.read_text("utf-8")).substitute(names)
            for path, template in templates.items()
        }
        return texts | {self.records.file: (own / self.records.file).read_text("utf-8")}

    def write(self, folder: Path) -> list[Path]:
        """Write the project's files; the folder is made where it is missing.

        :return: what was written.
        :raises ConfigError: a file exists already, or cannot be written; then nothing was.
        """
        texts = {folder / path: text for path, text in self.texts().items()}
        if found := [str(path) for path in texts if path.exists() or path.is_symlink()]:
            raise ConfigError(
                f"nothing was written, because this exists already: {', '.join(found)}",
                fix="name another folder, or move what is there away",
            )
        written: list[Path] = []
        try:
            for path, text in texts.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("x", encoding="utf-8") as file:
                    written.append(path)
                    file.write(text)
        except OSError as error:
            for path in written:
                path.unlink(missing_ok=True)
            raise ConfigError(
                f"nothing was written: {error.filename or folder}: {error.strerror or error}",
                fix="name a folder that you may write to",
            ) from None
        return written


#: Each example's records.
_RECORDS: Final[Mapping[Example, ExampleRecords]] = {
    "orders": ExampleRecords(file="records.jsonl", key="order"),
    "flights": ExampleRecords(file="records.csv", key="origin"),
    "empty": ExampleRecords(file="records.jsonl", key="id"),
}


def check_schedule(schedule: str) -> None:
    """Refuse a schedule that Airflow would not take.

    :raises ConfigError: it is neither cron, nor a preset, nor ``none``.
    """
    if schedule != "none" and schedule not in _PRESETS and not _CRON.fullmatch(schedule):
        raise ConfigError(
            f"{schedule!r} is no schedule of Airflow's",
            fix=f"give five fields of cron, as '0 * * * *', or one of {', '.join((*_PRESETS, 'none'))}",
        )


def check_addresses(servers: str) -> None:
    """Refuse what cannot be the addresses of brokers.

    :raises ConfigError: an address is not ``host:port``.
    """
    for server in servers.split(","):
        if not _ADDRESS.fullmatch(server.strip()):
            raise ConfigError(
                f"{server!r} is no address of a broker", fix="give host:port, or several with commas between"
            )


def _is_installed(name: str) -> bool:
    """Whether Python or a package has a module of this name, installed here or where the project will run."""
    folders = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    if name in sys.stdlib_module_names or name in _WHERE_IT_RUNS:
        return True
    return PathFinder.find_spec(name, folders) is not None
