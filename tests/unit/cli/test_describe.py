from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from spark_apps.flight_delays import topology
from tests.support.command_line import json_of
from tests.unit.cli.test_app import FLIGHTS, invoke


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], topology().describe(purposes=True)),
        (["--format", "text"], topology().describe(purposes=True)),
        (["--format", "mermaid"], topology().to_mermaid()),
        (["--format", "svg"], topology().to_svg()),
        (["--format", "stream-time"], topology().describe_stream_time()),
        (["--application-id", "app"], topology().describe(application_id="app", purposes=True)),
        (["--application-id", "app", "--format", "mermaid"], topology().to_mermaid(application_id="app")),
    ],
)
def test_topology_is_printed_in_the_format_when_asked_for(arguments: list[str], expected: str) -> None:
    result = invoke("describe", FLIGHTS, *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (0, expected, "")


def test_json_holds_every_node_with_its_place() -> None:
    document = json_of(invoke("describe", FLIGHTS, "--application-id", "app", "--json"), "describe")
    nodes = {node["name"]: node for sub in document["subtopologies"] for node in sub["nodes"]}
    assert [*nodes] == [node.name for sub in topology().subtopologies() for node in sub.nodes]
    first = nodes["KSTREAM-SOURCE-0000000000"]
    assert (first["kind"], first["topics"], first["parents"]) == ("source", ["flights"], [])
    assert first["defined_at"].rpartition(":")[0] == FLIGHTS
    text = topology().describe(application_id="app")
    assert all(
        f"(topic: {topic})" in text
        for node in nodes.values()
        if node["kind"] == "sink"
        for topic in node["topics"]
    )
    assert invoke("describe", FLIGHTS, "--json", "--format", "svg").exit_code == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("topology.svg", topology().to_svg()),
        ("topology.SVG", topology().to_svg()),
        ("topology.mmd", topology().to_mermaid()),
        ("topology.txt", topology().describe(purposes=True)),
        ("topology", topology().describe(purposes=True)),
    ],
)
def test_file_is_written_by_its_ending_when_no_format_is_given(
    tmp_path: Path, name: str, expected: str
) -> None:
    result = invoke("describe", FLIGHTS, "--output", str(tmp_path / name))
    assert (result.exit_code, result.stdout) == (0, "")
    assert (tmp_path / name).read_text() == expected


@pytest.mark.remedy("describe._by_ending")
def test_ending_is_refused_when_nothing_is_written_as_it(tmp_path: Path) -> None:
    result = invoke("describe", FLIGHTS, "--output", str(tmp_path / "x.png"))
    assert result.exit_code == 1
    assert "no topology is written as .png" in result.stderr
    assert ".svg, .mmd, .mermaid, or give the format: --format" in result.stderr
    assert not (tmp_path / "x.png").exists()
    for told in (("x.svg",), ("x.png", "--format", "svg")):
        assert invoke("describe", FLIGHTS, "--output", str(tmp_path / told[0]), *told[1:]).exit_code == 0
        assert (tmp_path / told[0]).read_text() == topology().to_svg()


def test_format_wins_over_the_ending_when_both_are_given(tmp_path: Path) -> None:
    invoke("describe", FLIGHTS, "--output", str(tmp_path / "x.xml"), "--format", "svg")
    assert ET.parse(tmp_path / "x.xml").getroot().tag.endswith("svg")


@pytest.mark.remedy("errors.unwritable")
def test_error_names_the_file_when_it_cannot_be_written(tmp_path: Path) -> None:
    result = invoke("describe", FLIGHTS, "--output", str(tmp_path / "nowhere" / "x.svg"))
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr
    assert invoke("describe", FLIGHTS, "--output", str(tmp_path / "x.svg")).exit_code == 0
    assert ET.parse(tmp_path / "x.svg").getroot().tag.endswith("svg")


def test_other_function_is_called_when_named(tmp_path: Path) -> None:
    path = tmp_path / "two_topologies.py"
    path.write_text(
        "from airflow_kstreams.streams import KStreamBuilder, serdes\n"
        "def other():\n"
        "    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())\n"
        "    builder.stream('here').send_to('there')\n"
        "    return builder.build()\n"
    )
    assert "topics: [here]" in invoke("describe", str(path), "--function", "other").stdout
    missing = invoke("describe", str(path))
    assert missing.exit_code == 1
    assert "must define a function topology()" in missing.stderr


def test_application_id_is_refused_when_it_cannot_name_topics() -> None:
    result = invoke("describe", FLIGHTS, "--application-id", "my app")
    assert result.exit_code == 1
    assert "my app" in result.stderr
