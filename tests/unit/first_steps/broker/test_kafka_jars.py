"""The jars of a local broker: found, fetched whole, or refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_kstreams.first_steps.broker import kafka_jars
from airflow_kstreams.first_steps.broker.jar_sums import digests, refusals
from airflow_kstreams.first_steps.broker.kafka_jars import VERSION, fetch
from airflow_kstreams.streams.errors import ConfigError

NAMES = ("a-1.jar", "b-2.jar")


def write_jars(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_bytes(name.encode())


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "libs-1.partial"
    write_jars(folder)
    lines = [f"{digest}  {name}\n" for name, digest in digests(folder).items()]
    (tmp_path / "sums").write_text("".join([*lines, f"{'0' * 64}  other-1/a-1.jar\n"]))
    return folder


def test_jars_pass_when_they_are_the_listed_ones(jars: Path) -> None:
    assert not list(refusals(jars, jars.parent / "sums"))


def test_jar_is_refused_by_name_when_it_differs(jars: Path) -> None:
    (jars / "b-2.jar").write_bytes(b"another")
    (refusal,) = refusals(jars, jars.parent / "sums")
    assert re.fullmatch(r"libs-1/b-2\.jar: its SHA-256 is \w{64}, sums says \w{64}", refusal)


def test_jar_is_refused_by_name_when_it_is_one_more_or_one_less(jars: Path) -> None:
    (jars / "b-2.jar").rename(jars / "c-2.jar")
    gone, added = refusals(jars, jars.parent / "sums")
    assert gone == "libs-1/b-2.jar: not fetched"
    assert added.startswith("libs-1/c-2.jar: not listed in sums, its SHA-256 is ")


class Fetching:
    """A fetch whose Ivy is played by the test.

    :param arrive: what each try brings: names of jars, and their content.
    """

    def __init__(self, jars: Path, monkeypatch: pytest.MonkeyPatch, *arrive: dict[str, bytes]) -> None:
        self.sums = jars.parent / "sums"
        self.folder = jars.parent / "cache" / "libs-1"
        self.kept: list[bool] = []
        self._tries = iter(arrive)
        monkeypatch.setattr(kafka_jars, "_retrieve", self._retrieve)

    def _retrieve(self, _ivy_file: Path, folder: Path, cache: Path, **_named: object) -> None:
        self.kept.append(cache.is_dir())
        folder.mkdir()
        cache.mkdir(exist_ok=True)
        for name, content in next(self._tries).items():
            (folder / name).write_bytes(content)

    def __call__(self) -> None:
        fetch(Path("any.xml"), self.folder, self.sums, java="java", environment={})


RIGHT = {name: name.encode() for name in NAMES}


@pytest.mark.remedy("kafka_jars.fetch: run this again")
def test_folder_appears_when_all_jars_are_right_and_not_before(
    jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching = Fetching(jars, monkeypatch, {**RIGHT, "b-2.jar": b"another"}, RIGHT)

    with pytest.raises(ConfigError, match=r"not the expected ones: libs-1/b-2\.jar"):
        fetching()
    assert not fetching.folder.exists()

    fetching()
    assert {jar.name for jar in fetching.folder.iterdir()} == set(NAMES)
    assert fetching.kept == [False, False], "what was refused is not used again"
    fetching()
    assert len(fetching.kept) == 2, "what is there is not fetched again"


@pytest.mark.remedy("kafka_jars.kafka_jars: name the folder libs")
def test_folder_of_jars_is_taken_when_the_environment_names_one(tmp_path: Path) -> None:
    environment = {"KSTREAMS_KAFKA_LIBS": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with pytest.raises(ConfigError, match="holds no jars of Kafka's broker"):
        kafka_jars.kafka_jars(environment, "java")

    (tmp_path / "kafka-server-3.9.0.jar").touch()
    assert kafka_jars.kafka_jars(environment, "java") == tmp_path


@pytest.mark.remedy("kafka_jars.kafka_jars: delete it")
def test_fetched_jars_are_refused_when_they_have_changed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "airflow-kstreams" / f"libs-{VERSION}"
    write_jars(folder)
    environment = {"XDG_CACHE_HOME": str(tmp_path)}

    with pytest.raises(ConfigError, match=r"a-1\.jar: not listed") as refused:
        kafka_jars.kafka_jars(environment, "java")

    assert refused.value.fix == f"delete it, so that it is fetched anew: rm -r {folder}"
    for jar in folder.iterdir():
        jar.unlink()
    folder.rmdir()
    fetched: list[Path] = []
    monkeypatch.setattr(kafka_jars, "fetch", lambda _ivy, folder, *_, **__: fetched.append(folder))
    kafka_jars.kafka_jars(environment, "java")
    assert fetched == [folder]


@pytest.mark.remedy("kafka_jars._alone")
def test_another_cache_is_asked_for_when_it_cannot_be_made(
    jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (jars.parent / "cache").write_text("a file")
    fetching = Fetching(jars, monkeypatch, RIGHT)
    with pytest.raises(ConfigError, match="cannot keep jars in") as refused:
        fetching()
    assert "XDG_CACHE_HOME" in refused.value.fix

    fetching.folder = jars.parent / "another" / "libs-1"
    fetching()
    assert fetching.folder.is_dir()
