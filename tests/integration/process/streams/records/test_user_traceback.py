"""An error names the user's code wherever that and this package lie: no name in a path tells them apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import airflow_kstreams

_PROGRAM = """
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.testing import TopologyTestDriver

def ratio(number):
    return 1 / number

builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
builder.stream("in").map_values(ratio).send_to("out")
try:
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value=0, timestamp_ms=0)
except RecordError as error:
    print(error.trace)
"""


def test_users_lines_alone_are_shown_when_they_lie_in_a_folder_called_as_the_package_or_through_a_link(
    tmp_path: Path,
) -> None:
    checkout = tmp_path / "zwei Wörter" / "airflow_kstreams"
    checkout.mkdir(parents=True)
    (checkout / "airflow_kstreams").symlink_to(Path(airflow_kstreams.__file__).parent)
    program = checkout / "ratios.py"
    program.write_text(_PROGRAM, encoding="utf-8")

    shown = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    line = {text: number for number, text in enumerate(_PROGRAM.splitlines(), 1)}
    defined = line['builder.stream("in").map_values(ratio).send_to("out")']
    assert shown == [
        "Traceback of the application's code (most recent call last):",
        f"  node 'KSTREAM-MAPVALUES-0000000001', defined at {program}:{defined}",
        f'  File "{program}", line {line["    return 1 / number"]}, in ratio',
        "    return 1 / number",
    ]
