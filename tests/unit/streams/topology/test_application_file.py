from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from tests.support.remedies import walked
from tests.support.topology.application_files import SHIPPED, load, write_application


@pytest.fixture
def application(tmp_path: Path) -> ModuleType:
    return load(write_application(tmp_path, SHIPPED, "shipped_application.py"))


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
        f"{SHIPPED}\n"
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
        f"time.sleep(0.05)\n{SHIPPED}"
    )
    source = ApplicationFile(filename=str(tmp_path / "threaded_application.py"), text=text)
    with ThreadPoolExecutor(max_workers=8) as pool:
        hashes = set(pool.map(lambda _: source.topology().topology_hash(), range(8)))
    assert len(hashes) == 1
    assert mark.exists()


EXITING = "raise SystemExit(0)\n"
MAIN = 'if __name__ == "__main__":\n    raise SystemExit(0)\n'


def written(folder: Path, text: str = "", *, name: str = "told_application.py") -> Path:
    """Write the application with more lines behind it."""
    (folder / name).write_text(f"{SHIPPED}\n{text}")
    return folder / name


def inputs(file: ApplicationFile) -> tuple[str, ...]:
    return file.topology().plan("app").inputs


def of_function(name: str, folder: Path) -> tuple[str, ...]:
    module = load(written(folder, "made = lambda: topology()\n", name=f"function_{name}.py"))
    return inputs(ApplicationFile.of(getattr(module, name)))


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        walked(
            "application_file.ApplicationFile.read",
            lambda folder: inputs(ApplicationFile.read(folder / "apps.py")),
            lambda folder: inputs(ApplicationFile.read(written(folder))),
        ),
        walked(
            "application_file.ApplicationFile.of",
            lambda folder: of_function("made", folder),
            lambda folder: of_function("topology", folder),
        ),
        walked(
            "application_file.ApplicationFile.topology: define",
            lambda folder: inputs(ApplicationFile.read(written(folder, "del topology"))),
            lambda folder: inputs(ApplicationFile.read(written(folder))),
        ),
        walked(
            "application_file.ApplicationFile.topology: end the function",
            lambda folder: inputs(ApplicationFile.read(written(folder, "topology = not_a_topology"))),
            lambda folder: inputs(ApplicationFile.read(written(folder))),
        ),
        walked(
            "application_file.ApplicationFile._run",
            lambda folder: inputs(ApplicationFile.read(written(folder, name="json.py"))),
            lambda folder: inputs(ApplicationFile.read(written(folder, name="json_application.py"))),
        ),
        walked(
            "application_file.ApplicationFile._as_topology_error: start the run",
            lambda folder: inputs(ApplicationFile.read(written(folder, EXITING))),
            lambda folder: inputs(ApplicationFile.read(written(folder, MAIN))),
        ),
        walked(
            "application_file.ApplicationFile._as_topology_error: correct that line",
            lambda folder: inputs(ApplicationFile.read(written(folder, "import no_such_module_x"))),
            lambda folder: inputs(ApplicationFile.read(written(folder, "import json"))),
        ),
    ],
)
def test_application_file_is_read_when_it_is_written_as_the_error_says(
    fault: Callable[[Path], object], told: Callable[[Path], object], tmp_path: Path
) -> None:
    with pytest.raises(TopologyError):
        fault(tmp_path)
    assert told(tmp_path) == ("in",)
