from __future__ import annotations

import json
import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.streams.errors import ConfigError, TableUnavailableError
from airflow_kstreams.tables.connections import TablesSettings, open_tables
from airflow_kstreams.tables.storage_errors import TablePlace, storage_error

SQL = {"iceberg.type": "sql", "iceberg.uri": "postgresql://me:pa%3Ass%2Fword@nowhere/db"}


@dataclass(frozen=True)
class Spec:
    format: str = "iceberg"
    location: str = "flights.carriers"
    name: str = "carriers"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"uri": "x"}, "'uri'"),
        ({"iceberg.type": 1}, r"\(int\)"),
        ({"delta.aws_region": None}, r"\(NoneType\)"),
    ],
)
def test_settings_are_refused_by_name_when_they_are_no_settings(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        open_tables(settings)
    assert refused.value.fix


@pytest.mark.parametrize(
    ("settings", "spec", "said"),
    [
        ({}, Spec(), "not said where its catalogue is"),
        ({"delta.aws_region": "eu"}, Spec(), "not said where its catalogue is"),
        ({"iceberg.type": "hive", "iceberg.uri": "thrift://x"}, Spec(), "'hive'"),
        ({"iceberg.uri": "sqlite:///x"}, Spec(), "of type ''"),
        ({**SQL, "iceberg.py-catalog-impl": "os.path"}, Spec(), "iceberg.py-catalog-impl"),
        ({**SQL, "iceberg.py-io-impl": "os.path"}, Spec(), "iceberg.py-io-impl"),
        ({**SQL, "iceberg.s3.retry-strategy-impl": "os.path"}, Spec(), "s3.retry-strategy-impl"),
        ({**SQL, "iceberg.snapshot-loading-mode": "refs"}, Spec(), "snapshot-loading-mode"),
        (SQL, Spec(location="carriers"), "no namespace"),
        ({}, Spec(format="delta", location="carriers"), "no whole path"),
        ({}, Spec(format="delta", location="hdfs://x/y"), "hdfs"),
        ({}, Spec(format="hudi"), "'hudi'"),
    ],
)
def test_table_is_refused_before_a_catalogue_is_asked(
    settings: dict[str, str], spec: Spec, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        open_tables(settings).table(spec)
    assert refused.value.fix


def test_catalogue_without_its_address_is_refused_when_it_is_asked() -> None:
    port = open_tables({"iceberg.type": "rest"}).table(Spec())
    with pytest.raises(ConfigError, match=r"KeyError.*uri"):
        port.look()


def test_nothing_prints_a_value() -> None:
    settings = TablesSettings(
        {**SQL, "iceberg.credential": "id:very-secret", "delta.aws_secret_access_key": "hidden"}
    )
    tables = open_tables(settings)
    port = tables.table(Spec())
    printed = f"{settings!r}{settings}{tables!r}{tables}{port!r}{vars(port)!r}"
    for secret in ("very-secret", "hidden", "pa%3Ass", "pa:ss/word"):
        assert secret not in printed
    assert "iceberg.credential" in repr(settings)


def test_text_of_a_library_is_printed_without_secrets() -> None:
    settings = TablesSettings({**SQL, "iceberg.credential": "id:very-secret", "delta.account_key": "hidden"})
    place = TablePlace(name="carriers", secrets=settings.secrets)
    text = "cannot log in with very-secret, hidden or pa:ss/word \x1b[31m(pa%3Ass%2Fword)\x1b[0m"
    error = storage_error(place, "look", OSError(text))
    assert isinstance(error, TableUnavailableError)
    assert str(error).splitlines()[0] == (
        "table 'carriers': look failed: OSError: cannot log in with ***, *** or *** (***) [KS-TABLE-002]"
    )
    assert "very-secret" not in repr(place)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


HIDDEN = "canary"
FAILURES: dict[str, Callable[[Path], object]] = {
    "unknown name": lambda _: TablesSettings({**SQL, "iceberg.token": HIDDEN, "token": HIDDEN}),
    "file is no JSON": lambda folder: _read(folder, f'{{"iceberg.token": "{HIDDEN}"'),
    "file is no object": lambda folder: _read(folder, f'["{HIDDEN}"]'),
    "file has another name": lambda folder: _read(
        folder, f'{{"iceberg.token": "{HIDDEN}", "x": "{HIDDEN}"}}'
    ),
    "catalogue is of no type": lambda _: open_tables({"iceberg.token": HIDDEN}).table(Spec()),
}


def _read(folder: Path, text: str) -> TablesSettings:
    file = folder / "tables.json"
    file.write_text(text)
    return TablesSettings.from_file(file)


@pytest.mark.parametrize("failing", FAILURES)
def test_no_secret_is_in_a_traceback_with_all_local_variables_when_something_fails(
    failing: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        FAILURES[failing](tmp_path)
    assert "canary" not in "".join(traceback.format_exception(caught.value))
    frames, seen = caught.value.__traceback__, 0
    while frames is not None:
        # This file's own frames show the cases.
        if frames.tb_frame.f_code.co_filename != __file__:
            seen += 1
            assert "canary" not in repr(frames.tb_frame.f_locals)
        frames = frames.tb_next
    assert seen


def test_secret_is_found_in_each_form_that_a_server_repeats() -> None:
    settings = TablesSettings(
        {
            "iceberg.uri": "https://ann:pass%20word@nowhere/?sig=signature",
            "iceberg.credential": "id:client-secret",
            "delta.use_key_file": "true",
        }
    )
    assert {"pass%20word", "pass word", "signature", "client-secret", "Y2xpZW50LXNlY3JldA=="} <= set(
        settings.secrets
    )
    assert "true" not in settings.secrets, "no switch is taken out of texts"
    assert "pass" not in repr(dict(settings))


def test_settings_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tables.json"
    file.write_text(json.dumps(SQL))
    assert dict(TablesSettings.from_file(file)) == SQL
    file.write_text("[")
    with pytest.raises(ConfigError, match="no JSON"):
        TablesSettings.from_file(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        TablesSettings.from_file(tmp_path / "other.json")
