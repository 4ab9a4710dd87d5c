"""The archive for executors: complete by itself, equal for equal content."""

from __future__ import annotations

import importlib.metadata
import shlex
from pathlib import Path

import pytest

import airflow_kstreams
from airflow_kstreams.spark.driver.package_archive import _files, _required, build_archive
from airflow_kstreams.streams.errors import ConfigError
from tests.support.remedies import walked
from tests.unit.cli.test_app import invoke


@pytest.mark.parametrize("extra", ["airflow", "rocks"])
def test_extra_is_refused_with_those_there_are_when_it_is_of_no_use(extra: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"no use for extra '{extra}'") as raised:
        build_archive(tmp_path / "a.tar.gz", extras=[extra])
    assert raised.value.fix == "use one of delta, iceberg, otel, rocksdb, schema-registry, or none"


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


class Installed(importlib.metadata.Distribution):
    """A distribution in a folder, with a list of its files."""

    def __init__(self, root: Path, name: str, files: list[str]) -> None:
        self._root = root
        self._texts = {
            "METADATA": f"Name: {name}\nVersion: 1\n",
            "RECORD": "".join(f"{f},,\n" for f in files),
        }

    def read_text(self, filename: str) -> str | None:
        return self._texts.get(filename)

    def locate_file(self, path: object) -> Path:
        return self._root / str(path)


def _write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages, this one among them, with files that no package lists."""
    root = tmp_path / "packages"
    read = ("kafka/configuration/known_settings.toml", "py.typed", "streams/hints/java_names.json")
    own = ("__init__.py", "batch/run.py", *read)
    strays = (".env", "core", "batch/.run.py.swp", "batch/run.py~", "batch/login.json", "batch/run.pyc")
    _write(root, *(f"airflow_kstreams/{name}" for name in (*own, *strays)), "other/__init__.py", "other/.env")
    monkeypatch.setattr(airflow_kstreams, "__file__", str(root / "airflow_kstreams" / "__init__.py"))
    return root


def _packed(root: Path, own: list[str], other: list[str]) -> set[str]:
    names = [Installed(root, "airflow-kstreams", own), Installed(root, "other", other)]
    found = dict(_files(names))
    assert all(path == root / name and path.is_file() for name, path in found.items())
    return set(found)


_OTHER = ["other/__init__.py", "other/__init__.pyc", "../../bin/other", "other/../../secret", "/etc/passwd"]


@pytest.mark.promise("archives-hold-listed-files")
def test_archive_holds_what_installers_listed_and_no_more(root: Path) -> None:
    (root.parent / "secret").write_text("")
    listed = ["airflow_kstreams/__init__.py", "airflow_kstreams/batch/run.py", "airflow_kstreams/py.typed"]
    assert _packed(root, listed, _OTHER) == {*listed, "other/__init__.py"}


@pytest.mark.promise("archives-hold-listed-files")
def test_archive_of_a_checkout_holds_modules_and_what_they_read(root: Path) -> None:
    assert _packed(root, ["_editable.pth"], _OTHER) == {
        "airflow_kstreams/__init__.py",
        "airflow_kstreams/batch/run.py",
        "airflow_kstreams/kafka/configuration/known_settings.toml",
        "airflow_kstreams/py.typed",
        "airflow_kstreams/streams/hints/java_names.json",
        "other/__init__.py",
    }


def test_archive_of_this_checkout_lacks_no_file() -> None:
    package = Path(airflow_kstreams.__file__).parent
    files = {file.relative_to(package.parent).as_posix() for file in package.rglob("*") if file.is_file()}
    packed = {name for name, _ in _files(_required([])) if name.startswith("airflow_kstreams/")}
    # What the first hour's commands write and fetch, and the pages' styles, are of no use to an executor.
    needless = {
        name
        for name in files
        if name.startswith(("airflow_kstreams/first_steps/", "airflow_kstreams/pages/"))
        and not name.endswith(".py")
    }
    assert packed == {name for name in files if "__pycache__" not in name} - needless


@pytest.mark.promise("archives-hold-listed-files")
@pytest.mark.remedy("package_archive._refuse_link")
@pytest.mark.parametrize(
    ("own", "link"),
    [
        (["airflow_kstreams/secret.py"], "airflow_kstreams/secret.py"),
        ([], "airflow_kstreams/secret.py"),
        (["airflow_kstreams/linked/secret.py"], "airflow_kstreams/linked"),
        (["airflow_kstreams/__init__.py"], "other/__init__.py"),
    ],
)
def test_links_are_refused_and_plain_files_packed_in_their_place(
    root: Path, own: list[str], link: str
) -> None:
    other = ["other/__init__.py"]
    (root.parent / "secret.py").write_text("secret")
    (root / link).unlink(missing_ok=True)
    (root / link).symlink_to(root.parent / ("" if link.endswith("linked") else "secret.py"))
    with pytest.raises(ConfigError, match=f"{link} is a link") as refused:
        _packed(root, own, other)

    assert refused.value.fix.startswith("install the packages as plain files and pack again")
    (root / link).unlink()
    _write(root, *own, *other)
    assert _packed(root, own, other) > {"other/__init__.py"}
