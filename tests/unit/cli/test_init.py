"""``airflow-kstreams init`` asks a person at a terminal, and takes defaults elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from airflow_kstreams.cli.app import app
from tests.unit.cli.test_app import invoke


def test_defaults_are_taken_and_said_when_there_is_no_terminal(tmp_path: Path) -> None:
    result = invoke("init", str(tmp_path / "shop"))

    assert result.exit_code == 0, result.output
    assert "The example to begin with: orders\n" in result.stdout
    assert result.stdout.endswith(
        f"next, test it:\n  cd {tmp_path / 'shop'}\n  python -m pytest test_orders.py\n"
    )
    written = {str(path.relative_to(tmp_path / "shop")) for path in (tmp_path / "shop").rglob("*.*")}
    assert written == {
        "orders.py",
        "test_orders.py",
        "dags/orders_dag.py",
        "connections.env",
        "records.jsonl",
    }
    assert all(f"  {name}  " in result.stdout for name in written)


@pytest.mark.remedy("init._example.known")
def test_questions_are_asked_again_when_an_answer_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_kstreams.cli.commands.first_steps.init._can_ask", lambda: True)
    answers = ["flight", "flights", "fl ights", "fl", "localhost", "k:9092", "* *", "0 6 * * *"]

    result = CliRunner().invoke(app, ["init", str(tmp_path)], input="".join(f"{line}\n" for line in answers))

    assert result.exit_code == 0, result.output
    assert "there is no example 'flight': say one of orders, flights, empty" in result.stderr
    assert '"k:9092"' in (tmp_path / "connections.env").read_text()
    assert 'schedule="0 6 * * *"' in (tmp_path / "dags" / "fl_dag.py").read_text()


def test_a_wrong_option_writes_nothing(tmp_path: Path) -> None:
    result = invoke("init", str(tmp_path), "--example", "empty", "--bootstrap-server", "nowhere")

    assert result.exit_code == 1
    assert "'nowhere' is no address of a broker" in result.stderr
    assert not [*tmp_path.iterdir()]
