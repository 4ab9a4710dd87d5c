"""The tutorial's notebook is executed as Jupyter executes it, after the tutorial's first run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_kstreams.cli.app import app
from airflow_kstreams.streams.topology.loader import load_topology
from tests.support.fresh_python import ROOT
from tests.support.kafka.in_process import Application

NOTEBOOK = ROOT / "docs" / "tutorials" / "tutorial.ipynb"
EXECUTE = "from nbclient.cli import main; main()"
ANY_TIME = "message.timestamp.before.max.ms=9223372036854775807"
SECONDS = 120


def shop(folder: Path, kafka: str, application_id: str) -> Path:
    """Make the project and its first run, as the tutorial does."""
    made, records = folder / "shop", folder / "shop" / "records.jsonl"
    # The tutorial's records are older than a broker takes for a topic that it makes by itself.
    for command in (
        f"init {made} --example orders --application-id shop --schedule @hourly",
        f"publish orders {records} --key order --time at",
        f"topics create customer-totals --partitions 1 --config {ANY_TIME}",
    ):
        done = CliRunner().invoke(app, [*command.split(), "--bootstrap-server", kafka])
        assert done.exit_code == 0, done.output
    topology = load_topology(str(made / "shop.py"))
    Application(bootstrap=kafka, application_id=application_id, topology=topology).run("first")
    return made


def executed(notebook: Path, kafka: str, application_id: str) -> dict[str, dict[str, Any]]:
    """Execute a notebook in place, and return what its cells show: id -> form -> text."""
    environment = {
        **os.environ,
        "KSTREAMS_BOOTSTRAP_SERVERS": kafka,
        "KSTREAMS_APPLICATION_ID": application_id,
        "PYTHONPATH": str(ROOT),
        "HOME": str(notebook.parent),
    }
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, "--inplace", f"--timeout={SECONDS}", str(notebook)],
        cwd=notebook.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    shown: dict[str, dict[str, Any]] = {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            assert output["output_type"] == "execute_result", output
            shown[cell["id"]] = {form: "".join(text) for form, text in output["data"].items()}
    return shown


@pytest.mark.timeout(4 * SECONDS)
def test_notebook_shows_picture_runs_lag_plan_and_findings(
    kafka: str, application_id: str, tmp_path: Path
) -> None:
    made = shop(tmp_path, kafka, application_id)
    notebook = Path(shutil.copy(NOTEBOOK, made))
    kept = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in kept)

    shown = executed(notebook, kafka, application_id)

    assert shown.keys() == {cell["id"] for cell in kept if cell["cell_type"] == "code"}
    assert "<svg" in shown["topology"]["image/svg+xml"]
    assert shown["driver"]["text/plain"] == "[('ann', '300')]"
    titles = {id_: re.findall("<b>(.*?)</b>", forms.get("text/html", "")) for id_, forms in shown.items()}
    assert {id_: found[0] for id_, found in titles.items() if found} == {
        "runs": f"Runs of {application_id}",
        "run": f"Run first of {application_id}",
        "lag": f"Waiting for {application_id}",
        "plan": f"Next run of {application_id}",
        "doctor": f"What the doctor found of {application_id}",
    }
    assert "listeners" in shown["doctor"]["text/html"]
