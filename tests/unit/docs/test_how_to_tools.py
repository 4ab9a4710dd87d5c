"""The how-to pages on a local broker, on debugging and on sizing are followed on a Kafka in memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_kstreams.cli import __main__ as started_as_module
from airflow_kstreams.cli.app import app
from tests.support.docs.how_to_pages import Follower, follower, values_of
from tests.support.docs.orders_application import GOOD, write_orders
from tests.support.docs.snippets import Snippets


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Follower:
    found = follower(tmp_path, monkeypatch)
    write_orders(found, topics=())
    return found


@pytest.mark.snippets("docs/how-to/local-broker.md")
def test_records_are_published_and_read_when_the_page_on_a_local_broker_is_followed(
    reader: Follower, snippets: Snippets
) -> None:
    reader.write(snippets.take("json").code)
    published, created = reader.followed(snippets.take("shell").code)
    assert "published 2 records" in published
    assert "customer-totals: created" in created
    _, runs, state = reader.followed(snippets.take("shell").code)
    assert "finished" in runs
    assert "'ann'" in state
    assert "300" in state


@pytest.mark.snippets("docs/how-to/debug-in-an-ide.md")
def test_functions_are_called_in_the_debuggers_process_when_the_page_is_followed(
    reader: Follower, snippets: Snippets, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("orders", "customer-totals"):
        reader.kafka.create_topic(topic)
    reader.append("orders", GOOD, b"1")
    reader.follow(snippets.take("shell").code)

    launched = json.loads(reader.write(snippets.take("json").code).read_text())["configurations"][0]
    assert launched["module"] == started_as_module.__package__
    arguments = [each.replace("${file}", "orders.py") for each in launched["args"]]
    stopped = called_in("orders.py", lambda: CliRunner().invoke(app, arguments, catch_exceptions=False))
    assert "<lambda>" in stopped, "a breakpoint in a function of the file is reached"

    monkeypatch.syspath_prepend(str(reader.folder))
    test = values_of(snippets.take("python").code)["test_one_order"]
    assert "<lambda>" in called_in("orders.py", test)


@pytest.mark.snippets("docs/how-to/sizing.md")
def test_figures_are_there_when_the_page_on_sizing_is_followed(reader: Follower, snippets: Snippets) -> None:
    for topic in ("orders", "customer-totals"):
        reader.kafka.create_topic(topic)
    reader.append("orders", GOOD, b"1")
    reader.run("orders", Path("orders.py"), "first", {})
    reader.append("orders", GOOD, b"2")
    assert "2 tasks" in reader.follow(snippets.take("shell").code)
    assert "process-rate" in reader.follow(snippets.take("shell").code)


def called_in(file: str, work: Any) -> set[str]:
    """Do some work under a tracing function, as a debugger does, and return the functions of a file in which
    that could have stopped.
    """
    seen: set[str] = set()

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and Path(frame.f_code.co_filename).name == file:
            seen.add(frame.f_code.co_name)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return seen
