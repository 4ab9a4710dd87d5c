"""Terminals and logs get text in one printable form, whoever wrote it."""

from __future__ import annotations

import ast
import doctest
import io
import logging
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import airflow_kstreams
from airflow_kstreams.cli.shared_options import say, show
from airflow_kstreams.explore.tables import Table
from airflow_kstreams.streams import printable as printable_text
from airflow_kstreams.streams.errors import ReportedError, RunError
from airflow_kstreams.streams.printable import breaking_lines, broken, package_log, printable

pytestmark = pytest.mark.promise("text-of-others-is-printable")

PACKAGE = Path(airflow_kstreams.__file__).parent
#: It clears the screen, writes a line of its own, turns the direction of writing, and hides a letter.
HOSTILE = "a\x1b[2J\x9b1mb\r\nERROR all is lost\u202egpj\u200b\x7f\x00\ud800"
SHOWN = r"a\x1b[2J\x9b1mb\r\nERROR all is lost\u202egpj\u200b\x7f\x00\ud800"
#: Calls that write to a terminal or a log -> the functions that may make them.
_WRITERS = {
    "getLogger": {
        "streams/printable.py:package_log",
        "spark/executor/task_host.py:show_log_lines",
        "spark/driver/application.py:run",  # sets the level of py4j
    },
    "print": {"cli/shared_options.py:show", "explore/tables.py:__str__"},
    # Texts of several lines whose names are printable, or whose error is.
    "echo": {
        "cli/shared_options.py:say",
        "cli/commands/describe.py:describe",
        "cli/app.py:_print_version",
        # HTML, each text of which is printable.
        "cli/commands/runs.py:runs",
        "cli/app.py:_say",
        # JSON in ASCII.
        "cli/json_output.py:print_json",
        "cli/json_output.py:print_json_list",
    },
    "stdout.write": {
        "spark/driver/application.py:main",  # finished_text
        "streams/topology/loader.py:main",  # JSON
        "hooks/print_connection.py:main",  # JSON
        "hooks/print_dags.py:main",  # JSON
        "spark/driver/print_executors.py:main",  # JSON
    },
    # Printable errors, and the same as JSON.
    "stderr.write": {
        "spark/driver/application.py:main",
        "streams/topology/loader.py:main",
        "hooks/print_connection.py:main",
        "spark/driver/print_executors.py:main",
    },
}
#: The log of an operator, sensor or trigger.
_AIRFLOWS = {f"self.log.{level}" for level in ("debug", "info", "warning", "error", "exception")}


def _calls(node: ast.AST, function: str = "") -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(child, ast.Call):
            yield ast.unparse(child.func), inside
        yield from _calls(child, inside)


def test_no_other_way_leads_to_a_terminal_or_a_log() -> None:
    others = set()
    for file in sorted(PACKAGE.rglob("*.py")):
        for called, function in _calls(ast.parse(file.read_text(encoding="utf-8"))):
            place = f"{file.relative_to(PACKAGE).as_posix()}:{function}"
            for writer, allowed in _WRITERS.items():
                if f".{called}".endswith(f".{writer}") and place not in allowed:
                    others.add(f"{place} calls {called}")
            if called in _AIRFLOWS:
                others.add(f"{place} calls {called}")
    assert not others, "write package_log(__name__), say(...) or show(...)"


def test_examples_run_as_they_stand_in_docstrings() -> None:
    assert doctest.testmod(printable_text) == (0, 4)


def test_control_characters_are_escaped_and_letters_of_all_languages_are_not() -> None:
    assert printable(HOSTILE) == SHOWN
    assert (
        printable("Gr\u00fc\u00dfe \u4f60\u597d \U0001f600 'x' \\\\")
        == "Gr\u00fc\u00dfe \u4f60\u597d \U0001f600 'x' \\\\"
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RunError(f"run {HOSTILE!s} failed", fix=f"mend {HOSTILE}", run_id=HOSTILE), " [KS-RUN-001]"),
        (
            ReportedError.from_dict(
                {"type": "RunError", "cause": f"run {HOSTILE} failed", "fix": f"mend {HOSTILE}"}
            ),
            "",
        ),
    ],
)
def test_error_is_printable_whatever_it_tells_of(error: RunError, code: str) -> None:
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert str(each).endswith(f"run {SHOWN} failed{code}\nWhat to do: mend {SHOWN}")
        assert each.to_dict()["cause"] == f"run {SHOWN} failed"


def test_lines_of_a_traceback_stay_lines() -> None:
    error = RunError("failed", trace="File one\n  x = '\x1b'\r\nFile two", run_id="r")
    assert str(error) == "File one\n  x = '\\x1b'\\r\nFile two\nfailed [KS-RUN-001]"


def test_broken_lines_are_short_and_say_the_same() -> None:
    text = "cause " + "word " * 60 + "x" * 250 + "\n    indented " + "more " * 40
    lines = broken(text, 100).split("\n")
    assert max(map(len, lines)) <= 100
    assert "".join(line.strip() for line in lines).replace(" ", "") == text.replace(" ", "").replace("\n", "")
    assert broken("short\nlines", 100) == "short\nlines"


def test_command_that_is_broken_can_be_pasted() -> None:
    command = "airflow-kstreams reset --bootstrap-server broker:9092 --application-id app --input-topics in"
    for columns in range(len("--bootstrap-server") + 8, 140):
        parts = broken(f"the retry needs the slice dropped first: {command}; then clear it", columns)
        assert max(map(len, parts.split("\n"))) <= columns
        begin = parts.index("airflow-kstreams")
        assert re.sub(r" \\\n +", " ", parts[begin : parts.index("in;") + 2]) == command


def test_log_lines_are_broken_where_their_reader_sees_a_part_only(caplog: pytest.LogCaptureFixture) -> None:
    log = package_log("airflow_kstreams.tests.broken")
    with breaking_lines(20):
        log.warning("run %s ended: %s", HOSTILE[:4], "word " * 5)
    log.warning("%s", "x" * 30)
    (first, second) = caplog.messages
    assert first.split("\n") == ["run a\\x1b[2 ended:", "  word word word", "  word word "]
    assert second == "x" * 30


def test_log_lines_are_printable_and_so_are_their_tracebacks() -> None:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    log = package_log("airflow_kstreams.tests.printable")
    assert package_log(log.name).filters == log.filters
    assert len(log.filters) == 1
    log.addHandler(handler)
    try:
        log.warning("run %s by %s", HOSTILE, HOSTILE)
        log.warning(f"100% of {HOSTILE}")  # noqa: G004 - a text without arguments
        log.error("failed", exc_info=ValueError(HOSTILE))
    finally:
        log.removeHandler(handler)
    lines = text.getvalue().split("\n")
    assert lines[:3] == [f"run {SHOWN} by {SHOWN}", f"100% of {SHOWN}", "failed"]
    assert lines[3] == f"ValueError: {SHOWN}"
    assert all(line.isprintable() for line in lines)


def test_commands_print_tables_notes_and_lines_that_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    show([Table(title=HOSTILE, columns=(HOSTILE,), rows=[(HOSTILE,)])], notes=[HOSTILE])
    say(HOSTILE)
    say(HOSTILE, err=True)
    out, err = capsys.readouterr()
    assert out.count(SHOWN) == 5
    assert err == f"{SHOWN}\n"
    assert all(line.isprintable() for line in out.split("\n"))
