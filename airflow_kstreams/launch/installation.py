"""Says with which releases this package is proven, and refuses what cannot work, by name.

``dev/matrix`` runs a whole installation for each line of the table in ``docs/reference/installing.md``. The
bounds here, those of ``pyproject.toml`` and the table are the same. What lies outside may work: only
Airflow before 3.1 and pyspark before 3.5 are refused, and ``doctor`` names the rest.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from airflow_kstreams.streams.errors import ConfigError, require

#: The proven releases: those between two that were run are taken to be like them.
PROVEN = {
    "Python": SpecifierSet(">=3.11,<3.14"),
    "apache-airflow": SpecifierSet(">=3.1.8,<3.4"),
    "pyspark": SpecifierSet(">=3.5.9,<=4.2.0"),
    "pyspark-client": SpecifierSet(">=4.0.4,<=4.2.0"),
}
#: Below it the names that operators are made of do not exist.
_OLDEST_AIRFLOW = Version("3.1")
#: Below it pyspark does not know the Pythons that this package needs.
_OLDEST_PYSPARK = Version("3.5")
#: Distributions that install the same files.
_SHARING = ("pyspark", "pyspark-client")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A part of this installation.

    :param name: name of the distribution, or ``Python``.
    :param version: its version.
    :param proven: the releases with which this package is proven.
    """

    name: str
    version: str
    proven: SpecifierSet

    @property
    def is_proven(self) -> bool:
        """Whether the version is one of them."""
        return self.proven.contains(self.version, prereleases=True)


def installed() -> Iterator[Installed]:
    """Yield the parts of this installation that the table has a column for."""
    for name, proven in PROVEN.items():
        found = platform.python_version() if name == "Python" else version_of(name)
        if found is not None:
            yield Installed(name=name, version=found, proven=proven)


def version_of(distribution: str) -> str | None:
    """Return the version of a distribution, None if it is not installed."""
    with suppress(PackageNotFoundError):
        return version(distribution)
    return None


def require_airflow(*modules: str, what: str, found: Callable[[str], str | None] = version_of) -> None:
    """Check that Airflow is here, in a release that this package can work with, without importing it.

    :param modules: modules that are needed besides ``airflow.sdk``.
    :param what: the part that needs them, for the message.
    :param found: gives a distribution's version.
    :raises ConfigError: Airflow is older than 3.1.
    :raises MissingExtraError: a module is not installed.
    """
    airflow = found("apache-airflow-core") or found("apache-airflow")
    if airflow is not None and is_older(airflow, _OLDEST_AIRFLOW):
        raise ConfigError(
            f"{what} needs Airflow {_OLDEST_AIRFLOW} or newer, and Airflow {airflow} is installed here",
            fix="pip install 'airflow-kstreams[airflow]' beside a newer Airflow "
            "(docs/reference/installing.md has the releases that are proven together), or run applications "
            "without Airflow: python APPLICATION.py",
        )
    require("airflow", "airflow.sdk", *modules, what=what)


def refuse_unfit_pyspark(found: Callable[[str], str | None] = version_of) -> None:
    """Refuse a ``pyspark`` that this package cannot work with, without importing it.

    :param found: gives a distribution's version.
    :raises ConfigError: it is older than 3.5, or a ``pyspark-client`` of another version is beside it.
    """
    spark = found("pyspark")
    if spark is not None and is_older(spark, _OLDEST_PYSPARK):
        raise ConfigError(
            f"runs need pyspark {_OLDEST_PYSPARK} or newer, and pyspark {spark} is installed here",
            fix="pip install 'airflow-kstreams[spark]', or 'airflow-kstreams[spark35]' where executors have "
            "Spark 3.5 (docs/reference/installing.md has the releases that are proven together)",
        )
    if (mixed := mixed_pyspark(found)) is not None:
        raise mixed


def mixed_pyspark(found: Callable[[str], str | None] = version_of) -> ConfigError | None:
    """Return the error of ``pyspark`` beside a ``pyspark-client`` of another version, None if there is none.

    They have their files in common, and whichever was installed last has overwritten the other's.
    """
    spark, client = map(found, _SHARING)
    if spark is None or client is None or spark == client:
        return None
    return ConfigError(
        f"pyspark {spark} and pyspark-client {client} are installed in one environment, and overwrite each "
        "other's files",
        fix="install one version of both: pip install --force-reinstall --no-deps "
        f"pyspark=={client} pyspark-client=={client}",
    )


def is_older(text: str, than: Version) -> bool:
    """Return True if a version is older than a release; one that cannot be read is not."""
    try:
        return Version(text) < than
    except InvalidVersion:
        return False
