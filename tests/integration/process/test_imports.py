"""Importing the package must cost nothing: no network, no thread, no client, no Airflow, no Spark.

Two fresh Pythons answer all of it: a plain one, and one that has imported Airflow, whose own doings are its
own business.
"""

from __future__ import annotations

import pytest

from tests.support.fresh_python import ROOT, Answers, ask

DAGS = ("flight_delays_hourly", "flight_delays_report", "flight_delays_followed", "flight_delays_backfill")

_TOP = """
import sys
import airflow_kstreams
answer = sorted({name.partition(".")[0] for name in sys.modules})
"""

_ENGINE = """
import sys, threading
import airflow_kstreams.streams
answer = {"modules": sorted(sys.modules), "threads": threading.active_count()}
"""

_TESTING = """
import sys
import airflow_kstreams.testing
answer = sorted(sys.modules)
"""

_HELP = """
import contextlib, io, runpy, sys
sys.argv = ["airflow-kstreams", "--help"]
with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
    runpy.run_module("airflow_kstreams.cli", run_name="__main__")
answer = {"modules": sorted({name.partition(".")[0] for name in sys.modules}), "printed": printed.getvalue()}
"""

#: What is loaded for the help of all commands is loaded for the help of one of them.
_HELP_OF_EACH = """
import contextlib, io, sys
from typer.main import get_group
from airflow_kstreams.cli.app import COMMANDS, app

def ask(words):
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        app([*words, "--help"])
    return printed.getvalue()

printed = {}
for name in COMMANDS:
    printed[name] = ask([name])
    command = get_group(app).get_command(None, name)
    for below in getattr(command, "commands", {}):
        printed[f"{name} {below}"] = ask([name, below])
answer = {"modules": sorted(sys.modules), "printed": printed}
"""

#: Each name is asked for first by some module: no other may have to come before it.
_NAMES = """
import importlib, sys
homes = importlib.import_module("airflow_kstreams.streams")._HOMES
first_of_each_home = {home: name for name, home in homes.items()}
for name in first_of_each_home.values():
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == "airflow_kstreams"]:
        del sys.modules[loaded]
    getattr(importlib.import_module("airflow_kstreams.streams"), name)
module = importlib.import_module("airflow_kstreams.streams")
answer = [name for name in module.__all__ if getattr(module, name, None) is None]
"""

_MAP_BATCHES = """
import sys
from airflow_kstreams.streams import KStreamBuilder, serdes
builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
builder.stream("in").map_batches(lambda batch: batch).send_to("out")
builder.build().plan("app")
answer = sorted(sys.modules)
"""

_BATCHES_RUN = """
import sys
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.testing import TopologyTestDriver
builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
builder.stream("in").map_batches(lambda batch: batch).send_to("out")
with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    for key, value in ((None, 1), ("a", None), ("\u00e4", 1.5), ("b", True), ("", "text")):
        driver.pipe_input("in", key=key, value=value, timestamp_ms=5)
    rows = [[record.key, record.value] for record in driver.read_output("out")]
answer = {"rows": rows, "modules": sorted(sys.modules)}
"""

_TABLE_FILES = """
import sys, uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from airflow_kstreams.streams.table_plan import Column, DecimalType, ListType, MapType, StructType
from airflow_kstreams.streams.tables.table_rows import RowsWriter
from airflow_kstreams.tables.parquet.parquet_files import FileNames, FilePlan, ParquetRows
from tests.support.tables.folder_files import FolderFiles
place = StructType((Column("city", "text"), Column("fare", DecimalType(9, 2), required=False)))
kinds = ["text", "long", "double", "boolean", "binary", "date", "instant", "uuid", DecimalType(38, 2)]
kinds += [ListType("instant"), MapType("double"), place]
columns = tuple(Column(f"c{place}", kind, required=False) for place, kind in enumerate(kinds))
fields = ("bucket(4, c0)", "truncate(10, c1)", "c3", "truncate(1, c4)", "month(c5)", "hour(c6)", "c7", "c8")
now = datetime.now(UTC)
row = ("a", 1, 1.5, True, b"x", date.today(), now, uuid.uuid4(), Decimal(1))
row += ([now], {"a": 1.5}, ("b", Decimal(2)))
plan = FilePlan(columns=columns, partition_by=fields, sort_by=("c1", "c0", "c6"))
names = FileNames(RowsWriter(application_id="a", run_id="r", task_id="0_0", attempt=1))
writer = ParquetRows(FolderFiles(Path("files")), plan, names)
for each in (row, (None,) * len(row)):
    writer.add(each)
answer = {"rows": [file.rows for file in writer.take()], "modules": sorted(sys.modules)}
"""

_SCHEMA_REGISTRY = """
import socket, sys, threading
def refuse(self, *args):
    raise OSError("no network while a topology is built")
socket.socket.connect = socket.socket.connect_ex = refuse
from airflow_kstreams.kafka import schema_registry
from airflow_kstreams.streams import KStreamBuilder, serdes
registry = schema_registry.SchemaRegistry("https://registry.invalid")
builder = KStreamBuilder(default_key_serde=serdes.string())
flights = builder.stream("flights", value_serde=registry.avro('"long"'))
flights.map_values(str).send_to("out", value_serde=registry.json_schema('{"type": "string"}'))
flights.group_by_key().count(store="counts")
builder.build().plan("demo")
answer = {"modules": sorted(sys.modules), "threads": threading.active_count()}
"""

_NO_VERIFIERS = ("airflow_kstreams", "pyspark", "pyiceberg", "deltalake")
_VERIFIER = """
import sys
import dev.chaos_rounds.tables.verifier
import dev.chaos_rounds.verifier
answer = sorted(sys.modules)
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    questions = {
        "top": _TOP,
        "engine": _ENGINE,
        "testing": _TESTING,
        "help": _HELP,
        "help of each": _HELP_OF_EACH,
        "names": _NAMES,
        "map_batches": _MAP_BATCHES,
        "batches run": _BATCHES_RUN,
        "table files": _TABLE_FILES,
        "schema registry": _SCHEMA_REGISTRY,
        "verifier": _VERIFIER,
    }
    return ask(questions, home=tmp_path_factory.mktemp("home"))


def test_import_loads_no_framework_and_no_client_when_only_the_package_is_imported(plain: Answers) -> None:
    loaded = set(plain.to("top"))

    assert "airflow_kstreams" in loaded
    assert loaded.isdisjoint({"airflow", "pyspark", "confluent_kafka", "pandas", "pyarrow"})


def test_engine_stays_light_when_imported(plain: Answers) -> None:
    found = plain.to("engine")

    heavy = {"airflow", "confluent_kafka", "numpy", "pandas", "pyarrow", "pyspark", "rocksdict"}
    assert heavy.isdisjoint(found["modules"])
    assert found["threads"] == 1


def test_each_name_of_the_engine_can_be_asked_for_first(plain: Answers) -> None:
    assert plain.to("names") == []


def test_nothing_heavy_is_loaded_when_the_test_driver_is_imported(plain: Answers) -> None:
    heavy = {"airflow", "confluent_kafka", "numpy", "pandas", "pyarrow", "pyspark"}
    assert heavy.isdisjoint(plain.to("testing"))


def test_help_imports_neither_engine_nor_client_when_printed(plain: Answers) -> None:
    found = plain.to("help")

    heavy = {"airflow", "confluent_kafka", "msgspec", "pyspark", "rich"}
    assert heavy.isdisjoint(found["modules"])
    assert "describe" in found["printed"]


def test_help_of_a_command_imports_the_command_line_only_when_printed(plain: Answers) -> None:
    found = plain.to("help of each")

    ours = {name for name in found["modules"] if name.startswith("airflow_kstreams.")}
    line = (
        "airflow_kstreams.cli.app",
        "airflow_kstreams.cli.commands",
        "airflow_kstreams.cli.shared_options",
    )
    others = {name for name in ours if name != "airflow_kstreams.cli" and not name.startswith(line)}
    numbers = "airflow_kstreams.streams.figures.number_texts"
    assert others == {
        "airflow_kstreams.cli.least_acls",
        *(numbers.rsplit(".", above)[0] for above in range(3)),
    }
    heavy = {
        "airflow",
        "confluent_kafka",
        "msgspec",
        "numpy",
        "pandas",
        "psutil",
        "pyarrow",
        "pyspark",
        "rich",
    }
    assert heavy.isdisjoint(found["modules"])
    assert len(found["printed"]) > 20
    assert not [words for words, text in found["printed"].items() if f"airflow-kstreams {words}" not in text]


def test_nothing_heavy_is_imported_when_a_topology_with_batches_is_built(plain: Answers) -> None:
    assert {"pyarrow", "pandas", "numpy"}.isdisjoint(plain.to("map_batches"))


def test_pandas_is_not_imported_when_batches_hold_what_most_records_hold(plain: Answers) -> None:
    found = plain.to("batches run")

    assert found["rows"] == [[None, 1], ["a", None], ["ä", 1.5], ["b", True], ["", "text"]]
    assert "pyarrow" in found["modules"]
    assert "pandas" not in found["modules"]


def test_pandas_is_not_imported_when_rows_of_all_types_are_written_for_a_table(plain: Answers) -> None:
    found = plain.to("table files")

    assert found["rows"] == [1, 1]
    assert "pyarrow" in found["modules"]
    assert "pandas" not in found["modules"]


def test_topology_is_built_without_client_and_network_when_its_serdes_have_a_registry(plain: Answers) -> None:
    found = plain.to("schema registry")

    heavy = {"confluent_kafka", "fastavro", "httpx", "httpx2", "jsonschema", "google.protobuf", "authlib"}
    assert heavy.isdisjoint(found["modules"])
    assert found["threads"] == 1


def test_verifiers_of_chaos_rounds_know_nothing_of_the_engine_nor_of_libraries_of_tables(
    plain: Answers,
) -> None:
    loaded = plain.to("verifier")
    assert [name for name in loaded if name.startswith(_NO_VERIFIERS)] == []


# == beside Airflow

_AIRFLOW = """
import airflow.providers.apache.spark.operators.spark_submit
import airflow.triggers.base, airflow.triggers.shared_stream
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator, DAG, Param, TaskGroup, task
"""

#: Every process of Airflow loads the plugins.
_PLUGIN = """
import sys
import airflow.plugins_manager
before = set(sys.modules)
import airflow_kstreams.pages.plugin
answer = sorted(set(sys.modules) - before)
"""

_WALK = """
import importlib, pkgutil, socket, threading

touched = []
def refuse(self, *args, **kwargs):
    touched.append(repr(args))
    raise OSError("no network at import")
socket.socket.connect = socket.socket.connect_ex = socket.socket.bind = refuse
def lookup(*args, **kwargs):
    touched.append(repr(args))
    raise OSError("no network at import")
socket.getaddrinfo = lookup

before = set(threading.enumerate())
import airflow_kstreams
names = [m.name for m in pkgutil.walk_packages(airflow_kstreams.__path__, "airflow_kstreams.")]
threads = {}
for name in names:
    importlib.import_module(name)
    new = [t.name for t in threading.enumerate() if t not in before]
    if new:
        threads[name] = new
answer = {"names": names, "threads": threads, "touched": touched}
"""

#: What a triggerer imports on its event loop when it makes a trigger.
_TRIGGERS = """
import sys
before = set(sys.modules)
import airflow_kstreams.triggers.condition, airflow_kstreams.triggers.finished_run_watch
answer = sorted(set(sys.modules) - before)
"""

_DAG = """
import runpy, sys
from airflow.sdk import DAG
dags = [value for value in runpy.run_path({file!r}).values() if isinstance(value, DAG)]
top = {{name.partition(".")[0] for name in sys.modules}}
heavy = sorted(top & {{"confluent_kafka", "pyspark", "pandas", "pyarrow"}})
answer = {{"heavy": heavy, "runs_at_once": {{dag.dag_id: dag.max_active_runs for dag in dags}}}}
"""


@pytest.fixture(scope="module")
def beside_airflow(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    questions = {
        "walk": _WALK,
        "triggers": _TRIGGERS,
        "plugin": _PLUGIN,
        **{dag: _DAG.format(file=str(ROOT / "dags" / f"{dag}.py")) for dag in DAGS},
    }
    return ask(questions, home=tmp_path_factory.mktemp("home"), first=_AIRFLOW)


def test_import_touches_no_network_and_starts_no_thread_when_every_module_is_imported(
    beside_airflow: Answers,
) -> None:
    found = beside_airflow.to("walk")

    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "airflow_kstreams").rglob("*.py")
    }
    assert {*found["names"], "airflow_kstreams"} == files
    assert found["threads"] == {}
    assert found["touched"] == []


def test_a_triggerer_loads_neither_the_dsl_nor_a_client_when_it_makes_a_trigger(
    beside_airflow: Answers,
) -> None:
    loaded = beside_airflow.to("triggers")

    parts = [".".join(name.split(".")[:3]) for name in loaded]
    assert {"airflow_kstreams.streams.kstream", "airflow_kstreams.streams.state"}.isdisjoint(parts)
    assert "confluent_kafka" not in loaded


def test_every_process_of_airflow_imports_little_when_it_loads_the_plugin(beside_airflow: Answers) -> None:
    package = "airflow_kstreams"

    assert set(beside_airflow.to("plugin")) <= {package, f"{package}.pages", f"{package}.pages.plugin"}


@pytest.mark.parametrize("dag", DAGS)
def test_dag_file_loads_nothing_heavy_when_airflow_is_loaded(dag: str, beside_airflow: Answers) -> None:
    found = beside_airflow.to(dag)

    assert found["runs_at_once"] == {dag: 1}, "runs of a shipped DAG go one after the other"
    assert found["heavy"] == []
