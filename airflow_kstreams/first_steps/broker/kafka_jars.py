"""Finds the jars of Kafka's broker on this machine, and fetches them where they are missing.

Ivy fetches them, which ships inside pyspark and knows Maven Central; ``KSTREAMS_MAVEN_REPOSITORY`` names
another repository. Their folder appears once all of them are there and have the sums that stand in this
package, and they are looked at again before each start. A fetch that was cut short goes on where it was.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from airflow_kstreams.first_steps.broker.jar_sums import refusals
from airflow_kstreams.launch.java import find_java
from airflow_kstreams.streams.errors import ConfigError, require

#: Names a folder of Kafka's jars that is there already, such as ``libs`` of a Kafka that was unpacked.
LIBRARIES_VARIABLE: Final = "KSTREAMS_KAFKA_LIBS"
#: Names a Maven repository to fetch from; Maven Central by default.
REPOSITORY_VARIABLE: Final = "KSTREAMS_MAVEN_REPOSITORY"
VERSION: Final = "4.2.1"

_HERE = files(__package__)
_SUMS = _HERE / "jars.sha256"
_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
_MIRROR = """\
<ivysettings>
  <settings defaultResolver="repository"/>
  <resolvers><ibiblio name="repository" m2compatible="true" root={root}/></resolvers>
</ivysettings>
"""


def kafka_jars(environment: Mapping[str, str], java: str) -> Path:
    """Return a folder with the jars of Kafka's broker; fetch them if they are not there.

    :param environment: may name the folder or the repository.
    :param java: path of Java's command.
    :raises ConfigError: they cannot be fetched, or are not those that they should be.
    """
    if named := environment.get(LIBRARIES_VARIABLE):
        folder = Path(named)
        if not [*folder.glob("kafka-server-[0-9]*.jar")]:
            raise ConfigError(
                f"{LIBRARIES_VARIABLE} names {folder}, which holds no jars of Kafka's broker",
                fix="name the folder libs of an unpacked Kafka, or unset the variable to have them fetched",
            )
        return folder
    folder = _cache(environment) / f"libs-{VERSION}"
    if not folder.is_dir():
        with as_file(_HERE / "kafka-ivy.xml") as ivy_file:
            fetch(ivy_file, folder, _SUMS, java=java, environment=environment)
    elif wrong := [*refusals(folder, _SUMS)]:
        raise ConfigError(
            f"{folder}: {'; '.join(wrong[:3])}", fix=f"delete it, so that it is fetched anew: rm -r {folder}"
        )
    return folder


def is_fetched(environment: Mapping[str, str]) -> bool:
    """Whether nothing has to be fetched."""
    return bool(environment.get(LIBRARIES_VARIABLE)) or (_cache(environment) / f"libs-{VERSION}").is_dir()


def fetch(
    ivy_file: Path, folder: Path, sums: Traversable, *, java: str, environment: Mapping[str, str]
) -> None:
    """Fetch the jars that an Ivy file names; one process at a time, others wait for it.

    :param folder: appears once it holds exactly the jars that the sums list under its name.
    :raises ConfigError: they cannot be fetched, or are not those that they should be.
    """
    require("spark", "pyspark", what="fetching jars")
    partial, cache = folder.with_name(f"{folder.name}.partial"), folder.with_name("ivy-cache")
    with _alone(folder):
        if folder.is_dir():
            return
        shutil.rmtree(partial, ignore_errors=True)
        _retrieve(ivy_file, partial, cache, java=java, environment=environment)
        if wrong := [*refusals(partial, sums)]:
            # Another try is to fetch a refused jar anew.
            shutil.rmtree(cache, ignore_errors=True)
            shutil.rmtree(partial, ignore_errors=True)
            raise ConfigError(
                f"fetched jars are not the expected ones: {'; '.join(wrong[:3])}",
                fix="run this again, which fetches them anew; if it says the same, the repository or a proxy "
                f"before it serves other files: name another one in {REPOSITORY_VARIABLE}",
            )
        partial.rename(folder)
        shutil.rmtree(cache, ignore_errors=True)


def _retrieve(
    ivy_file: Path, folder: Path, cache: Path, *, java: str, environment: Mapping[str, str]
) -> None:
    settings = []
    if repository := environment.get(REPOSITORY_VARIABLE):
        cache.mkdir(exist_ok=True)
        mirror = cache / "settings.xml"
        mirror.write_text(_MIRROR.format(root=quoteattr(f"{repository.rstrip('/')}/")), encoding="utf-8")
        settings = ["-settings", str(mirror)]
    ended = subprocess.run(
        [
            *(java, "-cp", str(_ivy()), "org.apache.ivy.Main", "-warn", *settings),
            *("-ivy", str(ivy_file), "-cache", str(cache), "-confs", "default", "-types", "jar", "bundle"),
            *("-retrieve", f"{folder}/{_PATTERN}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise ConfigError(
            f"the jars for {folder.name.removesuffix('.partial')} cannot be fetched from "
            f"{repository or 'Maven Central'}: {_reason(ended.stdout + ended.stderr)}",
            fix="run this again where the network reaches it: what has arrived is kept; or name a Maven "
            f"repository in {REPOSITORY_VARIABLE}, or a folder of Kafka's jars in {LIBRARIES_VARIABLE}",
        )


def _reason(said: str) -> str:
    """Return the line of Ivy's output that says most."""
    lines = [line.strip().removeprefix("::").strip() for line in said.splitlines()]
    for word in ("Host ", "Server access", "ERROR", "Exception", "not found"):
        for line in lines:
            if word in line:
                return line[:200]
    return next((line for line in reversed(lines) if line), "Ivy said nothing")[:200]


def _ivy() -> Path:
    spark = find_spec("pyspark")
    for folder in () if spark is None else spark.submodule_search_locations or ():
        for jar in Path(folder, "jars").glob("ivy-*.jar"):
            return jar
    raise ConfigError(
        "pyspark is here without its jars, and Ivy is one of them: install the package pyspark anew"
    )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name("lock").open("wb")
    except OSError as error:
        raise ConfigError(
            f"cannot keep jars in {folder.parent}: {error.strerror}",
            fix="let XDG_CACHE_HOME name a folder that you may write to",
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _cache(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "airflow-kstreams")


def working_java(environment: Mapping[str, str]) -> str:
    """Return the path of a Java that can run Kafka's broker: that of ``JAVA_HOME``, or of the ``PATH``.

    :raises ConfigError: there is none, or it is older than 17.
    """
    java = find_java(environment)
    if java is None or not java.version:
        found = f"{java.path} does not run" if java else "it is neither in JAVA_HOME nor in the PATH"
        raise ConfigError(f"Java was not found: {found}", fix=_JAVA)
    if java.feature < _OLDEST_JAVA:
        raise ConfigError(
            f"{java.path} is Java {java.version}, and Kafka's broker needs {_OLDEST_JAVA}", fix=_JAVA
        )
    return java.path


_OLDEST_JAVA = 17
_JAVA = (
    "install a Java of 17 or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; Fedora, RHEL: "
    "dnf install java-17-openjdk-headless), or let JAVA_HOME name one"
)
