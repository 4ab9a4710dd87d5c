"""Rounds of run, edit, run again, on a sample kept in a file: no broker takes part."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kstreams.explore import Sample, SampleRecord
from tests.support.command_line import json_of
from tests.unit.cli.test_app import invoke

APPLICATION = """
from airflow_kstreams.streams import KStreamBuilder, serdes

def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("numbers").map_values(lambda value: {factor} * value).send_to("out")
    return builder.build()
"""
MAP = "KSTREAM-MAPVALUES-0000000001"


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    records = tuple(
        SampleRecord(topic="numbers", offset=n, key=b"k", value=str(n).encode(), timestamp_ms=n)
        for n in range(5)
    )
    Sample(records=records, partitions={"numbers": 1}).save(tmp_path / "numbers.sample")
    return tmp_path / "numbers.sample"


@pytest.fixture
def edit(tmp_path: Path) -> Path:
    path = tmp_path / "numbers_app.py"
    path.write_text(APPLICATION.format(factor=2))
    return path


def test_summary_and_outputs_are_shown_when_run_on_a_sample(edit: Path, sample: Path) -> None:
    result = invoke("explore", str(edit), "--sample", str(sample))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "sample: 5 of numbers" in result.stdout
    assert "out: 5 records" in result.stdout
    assert "difference" not in result.stdout


def test_difference_to_the_round_before_is_shown_when_the_application_was_edited(
    edit: Path, sample: Path
) -> None:
    invoke("explore", str(edit), "--sample", str(sample))
    edit.write_text(APPLICATION.format(factor=3))
    second = invoke("explore", str(edit), "--sample", str(sample))
    assert "difference to before" in second.stdout
    assert "KSTREAM-SINK-0000000002 (sink at numbers_app.py:6): 4 differences" in " ".join(
        second.stdout.split()
    )
    assert f"{MAP}: 4 differences" not in second.stdout
    edit.write_text(APPLICATION.format(factor=4))
    document = json_of(
        invoke("explore", str(edit), "--sample", str(sample), "--rows", "2", "--json"), "explore"
    )
    assert [(each["node"], each["changed"]) for each in document["difference"]][-1][1] == 4
    assert document["shown"] == [
        {
            "place": "out",
            "count": 5,
            "records": [
                {"record": f"numbers-0@{n}", "key": "k", "value": 4 * n, "timestamp_ms": n} for n in (0, 1)
            ],
        }
    ]
    third = invoke("explore", str(edit), "--sample", str(sample))
    assert "no difference to before" in third.stdout


def test_only_named_nodes_and_rows_are_shown_when_asked_for(edit: Path, sample: Path) -> None:
    result = invoke("explore", str(edit), "--sample", str(sample), "--node", MAP, "--rows", "2")
    assert f"{MAP} (map values at numbers_app.py:6): 5 records" in " ".join(result.stdout.split())
    assert "... and 3 more" in result.stdout
    assert "out: 5 records" not in result.stdout
    unknown = invoke("explore", str(edit), "--sample", str(sample), "--node", "nope")
    assert unknown.exit_code == 1
    assert MAP in unknown.stderr


def test_other_application_is_compared_when_named(edit: Path, sample: Path, tmp_path: Path) -> None:
    other = tmp_path / "numbers_other.py"
    other.write_text(APPLICATION.format(factor=7))
    result = invoke("explore", str(edit), "--sample", str(sample), "--against", str(other), "--node", MAP)
    assert f"{MAP} (map values at numbers_app.py:6): 4 differences" in " ".join(result.stdout.split())
    assert "28" in result.stdout


def test_kept_result_is_compared_when_named(edit: Path, sample: Path, tmp_path: Path) -> None:
    invoke("explore", str(edit), "--sample", str(sample))
    kept = Path(f"{sample}.result").rename(tmp_path / "first")
    edit.write_text(APPLICATION.format(factor=3))
    result = invoke("explore", str(edit), "--sample", str(sample), "--against", str(kept), "--node", MAP)
    assert f"{MAP} (map values at numbers_app.py:6): 4 differences" in " ".join(result.stdout.split())


def test_nothing_is_compared_when_the_kept_result_is_of_another_sample(edit: Path, sample: Path) -> None:
    invoke("explore", str(edit), "--sample", str(sample))
    Sample(records=Sample.load(sample).records[:2]).save(sample)
    assert "difference" not in invoke("explore", str(edit), "--sample", str(sample)).stdout


def test_failing_records_are_listed_when_a_function_raises(edit: Path, sample: Path) -> None:
    edit.write_text(APPLICATION.format(factor="1 // value"))
    result = invoke("explore", str(edit), "--sample", str(sample))
    assert result.exit_code == 0
    assert "1 failed" in result.stdout
    assert "numbers-0@0" in result.stdout
    assert "ZeroDivisionError" in result.stdout


def test_broker_is_asked_for_when_there_is_no_sample(
    edit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KSTREAMS_KAFKA_CONFIG_FILE", raising=False)
    result = invoke("explore", str(edit), "--sample", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert "does not exist" in result.stderr


def test_secrets_stay_secret_when_settings_are_refused(edit: Path, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=localhost:1\nsasl.password=hunter2\nsasl.pasword=hunter2\n")
    for option in ("--config-file", "--command-config"):
        result = invoke("explore", str(edit), option, str(file))
        assert result.exit_code == 1
        assert "sasl.pasword" in result.stderr
        assert "hunter2" not in result.output


def test_settings_come_from_the_environments_file_when_no_option_is_given(
    edit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "client.json").write_text('{"bootstrap.servers": "localhost:1", "no.such.setting": "x"}')
    monkeypatch.setenv("KSTREAMS_KAFKA_CONFIG_FILE", str(tmp_path / "client.json"))
    assert "no.such.setting" in invoke("explore", str(edit)).stderr


@pytest.mark.remedy("difference.Result.load")
def test_exploration_goes_on_when_a_result_that_cannot_be_read_is_deleted(edit: Path, sample: Path) -> None:
    result = sample.with_name("numbers.sample.result")
    result.write_bytes(b"{}")
    refused = invoke("explore", str(edit), "--sample", str(sample))
    assert refused.exit_code == 1
    assert str(result) in refused.stderr
    result.unlink()
    assert "out: 5 records" in invoke("explore", str(edit), "--sample", str(sample)).stdout
