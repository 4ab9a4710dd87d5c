"""Brings this package to executors: builds the archive of it and its requirements, and makes the function
that Spark ships.

The archive is the tar file that ``spark.archives`` unpacks in every executor's working folder: this package
and the installed distributions that it requires, each whole, with its metadata. Spark, pandas and Arrow are
not in it: ``mapInArrow`` needs them from the cluster in any case. Compiled modules fit the Python version and
platform they were installed for, so the archive is built on a machine like the executors. Equal content gives
equal bytes.

Rule of the function: unpickling it needs no part of this package. Spark pickles a function inside another one
by value, so it arrives whole where this package is missing or of another version, and its argument is text.
It checks the package before it imports it: an executor on which no task can begin reports this in one line,
as a row that the driver raises, instead of failing with Spark's own text once for every retry.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import io
import os
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import airflow_kstreams
from airflow_kstreams import __version__
from airflow_kstreams.streams.errors import ConfigError, ExecutorSetupError, unwritable

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_kstreams.spark.executor.copy_host import CopyHost
    from airflow_kstreams.spark.executor.merge_host import MergeHost
    from airflow_kstreams.spark.executor.report_rows import ArrowFunction
    from airflow_kstreams.spark.executor.rewrite_host import RewriteHost
    from airflow_kstreams.spark.executor.task_host import TaskHost

#: Extras of this package that executors do not need.
_DRIVER_EXTRAS = frozenset({"airflow", "all", "kafka-ui", "spark", "spark35"})
#: On every executor already, and large.
_OF_THE_CLUSTER = frozenset({"numpy", "pandas", "pyarrow", "pyspark", "pyspark-client"})
_PACKAGE = "airflow-kstreams"
#: Files that modules read, below the package's folder.
_READ = ("kafka/configuration/known_settings.toml", "py.typed", "streams/hints/java_names.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An archive that was written.

    :param path: the file.
    :param distributions: name -> version of each distribution in it.
    :param size_bytes: size of the file.
    """

    path: Path
    distributions: dict[str, str]
    size_bytes: int


def build_archive(path: Path, *, extras: Sequence[str] = ()) -> Archive:
    """Write the archive.

    :param path: the ``.tar.gz`` to write.
    :param extras: extras of this package, whose requirements executors need, too: ``rocksdb``,
        ``schema-registry``.
    :raises ConfigError: an extra is unknown or of no use on executors, a requirement is not installed, a file
        of a package is a link, or the archive cannot be written.
    """
    distributions = _required(extras)
    try:
        with (
            path.open("wb") as file,
            gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for name, content in sorted(_files(distributions)):
                info = tarfile.TarInfo(name)
                data = _read(content)
                info.size, info.mode = len(data), 0o755 if name.endswith(".so") else 0o644
                tar.addfile(info, io.BytesIO(data))
    except OSError as error:
        raise unwritable(path, error) from None
    return Archive(
        path=path,
        distributions={dist.metadata["Name"]: dist.version for dist in distributions},
        size_bytes=path.stat().st_size,
    )


def _read(path: Path) -> bytes:
    """Return the bytes of a file that is no link."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        return file.read()


def _required(extras: Sequence[str]) -> list[importlib.metadata.Distribution]:
    """Return this package's distribution and, transitively, its requirements."""
    own = importlib.metadata.distribution(_PACKAGE)
    known = sorted(set(own.metadata.get_all("Provides-Extra") or ()) - _DRIVER_EXTRAS)
    unknown = sorted(set(extras) - set(known))
    if unknown:
        raise ConfigError(
            f"executors have no use for extra {unknown[0]!r}", fix=f"use one of {', '.join(known)}, or none"
        )
    found: dict[str, importlib.metadata.Distribution] = {canonicalize_name(_PACKAGE): own}
    waiting = [(own, tuple(extras))]
    while waiting:
        distribution, wanted = waiting.pop()
        for requirement in _requirements(distribution, wanted):
            name = canonicalize_name(requirement.name)
            if name in _OF_THE_CLUSTER or name in found:
                continue
            try:
                found[name] = importlib.metadata.distribution(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                raise ConfigError(
                    f"{distribution.metadata['Name']} requires {requirement}, which is not installed here",
                    fix=f"pip install '{_PACKAGE}[{','.join(extras)}]'"
                    if extras
                    else f"pip install {_PACKAGE}",
                ) from None
            waiting.append((found[name], tuple(requirement.extras)))
    return list(found.values())


def _requirements(
    distribution: importlib.metadata.Distribution, extras: Sequence[str]
) -> Iterator[Requirement]:
    for text in distribution.requires or ():
        requirement = Requirement(text)
        environments = [{"extra": extra} for extra in ("", *extras)]
        if requirement.marker is None or any(requirement.marker.evaluate(env) for env in environments):
            yield requirement


def _files(distributions: Sequence[importlib.metadata.Distribution]) -> Iterator[tuple[str, Path]]:
    """Yield name in the archive and path of every listed file; scripts and compiled Python are left out.

    :raises ConfigError: a file is a link, or lies behind one.
    """
    package = Path(airflow_kstreams.__file__).parent
    for path in _own_files(package, distributions):
        yield path.as_posix(), package.parent / path
    for distribution in distributions:
        root = Path(str(distribution.locate_file("")))
        for path in distribution.files or ():
            inside = not path.is_absolute() and ".." not in path.parts and path.parts[0] != package.name
            if inside and path.suffix not in (".pth", ".pyc") and os.path.lexists(root / path):
                _refuse_link(root, path)
                yield path.as_posix(), root / path


def _own_files(package: Path, distributions: Sequence[importlib.metadata.Distribution]) -> Iterator[PurePath]:
    """Yield this package's own files: those that its installer listed; of a checkout, which has no list, the
    modules and the files that they read.
    """
    own = next(found for found in distributions if canonicalize_name(found.metadata["Name"]) == _PACKAGE)
    listed: list[PurePath] = [
        path for path in own.files or () if path.parts[0] == package.name and path.suffix != ".pyc"
    ]
    if not listed or Path(str(own.locate_file(""))).resolve() != package.parent.resolve():
        listed = [file.relative_to(package.parent) for file in package.rglob("[!.]*.py")]
        listed += [PurePath(package.name, name) for name in _READ]
    for path in listed:
        _refuse_link(package.parent, path)
        yield path


def _refuse_link(root: Path, entry: PurePath) -> None:
    """Refuse a file that is reached through a link below the folder of all packages: what lies behind it is
    no file of the package.
    """
    for place in (entry, *entry.parents):
        if (root / place).is_symlink() and place.parts:
            raise ConfigError(
                f"{root / place} is a link, and the archive takes no file from behind one",
                fix="install the packages as plain files and pack again: pip install, or "
                "uv pip install --link-mode=copy, into a new environment",
            )


def spark_conf(name: str) -> dict[str, str]:
    """Return the Spark settings with which executors use an archive.

    :param name: path or URL of the archive, as ``spark.archives`` takes it.
    """
    folder = "kstreams"
    return {"spark.archives": f"{name}#{folder}", "spark.executorEnv.PYTHONPATH": f"./{folder}"}


def python_tag() -> str:
    """Return the Python version and platform of the archive's compiled modules."""
    return f"Python {sys.version_info.major}.{sys.version_info.minor} on {sys.platform}"


def shipped(host: TaskHost | CopyHost | MergeHost | RewriteHost) -> ArrowFunction:
    """Return the function for ``mapInArrow``: Spark partition ids in, reports out.

    :param host: the host to run; it travels as JSON.
    """
    version, text = __version__, msgspec.json.encode(host).decode()
    refusal = ExecutorSetupError("nothing can run", fix=remedy()).to_dict()

    # From here on only the standard library, and no name from outside this function.

    def lacking() -> str:
        """Return in one line why no task can run here, "" if tasks can run."""
        import os
        import sys

        here = f"executor {os.uname().nodename} (Python {sys.version.split()[0]} at {sys.executable})"
        try:
            import airflow_kstreams
        except ImportError:
            return f"{here} has no airflow_kstreams, the driver has {version}"
        found = getattr(airflow_kstreams, "__version__", "without a version")
        if found != version:
            path = next(iter(airflow_kstreams.__path__))
            return f"{here} has airflow_kstreams {found} at {path}, the driver has {version}"
        try:
            import airflow_kstreams.spark.executor.task_host  # imports all modules that a task needs
        except ImportError as error:
            missing = error.name or "a module"
            return f"{here} has airflow_kstreams {version}, but {missing} cannot be imported there: {error}"
        return ""

    def run_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cause = lacking()
        if not cause:
            from airflow_kstreams.spark.executor.task_host import run_shipped

            yield from run_shipped(text)(batches)
            return
        import json

        import pyarrow as pa

        error = {**refusal, "cause": " ".join(cause.split())}
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"report": [json.dumps({"error": error})]})

    return run_tasks


def remedy() -> str:
    """Return the remedy that brings this package to executors, in the driver's version."""
    settings = " and ".join(f"{name}={value}" for name, value in spark_conf("kstreams.tar.gz").items())
    return (
        "run `airflow-kstreams pack --output kstreams.tar.gz` with the driver's Python on a machine like the "
        f"executors and set {settings} (conf= of the operators), or install airflow-kstreams=={__version__} "
        "in the executors' Python"
    )
