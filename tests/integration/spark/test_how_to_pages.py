"""The how-to page on bad records is followed as its readers do: on a broker, with runs on Spark."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Row
from tests.support.docs.snippets import snippets_of
from tests.support.fresh_python import ROOT
from tests.support.topology.examples import code_blocks

GOOD, BAD = '{"customer":"ann","cents":250}', '{"customer":"ann"}'


def commands_of(page: str, named: dict[str, str]) -> list[str]:
    """Return the commands of a page, with names of this test in place of the page's."""
    text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")
    lines = [
        line for found in snippets_of(text) if found.language == "shell" for line in found.code.splitlines()
    ]
    return [renamed(line, named) for line in lines if line.startswith("airflow-kstreams")]


def renamed(text: str, named: dict[str, str]) -> str:
    """Replace whole names, but no names of files."""
    return re.sub(rf"\b({'|'.join(named)})\b(?!\.py)", lambda found: named[found[1]], text)


def given(command: str) -> subprocess.CompletedProcess[str]:
    """Give a command line to the command, a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "airflow_kstreams.cli", *shlex.split(command)[1:]],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


@pytest.mark.timeout(900)  # six commands, two of them start Spark
@pytest.mark.prove  # dev/test follows the page on a Kafka in memory, without Spark (unit/docs)
def test_letter_comes_back_on_a_cluster_when_the_page_on_bad_records_is_followed(
    kafka: str,
    application_id: str,
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., Sequence[Row]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads, writes = (create_topic(f"{application_id}-{name}", partitions=1) for name in ("in", "out"))
    named: dict[str, Any] = {"orders": reads, "customer-totals": writes}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = (block.code for block in code_blocks(readme) if block.code.startswith("# spark_apps/orders.py"))
    (tmp_path / "orders.py").write_text(renamed(code, named), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KSTREAMS_BOOTSTRAP_SERVERS", kafka)
    monkeypatch.setenv("KSTREAMS_APPLICATION_ID", application_id)
    produce(reads, [("1", GOOD), ("2", BAD)])
    status, run, listed, show, dry, replay = commands_of("bad-records.md", named)

    failed = given("airflow-kstreams run orders.py --run-id monday")
    assert failed.returncode == 1, failed.stderr
    assert f"cannot decode {reads}-0@1" in given(status).stdout
    assert (done := given(run)).returncode == 0, done.stderr
    assert [int.from_bytes(row.value, "big") for row in consume_all(writes)] == [250]
    assert "ValidationError" in given(listed).stdout
    assert BAD in given(show).stdout
    assert given(dry).returncode == 0
    assert "Done." in given(replay).stdout
    assert [row.value.decode() for row in consume_all(reads)] == [GOOD, BAD, BAD]
