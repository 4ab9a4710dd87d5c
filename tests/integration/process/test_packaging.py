"""The wheel, and what it does in an environment that has nothing but what it requires."""

from __future__ import annotations

import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from airflow_kstreams import __version__
from tests.support.airflow.python_environment import PACKAGE, environment_with, install

_APPLICATION = """
from airflow_kstreams.streams import KStreamBuilder, serdes

def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("a").send_to("b")
    return builder.build()

if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
"""


#: Extra -> statements that need it.
_NEEDS = {
    "airflow": [
        "from airflow_kstreams.operators.incremental_batch import incremental_batch",
        "import airflow_kstreams.sensors.run_finished",
        "import airflow_kstreams.triggers.finished_run_watch",
        "import airflow_kstreams.decorators.kstreams",
        "import airflow_kstreams.hooks.kafka",
    ],
    "rocksdb": [
        "from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_files import require_rocksdict; "
        "require_rocksdict('s')"
    ],
    "schema-registry": [
        "from airflow_kstreams.kafka.schema_registry.binding import client_of; client_of('http://h')"
    ],
}


_TELL = """
import json, sys
told = {}
for statement in json.loads(sys.argv[1]):
    try:
        exec(statement)
    except Exception as error:
        told[statement] = str(error)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and no extra; its folder holds an application file."""
    folder = tmp_path_factory.mktemp("fresh")
    made = environment_with(folder / "environment", PACKAGE, copied=True)
    install(made, wheel)
    (folder / "app.py").write_text(_APPLICATION)
    return made


def run(python: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the environment, in the folder with the application file."""
    return subprocess.run(
        [str(python.parent / command[0]), *command[1:]],
        cwd=python.parents[2],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_wheel_is_typed_and_tells_one_version_when_it_is_built(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
        metadata = content.read(f"airflow_kstreams-{__version__}.dist-info/METADATA").decode()
    assert {"airflow_kstreams/py.typed", "airflow_kstreams/streams/hints/java_names.json"} <= names
    assert {name.partition("/")[0] for name in names} == {
        "airflow_kstreams",
        f"airflow_kstreams-{__version__}.dist-info",
    }
    assert f"\nVersion: {__version__}\n" in metadata


def test_command_works_when_no_extra_is_installed(python: Path) -> None:
    helped = run(python, "airflow-kstreams", "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "pack" in helped.stdout

    described = run(python, "airflow-kstreams", "describe", "app.py")
    assert (described.returncode, described.stderr) == (0, "")
    assert "Sub-topology: 0" in described.stdout
    drawn = run(python, "airflow-kstreams", "describe", "app.py", "--format", "svg")
    assert (drawn.returncode, drawn.stderr, drawn.stdout[:4]) == (0, "", "<svg")

    packed = run(python, "airflow-kstreams", "pack", "--output", "executors.tar.gz")
    assert (packed.returncode, packed.stderr) == (0, "")
    archive = python.parents[2] / "executors.tar.gz"
    assert f"  spark.archives={archive}#kstreams\n" in packed.stdout
    with tarfile.open(archive) as content:
        assert {"airflow_kstreams/py.typed", "msgspec/__init__.py"} <= set(content.getnames())


def test_missing_extra_is_named_when_something_needs_it(python: Path) -> None:
    statements = [statement for needing in _NEEDS.values() for statement in needing]

    done = run(python, "python", "-c", _TELL, json.dumps(statements))

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for extra, needing in _NEEDS.items():
        for statement in needing:
            assert f"pip install 'airflow-kstreams[{extra}]'" in told.get(statement, ""), statement
            if extra == "airflow":
                assert "\n" not in told[statement]


def test_extra_is_named_before_anything_begins_when_spark_is_missing(python: Path) -> None:
    done = run(
        python,
        "python",
        "app.py",
        "--application-id",
        "a",
        "--bootstrap-servers",
        "h:1",
        "--autostop-at",
        "eol",
    )

    assert done.returncode == 2, done.stderr
    said = (
        "a run needs pyspark, which is not installed here [KS-APP-002]: pip install 'airflow-kstreams[spark]'"
    )
    assert done.stderr.splitlines()[1] == said
    assert "Traceback" not in done.stderr
