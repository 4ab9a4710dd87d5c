"""Every promise of the pages is registered with the test that proves it, and a fault that this test finds."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from dev.promise_register.checks import complaints
from dev.promise_register.marks import PAGES, blocks, marked, unmarked
from dev.promise_register.page import PAGE, draw
from dev.promise_register.register import ROOT, Fault, Promise, load, planted

PROMISES = load()
_FEW = 20


def test_register_marks_tests_faults_and_page_agree() -> None:
    assert complaints(PROMISES) == []


def test_pages_are_those_that_users_read() -> None:
    names = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {"README.md", "docs/data-loss.md", "docs/windows.md"} <= names
    # It is drawn from the register, so a mark there would say that the register promises what it promises.
    assert "docs/guarantees.md" not in names


def test_few_sentences_are_said_to_promise_nothing() -> None:
    exempt = Counter(
        page.name
        for page in PAGES
        for block in blocks(page.read_text(encoding="utf-8"))
        if "<!-- no promise -->" in block.text
    )
    assert exempt.total() <= _FEW, exempt


def test_exemption_is_needed_where_it_stands() -> None:
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            if "<!-- no promise -->" in block.text:
                assert block.words, f"{page.name}:{block.line}"
                assert not block.promises, f"{page.name}:{block.line}"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# Never\n\nA run never ends.\n", [3]),
        ("A run never ends. <!-- promise: runs-end -->\n", []),
        ("A run never ends. <!-- no promise -->\n", []),
        ("It ends.\n\n- one\n- two is refused\n- three\n", [4]),
        ("- one is lost <!-- promise: a -->\n- two is lost\n", [2]),
        ("<!-- promise: a -->\n| a | b |\n| - | - |\n| x | nothing |\n", []),
        ("| a | b |\n| - | - |\n| x | nothing |\n", [1]),
        ("Read on:\n\n```\nnothing is lost\n```\n\n    it never ends\n\nIt cannot.\n", [9]),
        ("See `never`, and [the page](never.md).\n", []),
        ("One\nparagraph of several lines, and\nwhatever it says.\n", [1]),
    ],
)
def test_promise_is_seen_when_it_is_not_marked(text: str, lines: list[int]) -> None:
    assert [block.line for block in unmarked(text)] == lines


def test_marks_are_read_when_a_block_has_several() -> None:
    (block,) = blocks("Never. <!-- promise: a, b -->\nAlways. <!-- promise: c -->\n")
    assert block.promises == ("a", "b", "c")


def _promise(**other: object) -> dict[str, Promise]:
    told = {"id": "p", "sentence": "**P**", "tests": ("unit/test_links.py",), "fault": (_fault(),)}
    promise = Promise(**{**told, **other})  # type: ignore[arg-type]
    return {promise.id: promise}


def _fault(**other: str) -> Fault:
    told = {
        "what": "a mistake",
        "file": "airflow_kstreams/batch/clock.py",
        "old": "from __future__ import annotations\n",
        "new": "",
        "dies": "unit/test_links.py::test_links_lead_somewhere",
    }
    return Fault(**{**told, **other})


def _about(promises: dict[str, Promise]) -> list[str]:
    return [line for line in complaints(promises) if line.startswith(("p: ", "p-"))]


def test_entry_is_complete_when_it_is_copied_from_the_recipe(tmp_path: Path) -> None:
    recipe = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    (entry,) = re.findall(r"^```toml\n(.*?)^```$", recipe, re.MULTILINE | re.DOTALL)
    (tmp_path / "promises.toml").write_text(entry, encoding="utf-8")
    promises = load(tmp_path / "promises.toml")
    (name,) = promises
    said = [line for line in complaints(promises) if line.startswith(name)]
    assert [line.split(", ")[0] for line in said] == [f"{name}: registered"], "but for the mark"
    assert f"<!-- promise: {name} -->" in recipe


def test_complaint_names_the_mark_when_no_page_makes_the_promise() -> None:
    (line,) = _about(_promise())
    assert "no page has its mark" in line


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"tests": ("unit/test_links.py::test_that_is_not_there",)}, "there is no test unit/test_links.py::"),
        ({"tests": ()}, "no test proves it"),
        ({"fault": ()}, "no fault is planted"),
        ({"fault": (_fault(old="import"),)}, " times, expected once"),
        ({"fault": (_fault(old="no such line"),)}, " 0 times, expected once"),
        ({"fault": (_fault(new="def\n"),)}, "cannot be planted: invalid syntax"),
        ({"fault": (_fault(dies="unit/test_links.py"),)}, "there is no test unit/test_links.py"),
        ({"protections": ("none such",)}, "the simulation has no protection 'none such'"),
    ],
)
def test_complaint_says_what_is_wrong_with_an_entry(other: dict[str, object], said: str) -> None:
    assert any(said in line for line in _about(_promise(**other)))


def test_protection_without_promise_is_named() -> None:
    assert any("'stops are frozen' of the simulation is no promise's" in line for line in complaints({}))


def test_mark_that_nobody_registered_is_named() -> None:
    marks = marked()
    assert {line.split(": marked in")[0] for line in complaints({}) if ": marked in" in line} == set(marks)


def test_faults_have_numbers_when_a_promise_has_several() -> None:
    several = _promise(fault=(_fault(), _fault(new="pass\n")))
    assert list(planted(several)) == ["p-1", "p-2"]
    assert list(planted(_promise())) == ["p"]


def test_page_shows_sentence_proof_and_meaning_when_drawn() -> None:
    promises = _promise(section="Runs", means="*P*: means\nit.", settings="`a=b`") | {
        "q": Promise(id="q", sentence="Q is so", tests=("unit/test_links.py",), fault=(_fault(),))
    }
    page = draw(promises, {"q": [ROOT / "README.md", ROOT / "docs" / "state.md"]})
    assert "## Runs\n\n| promise | settings | proof |\n| --- | --- | --- |\n" in page
    assert "| **P** | `a=b` | `unit/test_links.py` |\n\n- *P*: means it.\n" in page
    assert "| Q is so | [README](../README.md), [state](state.md) | `unit/test_links.py` |\n" in page


def test_cell_holds_a_phrase() -> None:
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        for cell in line.strip("|").split("|") if line.startswith("|") else ():
            words = re.sub(r"`[^`]*`", "", cell).split()
            assert len(words) <= 15, cell


def test_patched_files_are_the_packages() -> None:
    files = {fault.file for fault in planted(PROMISES).values() if fault.file}
    assert all(Path(file).parts[0] == "airflow_kstreams" for file in files)
