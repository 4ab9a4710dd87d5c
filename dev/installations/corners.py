"""The corners of the table of supported releases (``docs/reference/installing.md``): what each installs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

#: What the table has in the place of a release that a corner does without.
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corner:
    """An installation, whole: Airflow, pyspark with its client, a broker, Python.

    :param name: by which ``dev/matrix`` runs it.
    :param airflow: release of Airflow; empty for the command line alone.
    :param pyspark: release of pyspark, and of pyspark-client if ``client``.
    :param client: whether pyspark-client is installed beside it.
    :param broker: release of Kafka.
    :param python: its first two numbers.
    :param lowest: whether every direct requirement is the oldest that ``pyproject.toml`` allows.
    :param bounds: releases of what its Airflow needs beyond which that does not start; Airflow's own
        constraints keep to them.
    :param left_out: files below ``tests/``, or beginnings of the ids of their tests, that do not run there ->
        the reason.
    """

    name: str
    airflow: str
    pyspark: str
    client: bool = True
    broker: str
    python: str
    lowest: bool = False
    bounds: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def extras(self) -> tuple[str, ...]:
        """The extras of this package that it installs: all that belong together."""
        common = ("delta", "iceberg", "otel", "rocksdb", "schema-registry")
        return (*common, "airflow", "kafka-ui", "spark") if self.airflow else (*common, "spark35")

    @property
    def shares_streams(self) -> bool:
        """Whether its Airflow has the shared streams that ``FinishedRunsTrigger`` needs."""
        return self.airflow.startswith("3.3.")

    @property
    def pins(self) -> tuple[str, ...]:
        """Requirements that say the releases."""
        if self.lowest:
            return ()
        spark = [f"pyspark=={self.pyspark}", *([f"pyspark-client=={self.pyspark}"] if self.client else [])]
        return (*([f"apache-airflow=={self.airflow}"] if self.airflow else []), *spark)

    @property
    def row(self) -> str:
        """Its line of the table."""
        spark = f"{self.pyspark}{'' if self.client else ', no Connect'}"
        cells = (f"`{self.name}`", self.airflow or NONE, spark, self.broker, self.python)
        return "| " + " | ".join(cells) + " |"


_EXAMPLES = "unit/test_examples.py::test_examples"
_OF_MODULES = f"{_EXAMPLES}_show_what_they_say_when_they_stand_in_a_docstring[airflow_kstreams"
_OF_LINKS = "unit/test_links.py::test_files_that_a_page_names_are_there"
_OF_PAGES = f"{_EXAMPLES}_run_as_they_stand_when_they_stand_in_a_page"
_NO_SHARED_STREAMS = {
    "unit/airflow/test_finished_runs.py": "FinishedRunsTrigger needs Airflow 3.3",
    "unit/airflow/test_provider_info.py": "imports FinishedRunsTrigger, which needs Airflow 3.3",
    f"{_OF_MODULES}.triggers.finished_run_watch": "FinishedRunsTrigger needs Airflow 3.3",
    f"{_OF_PAGES}[docs/reference/airflow.md]": "shows FinishedRunsTrigger, which needs Airflow 3.3",
    f"{_OF_LINKS}[airflow.md0]": "names a DAG that needs Airflow 3.3, and is taken out for the demo",
}

_NO_SCENE_OF_PAGES = {
    "unit/airflow/test_page_security.py": "makes Airflow's server and its teams as Airflow 3.3 has them",
}
_NO_TEAMS = {
    **_NO_SCENE_OF_PAGES,
    "unit/airflow/test_page_connections.py": "looks connections up by team, as Airflow does from 3.2 on",
}

#: Suites that import Airflow, and examples of the parts for it.
_OF_AIRFLOW = (
    "unit/airflow",
    "unit/batch/evidence/test_run_facts.py",
    "unit/docs/test_how_to_alerts.py",
    "unit/docs/test_how_to_clouds.py",
    "unit/docs/test_how_to_dags.py",
    "unit/kafka/test_secrets.py",
    "unit/test_packaging.py",
    "unit/test_readme.py",
    *(
        f"{_OF_MODULES}.{part}"
        for part in ("batch.report.lineage", "decorators", "operators", "sensors", "triggers")
    ),
    f"{_OF_PAGES}[docs/reference/airflow.md]",
)

CORNERS = (
    Corner(
        name="airflow-3.1",
        airflow="3.1.8",
        pyspark="4.0.4",
        broker="3.9.2",
        python="3.12",
        left_out={
            **_NO_SHARED_STREAMS,
            **_NO_TEAMS,
            "unit/airflow/test_metrics_settings.py": "compares with a function that Airflow has from 3.2 on",
        },
    ),
    Corner(
        name="airflow-3.2",
        airflow="3.2.2",
        pyspark="4.1.3",
        broker="4.0.2",
        python="3.13",
        bounds=("fastapi<0.137",),
        left_out={**_NO_SHARED_STREAMS, **_NO_SCENE_OF_PAGES},
    ),
    Corner(
        name="airflow-3.3",
        airflow="3.3.2",
        pyspark="4.2.0",
        broker="4.4.0",
        python="3.11",
    ),
    Corner(
        name="spark-3.5",
        airflow="",
        pyspark="3.5.9",
        client=False,
        broker="3.3.2",
        python="3.11",
        left_out=dict.fromkeys(_OF_AIRFLOW, "needs Airflow"),
    ),
    Corner(
        name="oldest",
        airflow="3.1.8",
        pyspark="4.0.4",
        broker="3.9.2",
        python="3.11",
        lowest=True,
        left_out={
            **_NO_SHARED_STREAMS,
            **_NO_TEAMS,
            "unit/airflow/test_metrics_settings.py": "compares with a function that Airflow has from 3.2 on",
        },
    ),
)

HEAD = ("| corner | Airflow | pyspark | broker | Python |", "| --- | --- | --- | --- | --- |")


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    yield from HEAD
    yield from (corner.row for corner in CORNERS)


def corner_of(name: str) -> Corner:
    """Return the corner of a name.

    :raises KeyError: there is none.
    """
    return {corner.name: corner for corner in CORNERS}[name]
