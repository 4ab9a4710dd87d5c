"""Every example in a docstring or a Markdown file runs and shows what it says."""

from __future__ import annotations

import doctest
import importlib
import runpy
from pathlib import Path

import pytest

from airflow_kstreams.testing import TopologyTestDriver
from tests.support.airflow import airflow_environment
from tests.support.topology.examples import code_blocks, docstring_tests, markdown_tests, report

# Before the first module of the Airflow side is imported.
airflow_environment.prepare()

_ROOT = Path(__file__).resolve().parents[2]
_MODULES = sorted(
    ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (_ROOT / "airflow_kstreams").rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)
_PAGES = sorted(
    str(path.relative_to(_ROOT))
    for path in (_ROOT / "README.md", _ROOT / "CHANGELOG.md", *(_ROOT / "docs").rglob("*.md"))
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", _MODULES)
def test_examples_show_what_they_say_when_they_stand_in_a_docstring(name: str) -> None:
    tests = docstring_tests(importlib.import_module(name))

    assert tests, f"{name} holds examples that doctest does not find"
    failures = "\n".join(filter(None, map(report, tests)))
    if failures:
        pytest.fail(failures, pytrace=False)


@pytest.mark.parametrize("name", _PAGES)
def test_examples_run_as_they_stand_when_they_stand_in_a_page(name: str) -> None:
    tests = markdown_tests(_ROOT / name, name)

    assert tests, f"{name} holds examples outside of python blocks"
    failures = "\n".join(filter(None, map(report, tests)))
    if failures:
        pytest.fail(failures, pytrace=False)


def test_first_block_runs_when_it_stands_in_the_page_of_types(tmp_path: Path) -> None:
    block = next(code_blocks((_ROOT / "docs" / "explanation" / "types.md").read_text(encoding="utf-8")))
    (tmp_path / "orders.py").write_text(block.code, encoding="utf-8")
    names = runpy.run_path(str(tmp_path / "orders.py"))
    names["totals"].to_stream().send_to("totals")

    with TopologyTestDriver(names["builder"].build(), application_id="types") as driver:
        for cents in (250, 50):
            driver.pipe_input("orders", key="1", value=names["Order"]("ann", cents), timestamp_ms=0)
        totals = [(record.key, record.value) for record in driver.read_output("totals")]

    assert totals == [("1", 250), ("1", 300)]


def test_report_names_line_and_both_results_when_an_example_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n\n```python\n>>> number = 1\n```\n\nand\n\n```python\n>>> number + 1\n3\n```\n\n"
        "# Two\n\n```python\n>>> number\n1\n```\n",
        encoding="utf-8",
    )

    first, second = map(report, markdown_tests(page, "page.md"))

    assert f'File "{page}", line 10, in page.md' in first
    assert "Failed example:\n    number + 1\nExpected:\n    3\nGot:\n    2\n" in first
    assert "NameError: name 'number' is not defined" in second


def test_examples_see_public_names_only_when_the_module_has_no_others() -> None:
    module = type(doctest)("empty")
    module.__doc__ = ">>> serdes.string()\nserdes.string\n>>> StreamGraph\nserdes.string\n"

    (test,) = docstring_tests(module)

    assert "NameError: name 'StreamGraph' is not defined" in report(test)
