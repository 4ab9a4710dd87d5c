"""An application file that another process builds from its text."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from airflow_kstreams.streams.topology.application_file import ApplicationFile
from tests.support.fresh_python import ROOT

APPLICATION = """
import msgspec
from airflow_kstreams.streams import KStreamBuilder, serdes

class Event(msgspec.Struct):
    n: int

def topology():
    builder = KStreamBuilder()
    stream = builder.stream("in", key_serde=serdes.string(), value_serde=serdes.json(Event))
    stream.filter(lambda k, e: isinstance(e, Event)).send_to("out")
    return builder.build()

def not_a_topology():
    return 7
"""


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


@pytest.fixture
def application(tmp_path: Path) -> ModuleType:
    path = tmp_path / "shipped_application.py"
    path.write_text(APPLICATION)
    return load(path)


def test_hash_is_equal_when_another_process_builds_from_the_text(
    application: ModuleType, tmp_path: Path
) -> None:
    source = ApplicationFile.of(application.topology)
    here = source.topology().topology_hash()
    script = tmp_path / "other.py"
    script.write_text(
        "from airflow_kstreams.streams.topology.application_file import ApplicationFile\n"
        f"source = ApplicationFile(filename='/nowhere/shipped_application.py', text={source.text!r}, "
        f"function={source.function!r})\nprint(source.topology().topology_hash())\n"
    )
    other = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert other.stdout.strip() == here
