"""The archive for executors: complete by itself, equal for equal content."""

from __future__ import annotations

import importlib.metadata
import shlex
from pathlib import Path

import pytest

from airflow_kstreams.spark.driver.package_archive import _required, build_archive
from airflow_kstreams.streams.errors import ConfigError
from tests.support.remedies import walked
from tests.unit.cli.test_app import invoke


@pytest.mark.parametrize("extra", ["airflow", "rocks"])
def test_extra_is_refused_with_those_there_are_when_it_is_of_no_use(extra: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"no use for extra '{extra}'") as raised:
        build_archive(tmp_path / "a.tar.gz", extras=[extra])
    assert raised.value.fix == "use one of otel, rocksdb, schema-registry, or none"


@pytest.mark.remedy("package_archive._required: use one of")
def test_requirements_are_found_for_each_extra_that_the_error_names() -> None:
    with pytest.raises(ConfigError) as refused:
        _required(["airflow"])
    named = refused.value.fix.removeprefix("use one of ").removesuffix(", or none").split(", ")
    for extras in ([each] for each in named):
        assert len(_required(extras)) >= len(_required([]))


@pytest.mark.parametrize(
    "extras",
    [
        walked("package_archive._required: pip install {}", []),
        walked("package_archive._required: pip install '{}[{}]'", ["rocksdb"]),
    ],
)
def test_requirements_are_found_when_they_were_installed_as_the_error_says(extras: list[str]) -> None:
    lacking = "rocksdict" if extras else "tenacity"

    def distribution(name: str) -> importlib.metadata.Distribution:
        if name == lacking:
            raise importlib.metadata.PackageNotFoundError(name)
        return importlib.metadata.Distribution.from_name(name)

    with pytest.MonkeyPatch.context() as uninstalled:
        uninstalled.setattr(importlib.metadata, "distribution", distribution)
        with pytest.raises(
            ConfigError, match=f"requires {lacking}.*, which is not installed here"
        ) as refused:
            _required(extras)
    wanted = f"airflow-kstreams[{extras[0]}]" if extras else "airflow-kstreams"
    assert shlex.split(refused.value.fix) == ["pip", "install", wanted]
    # What pip installs for these words is what the package's own metadata requires.
    assert lacking in {found.metadata["Name"] for found in _required(extras)}


def test_file_is_named_when_it_cannot_be_written(tmp_path: Path) -> None:
    result = invoke("pack", "--output", str(tmp_path / "no-such" / "a.tar.gz"))

    assert result.exit_code == 1
    assert "no-such/a.tar.gz' cannot be written" in result.stderr
