"""The Java and the Ivy that a local broker needs, played by scripts."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from airflow_kstreams.first_steps.broker.kafka_jars import fetch, working_java
from airflow_kstreams.streams.errors import ConfigError


@pytest.mark.remedy("kafka_jars._retrieve")
@pytest.mark.parametrize(
    ("repository", "named"),
    [("", "Maven Central"), ("https://mirror.example/jars/", "https://mirror.example/jars")],
)
def test_ivy_fails_with_what_it_says_when_nothing_answers(
    repository: str, named: str, tmp_path: Path
) -> None:
    java = tmp_path / "java"
    java.write_text(
        "#!/bin/sh\necho; echo ':: problems summary ::'; echo '\t\tHost mirror.example not found.'\n"
        f'echo "$@" > {tmp_path}/arguments; exit 1\n'
    )
    java.chmod(stat.S_IRWXU)

    with pytest.raises(ConfigError) as refused:
        fetch(
            Path("any.xml"),
            tmp_path / "new" / "libs-1",
            tmp_path / "sums",
            java=str(java),
            environment={"KSTREAMS_MAVEN_REPOSITORY": repository},
        )

    assert f"for libs-1 cannot be fetched from {named}" in refused.value.cause
    assert "Host mirror.example not found." in refused.value.cause
    settings = tmp_path / "new" / "ivy-cache" / "settings.xml"
    assert settings.exists() == bool(repository) == (str(settings) in (tmp_path / "arguments").read_text())
    if repository:
        assert 'root="https://mirror.example/jars/"' in settings.read_text()


@pytest.mark.remedy("kafka_jars.working_java")
@pytest.mark.parametrize(
    ("version", "cause"),
    [
        ("11.0.2", r"is Java 11\.0\.2, and Kafka's broker needs 17"),
        ("1.8.0_1", "is Java 1.8"),
        ("", "does not run"),
    ],
)
def test_java_is_refused_when_it_is_too_old_or_broken(version: str, cause: str, tmp_path: Path) -> None:
    home = java_home(tmp_path, version)
    with pytest.raises(ConfigError, match=cause):
        working_java({"JAVA_HOME": str(home)})
    with pytest.raises(ConfigError, match="neither in JAVA_HOME nor in the PATH") as refused:
        working_java({"PATH": str(tmp_path / "nowhere")})
    assert "apt-get install openjdk-17" in refused.value.fix


@pytest.mark.parametrize("version", ["17.0.15", "21", "22-ea"])
def test_java_is_taken_when_it_is_new_enough(version: str, tmp_path: Path) -> None:
    home = java_home(tmp_path, version)
    assert working_java({"JAVA_HOME": str(home)}) == str(home / "bin" / "java")
    assert working_java({"PATH": str(home / "bin")}) == str(home / "bin" / "java")


def java_home(folder: Path, version: str) -> Path:
    java = folder / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n" if version else "#!/bin/sh\nexit 1\n"
    )
    java.chmod(stat.S_IRWXU)
    return java.parent.parent
