"""Python environments of their own, made in a second from what is installed here, for tests of what happens
where something is not installed. Nothing is downloaded: distributions are linked, or copied where a test is
to find plain files.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PACKAGE = "airflow-kstreams"
_SITE = Path(sysconfig.get_paths()["purelib"])
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"


def environment_with(folder: Path, *names: str, copied: bool = False) -> Path:
    """Make an environment with some distributions and what they require; returns its Python.

    :param names: as requirements, ``name[extra]``; none of them gives the standard library alone.
    :param copied: whether their files are plain ones, as an installer leaves them.
    """
    python, site = _empty(folder)
    for distribution in _closure(names):
        for entry in {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}:
            if not (site / entry).exists():
                (_copy if copied else _link)(_SITE / entry, site / entry)
    return python


def environment_without(folder: Path, *names: str) -> Path:
    """Make an environment with all there is here, without some distributions and without this package;
    returns its Python.
    """
    python, site = _empty(folder)
    hidden = {
        _SITE / file
        for name in (PACKAGE, *names)
        for file in importlib.metadata.distribution(name).files or ()
    }
    _link_tree(_SITE, site, hidden, {parent for file in hidden for parent in file.parents})
    return python


def build_wheel(folder: Path, *, version: str = "") -> Path:
    """Build this checkout's wheel.

    :param version: another one than the checkout's.
    """
    source = ROOT
    if version:
        source = folder / "source"
        source.mkdir()
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "airflow_kstreams", source / "airflow_kstreams", ignore=ignored)
        own = source / "airflow_kstreams" / "__init__.py"
        lines = own.read_text(encoding="utf-8").splitlines()
        kept = [f'__version__ = "{version}"' if line.startswith("__version__") else line for line in lines]
        own.write_text("\n".join(kept) + "\n", encoding="utf-8")
    target = folder / "dist"
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)], cwd=source)
    (wheel,) = target.glob("*.whl")
    return wheel


def install(python: Path, wheel: Path, *, extras: str = "", dependencies: bool = True) -> None:
    """Install a wheel into an environment, from what is there; fails when it requires more than that.

    :param extras: comma between.
    :param dependencies: whether what it requires must be there.
    """
    uv = Path(sys.executable).parent / "uv"
    how = ["--offline", "--quiet", "--no-cache", "--python", str(python)]
    what = f"{PACKAGE}[{extras}] @ {wheel.as_uri()}"
    _run([str(uv), "pip", "install", *how, *([] if dependencies else ["--no-deps"]), what])


def _empty(folder: Path) -> tuple[Path, Path]:
    venv.create(folder, symlinks=True, with_pip=False)
    return folder / "bin" / "python", folder / "lib" / _PYTHON / "site-packages"


def _closure(names: Iterable[str]) -> list[importlib.metadata.Distribution]:
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [Requirement(name) for name in names]
    seen: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        if wanted.name == PACKAGE:
            waiting += map(Requirement, _own_requirements(wanted.extras))
            continue
        distribution = importlib.metadata.distribution(wanted.name)
        found[canonicalize_name(wanted.name)] = distribution
        for requirement in map(Requirement, distribution.requires or ()):
            extras = [{"extra": extra} for extra in ("", *wanted.extras)]
            if requirement.marker is None or any(requirement.marker.evaluate(extra) for extra in extras):
                requirement.marker = None
                waiting.append(requirement)
    return list(found.values())


def _own_requirements(extras: Iterable[str]) -> list[str]:
    """Return what this checkout requires; what is installed here may say what an older one did."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(name for extra in extras for name in optional[extra])]


def _link_tree(source: Path, target: Path, hidden: set[Path], mixed: set[Path]) -> None:
    for entry in source.iterdir():
        if entry in hidden or (source in mixed and entry.name == "__pycache__"):
            continue
        if entry in mixed:
            made = target / entry.name
            made.mkdir()
            _link_tree(entry, made, hidden, mixed)
            if not any(made.iterdir()):
                made.rmdir()
        else:
            _link(entry, target / entry.name)


def _copy(entry: Path, target: Path) -> None:
    if entry.is_dir():
        shutil.copytree(entry, target)
    else:
        shutil.copy(entry, target)


def _link(entry: Path, link: Path) -> None:
    if entry.suffix == ".dist-info":
        shutil.copytree(entry, link)  # uv does not see linked ones
    else:
        link.symlink_to(entry)


def _run(command: list[str], cwd: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[:4]} failed: {done.stdout}\n{done.stderr}")
