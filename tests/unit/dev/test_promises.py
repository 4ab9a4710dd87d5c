"""Every promise of the pages is registered with the test that proves it, and a fault that this test finds."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from dev.promise_register.checks import complaints
from dev.promise_register.page import PAGE, PROOFS, draw
from dev.promise_register.pages import PAGES, blocks, listed, misquoted, unlisted
from dev.promise_register.planting import module_of, planted
from dev.promise_register.proofs import dying, proofs, stray_marks
from dev.promise_register.register import ROOT, Fault, Promise, all_faults, load

PROMISES = load()
_FEW = 20


def test_register_pages_tests_and_faults_agree() -> None:
    assert complaints(PROMISES) == []


def test_pages_are_those_that_users_read() -> None:
    names = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {"README.md", "docs/explanation/data-loss.md", "docs/explanation/windows.md"} <= names
    # It is drawn from the register, so a list there would say that the register promises what it promises.
    assert "docs/reference/guarantees.md" not in names


def test_few_sentences_are_said_to_promise_nothing() -> None:
    exempt = Counter(
        page.name for page in PAGES for block in blocks(page.read_text(encoding="utf-8")) if block.is_exempt
    )
    assert exempt.total() <= _FEW, exempt


def test_exemption_is_needed_where_it_stands() -> None:
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.is_exempt:
                assert block.words, f"{page.name}:{block.line}"
                assert not block.promises, f"{page.name}:{block.line}"


@pytest.mark.parametrize(
    ("text", "listed", "lines"),
    [
        ("# Never\n\nA run never ends.\n", "", [3]),
        ("A run never\nends.\n", "runs-end: run never ends", []),
        ("A run never ends.\n", "no promise: never ends", []),
        ("It ends.\n\n- one\n- two is refused\n- three\n", "a: one", [4]),
        ("- one is lost\n- two is lost\n", "a: one is", [2]),
        ("| a | b |\n| - | - |\n| x | nothing |\n", "a: x | nothing", []),
        ("| a | b |\n| - | - |\n| x | nothing |\n", "", [1]),
        ("Read on:\n\n```\nnothing is lost\n```\n\n    it never ends\n\nIt cannot.\n", "a: Read on", [9]),
        ("1. Read on:\n\n   ```\n   nothing is lost\n   ```\n\n2. It cannot.\n", "", [7]),
        ("See `never`, and [the page](never.md).\n", "", []),
        ("One\nparagraph of several lines, and\nwhatever it says.\n", "", [1]),
    ],
)
def test_promise_is_seen_when_it_is_not_listed(text: str, listed: str, lines: list[int]) -> None:
    page = f"{text}\n<!-- promises\n{listed}\n-->\n" if listed else text
    assert [block.line for block in unlisted(page)] == lines
    assert list(misquoted(page)) == []


def test_promises_are_read_when_a_block_has_several() -> None:
    (block,) = blocks("Never so. Always so.\n\n<!-- promises\na, b: Never so\nc: Always\n-->\n")
    assert block.promises == ("a", "b", "c")


@pytest.mark.parametrize(("words", "count"), [("it is so", 2), ("it is not so", 0), ("", 0)])
def test_list_is_refused_when_its_words_stand_in_no_one_place(words: str, count: int) -> None:
    page = f"Here it is so.\n\nThere it is so.\n\n<!-- promises\na: {words}\nb: There\n-->\n"
    assert list(misquoted(page)) == [f"a: {words!r} stands in {count} paragraphs, expected one"]


def test_comment_is_no_list_when_the_page_goes_on_behind_it() -> None:
    assert [block.line for block in unlisted("Never.\n\n<!-- promises\na: Never\n-->\n\nMore.\n")] == [1]


_PROVEN = "same-as-kafka-streams"


def _promise(**other: object) -> dict[str, Promise]:
    told = {"id": _PROVEN, "sentence": "**P**", "fault": (_fault(),)}
    promise = Promise(**{**told, **other})  # type: ignore[arg-type]
    return {promise.id: promise}


def _fault(**other: str) -> Fault:
    told = {
        "what": "a mistake",
        "where": "murmur2",
        "code": "hashed - (1 << 32) if hashed > _INT32_MAX else hashed",
        "becomes": "hashed",
        "dies": "test_hash_is_kafkas_when_the_data_is_of_its_own_tests",
    }
    return Fault(**{**told, **other})


def _about(promises: dict[str, Promise]) -> list[str]:
    return [line for line in complaints(promises) if re.match(rf"({'|'.join(promises)})(-\d+)?:", line)]


def test_entry_is_complete_when_it_is_copied_from_the_recipe(tmp_path: Path) -> None:
    recipe = (ROOT / "docs" / "internals" / "contributing.md").read_text(encoding="utf-8")
    (entry,) = re.findall(r"^```toml\n(.*?)^```$", recipe, re.MULTILINE | re.DOTALL)
    (tmp_path / "promises.toml").write_text(entry, encoding="utf-8")
    promises = load(tmp_path / "promises.toml")
    (name,) = promises
    said = [line for line in complaints(promises) if line.startswith(name)]
    dies = promises[name].fault[0].dies
    # Nobody has registered it, so all is there but its line on a page and its mark on a test.
    assert said == [
        f"{name}: registered, and no page lists it: add it at the end of the page that makes it",
        f'{name}: no test proves it: mark one with @pytest.mark.promise("{name}")',
        f"{name}: cannot be planted: one test {dies!r} should carry the promise's mark, found 0",
    ]
    (page,) = re.findall(r"^```markdown\n(A run.*?)^```$", recipe, re.MULTILINE | re.DOTALL)
    assert [block.promises for block in blocks(page)] == [(name,)]
    assert f'@pytest.mark.promise("{name}")\ndef {dies}(' in recipe
    for fault in promises[name].fault:
        source = module_of(fault).read_text(encoding="utf-8")
        assert planted(fault, source) != ast.unparse(ast.parse(source))


def test_complaint_says_so_when_no_page_lists_the_promise() -> None:
    line, *_ = _about(_promise(id="p"))
    assert "no page lists it" in line


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"id": "p"}, "p: no test proves it"),
        ({"fault": ()}, "no fault is planted"),
        (
            {"fault": (_fault(dies="test_that_is_not_there"),)},
            "one test 'test_that_is_not_there' sh",
        ),
        ({"fault": (_fault(dies="test_links_lead_somewhere"),)}, "promise's mark, found 0"),
        ({"fault": (_fault(where="no_such"),)}, "one module should define no_such, found 0: none"),
        ({"fault": (_fault(code="hashed"),)}, "murmur2 should hold 'hashed' once, found "),
        ({"fault": (_fault(code="no_such_name"),)}, "should hold 'no_such_name' once, found 0 times"),
        ({"fault": (_fault(becomes="def"),)}, "cannot be planted: invalid syntax"),
        ({"fault": (_fault(without="0"),)}, "cannot be planted: either code and becomes, or without"),
        ({"fault": (_fault(becomes=""),)}, "cannot be planted: either code and becomes, or without"),
        ({"protections": ("none such",)}, "the simulation has no protection 'none such'"),
    ],
)
def test_complaint_says_what_is_wrong_with_an_entry(other: dict[str, object], said: str) -> None:
    assert any(said in line for line in _about(_promise(**other)))
    assert not any(said in line for line in _about(_promise()))


def test_mark_on_a_test_is_named_when_nobody_registered_it() -> None:
    said = {line.split(": marked on")[0] for line in complaints({}) if ": marked on" in line}
    assert said == set(proofs())


def test_protection_without_promise_is_named() -> None:
    assert any("'stops are frozen' of the simulation is no promise's" in line for line in complaints({}))


def test_line_of_a_page_is_named_when_nobody_registered_it() -> None:
    said = {line.split(": listed in")[0] for line in complaints({}) if ": listed in" in line}
    assert said == set(listed())


def test_faults_have_numbers_when_a_promise_has_several() -> None:
    several = _promise(id="p", fault=(_fault(), _fault(becomes="1")))
    assert list(all_faults(several)) == ["p-1", "p-2"]
    assert [fault.promise for fault in all_faults(several).values()] == ["p", "p"]
    assert list(all_faults(_promise(id="p"))) == ["p"]


def test_pages_show_sentence_proof_and_meaning_when_drawn() -> None:
    promises = _promise(id="partitioners-agree", section="Runs", means="*P*: means\nit.", settings="`a=b`")
    promises |= {"q": Promise(id="q", sentence="Q is so", fault=(_fault(),))}
    pages = draw(promises, {"q": [ROOT / "README.md", ROOT / "docs" / "explanation" / "state.md"]})
    proof = ", ".join(f"`{each.node}`" for each in proofs()["partitioners-agree"])
    made = "[README](../../README.md), [state](../explanation/state.md)"
    assert (
        "## Runs\n\n| promise | settings |\n| --- | --- |\n| **P** | `a=b` |\n\n- *P*: means it.\n"
        in pages[PAGE]
    )
    assert f"| Q is so | {made} |\n" in pages[PAGE]
    assert f"## Runs\n\n| promise | proof |\n| --- | --- |\n| **P** | {proof} |\n" in pages[PROOFS]
    assert f"| Q is so | {made} |  |\n" in pages[PROOFS]


def test_cell_holds_a_phrase() -> None:
    for line in (PAGE.read_text(encoding="utf-8") + PROOFS.read_text(encoding="utf-8")).splitlines():
        for cell in line.strip("|").split("|") if line.startswith("|") else ():
            words = re.sub(r"`[^`]*`,?", "", cell).split()
            assert len(words) <= 15, cell


_MODULE = ast.unparse(
    ast.parse("""
LIMIT = 3

class Task:
    size: int = 1

    @property
    def open(self):
        return self._open

    def step(self, records):
        if self.done:
            return None
        elif records:
            self.seen = True
        with self.lock:
            try:
                for record in records or ():
                    self.handle(record, late=record.late)
            except ValueError:
                raise
            finally:
                self.flush()
        return [record for record in records if record.time_ms >= 0 and record.key and record.value]

def step():
    def inner():
        return 1
    return inner() + 1
""")
)
_LOOP = "for record in records or ():\n                    self.handle"


@pytest.mark.parametrize(
    ("where", "code", "becomes", "old", "new"),
    [
        ("LIMIT", "3", "4", "LIMIT = 3", "LIMIT = 4"),
        ("Task.size", "1", "2", "size: int = 1", "size: int = 2"),
        ("Task.open", "self . _open", "True", "return self._open", "return True"),
        ("Task.step", "record.time_ms >= 0", "record.time_ms > 0", "_ms >= 0", "_ms > 0"),
        ("Task.step", "self.flush()", "self.flush(); pass", "flush()", "flush()\n                pass"),
        ("Task.step", "if self.done: ...", "if not self.done: ...", "if self.done", "if not self.done"),
        ("Task.step", "return None", "raise", "return None", "raise"),
        ("Task.step", "for record in records or (): ...", "...", _LOOP, "self.handle"),
        ("step.inner", "1", "2", "return 1", "return 2"),
        ("step", "inner()", "0", "inner() + 1", "0 + 1"),
    ],
)
def test_code_becomes_other_code_when_a_fault_is_planted(
    where: str, code: str, becomes: str, old: str, new: str
) -> None:
    assert _MODULE.count(old) == 1
    assert planted(_fault(where=where, code=code, becomes=becomes), _MODULE) == _MODULE.replace(old, new)


_IF = "if self.done:\n            return None\n        elif records:\n            self.seen = True\n        "


@pytest.mark.parametrize(
    ("without", "old", "new"),
    [
        ("record.key", " and record.key", ""),
        ("late=record.late", ", late=record.late", ""),
        ("self.handle(record, late=record.late)", "self.handle(record, late=record.late)", "pass"),
        ("except ValueError: ...", "except ValueError:\n                raise\n            ", ""),
        ("self.flush()", "            finally:\n                self.flush()\n", ""),
        ("if self.done: ...", _IF, ""),
    ],
)
def test_code_is_left_out_when_a_fault_says_so(without: str, old: str, new: str) -> None:
    assert _MODULE.count(old) == 1
    got = planted(_fault(where="Task.step", code="", becomes="", without=without), _MODULE)
    assert got == _MODULE.replace(old, new)


def test_last_operand_stands_alone_when_the_others_are_left_out() -> None:
    got = planted(_fault(where="f", code="", becomes="", without="a"), "def f():\n    return a or not b\n")
    assert got == "def f():\n    return not b"


@pytest.mark.parametrize("without", ["self.lock", "self.done", "missing()"])
def test_nothing_is_left_out_when_it_is_not_one_of_several(without: str) -> None:
    with pytest.raises(ValueError, match=r"Task.step should hold '.*' once, found 0 times"):
        planted(_fault(where="Task.step", code="", becomes="", without=without), _MODULE)


def test_module_goes_before_the_name_when_several_define_it(tmp_path: Path) -> None:
    for name in ("one/state.py", "two/state.py", "two/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("def _same(): ...\n", encoding="utf-8")
    (tmp_path / "two" / "other.py").write_text("class A:\n    def only(self): ...\n", encoding="utf-8")
    named = {
        where: module_of(_fault(where=where), tmp_path).relative_to(tmp_path).as_posix()
        for where in ("one.state:_same", "two:_same", "A.only", "other:A")
    }
    assert named == {
        "one.state:_same": "one/state.py",
        "two:_same": "two/__init__.py",
        "A.only": "two/other.py",
        "other:A": "two/other.py",
    }
    for where in ("_same", "state:_same"):
        with pytest.raises(ValueError, match=f"should define {where}, found [23]: one/state.py, two/"):
            module_of(_fault(where=where), tmp_path)
    with pytest.raises(ValueError, match="should define only, found 0: none"):
        module_of(_fault(where="only"), tmp_path)


def _tests(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")


def test_marks_prove_promises_wherever_pytest_takes_them(tmp_path: Path) -> None:
    _tests(
        tmp_path,
        "test_a.py",
        """
        pytestmark = [pytest.mark.prove, pytest.mark.promise("of-file", "of-both")]

        @pytest.mark.promise("of-class")
        class TestIt:
            @pytest.mark.promise("of-method")
            def test_one(self): ...

        @pytest.mark.timeout(3)
        @pytest.mark.promise("of-test", "of-both")
        async def test_two(): ...
        """,
    )
    _tests(tmp_path, "test_b.py", 'pytestmark = pytest.mark.promise("of-file")\n\ndef test_three(): ...\n')
    assert {name: [each.node for each in found] for name, found in proofs(tmp_path).items()} == {
        "of-file": ["test_a.py", "test_b.py"],
        "of-both": ["test_a.py", "test_a.py::test_two"],
        "of-class": ["test_a.py::TestIt"],
        "of-method": ["test_a.py::TestIt::test_one"],
        "of-test": ["test_a.py::test_two"],
    }
    assert stray_marks(tmp_path) == []
    for promise, dies, found in (
        ("of-file", "test_one", "test_a.py::TestIt::test_one"),
        ("of-file", "test_three", "test_b.py::test_three"),
        ("of-both", "test_two[a b]", "test_a.py::test_two[a b]"),
    ):
        assert dying(_fault(promise=promise, dies=dies), tmp_path) == found
    with pytest.raises(ValueError, match="one test 'test_three' should carry the promise's mark, found 0"):
        dying(_fault(promise="of-both", dies="test_three"), tmp_path)


def test_dying_test_is_refused_when_two_of_its_name_carry_the_mark(tmp_path: Path) -> None:
    for name in ("test_a.py", "test_b.py"):
        _tests(tmp_path, name, 'pytestmark = pytest.mark.promise("p")\n\ndef test_it(): ...\n')
    with pytest.raises(ValueError, match="one test 'test_it' should carry the promise's mark, found 2"):
        dying(_fault(promise="p", dies="test_it"), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        'pytestmark = pytest.mark.promise("p")\n',
        '@pytest.mark.promise("p")\ndef helper(): ...\n',
        "@pytest.mark.promise()\ndef test_it(): ...\n",
        "@pytest.mark.promise(P)\ndef test_it(): ...\n",
        "@pytest.mark.promise\ndef test_it(): ...\n",
        'CASES = [pytest.param(1, marks=pytest.mark.promise("p"))]\n',
    ],
)
def test_mark_is_named_when_it_proves_nothing(text: str, tmp_path: Path) -> None:
    _tests(tmp_path, "test_a.py", text)
    assert stray_marks(tmp_path) == ["test_a.py:1"]
