from __future__ import annotations

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.topology.application_file import ApplicationFile

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


def test_struct_keeps_its_fields_when_built_from_the_text(application: ModuleType) -> None:
    source = ApplicationFile.of(application.topology)
    serde = source.topology().nodes[0].value_serde  # type: ignore[union-attr]
    assert serde.deserialize(b'{"n": 3}').n == 3


def test_function_without_a_file_is_refused_when_it_is_local() -> None:
    def topology() -> None: ...

    with pytest.raises(TopologyError, match="not a top-level function"):
        ApplicationFile.of(topology)  # type: ignore[arg-type]


def test_wrong_return_type_is_named_when_the_function_returns_no_topology(application: ModuleType) -> None:
    with pytest.raises(TopologyError, match="returned int, not a Topology"):
        ApplicationFile.of(application.not_a_topology).topology()


def test_missing_import_is_named_when_an_executor_lacks_it() -> None:
    source = ApplicationFile(filename="lacking.py", text="import no_such_module_x\n", function="t")
    with pytest.raises(TopologyError, match=r"lacking.py.*no_such_module_x"):
        source.topology()


def test_topology_is_built_by_one_thread_at_a_time(tmp_path: Path) -> None:
    text = (
        "import threading, time\n"
        "building = threading.Lock()\n"
        f"{APPLICATION}\n"
        "def alone():\n"
        "    assert building.acquire(blocking=False), 'another thread is here'\n"
        "    time.sleep(0.02)\n"
        "    building.release()\n"
        "    return topology()\n"
    )
    source = ApplicationFile(filename=str(tmp_path / "alone_application.py"), text=text, function="alone")
    with ThreadPoolExecutor(max_workers=4) as pool:
        assert len(set(pool.map(lambda _: source.topology().topology_hash(), range(4)))) == 1


def test_file_runs_once_when_several_threads_build_from_it(tmp_path: Path) -> None:
    mark = tmp_path / "runs"
    text = (
        "import pathlib, time\n"
        f"pathlib.Path({str(mark)!r}).touch(exist_ok=False)\n"
        f"time.sleep(0.05)\n{APPLICATION}"
    )
    source = ApplicationFile(filename=str(tmp_path / "threaded_application.py"), text=text)
    with ThreadPoolExecutor(max_workers=8) as pool:
        hashes = set(pool.map(lambda _: source.topology().topology_hash(), range(8)))
    assert len(hashes) == 1
    assert mark.exists()
