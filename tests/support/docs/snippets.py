"""The fences of tutorials and how-to pages, and a pytest plugin for the tests that run them.

A comment directly above a fence says which test runs it, or why none does; one below the page's title speaks
of all fences that have none of their own::

    <!-- run by tests/unit/docs/test_how_to_records.py::test_letters_come_back -->
    <!-- not run: it needs an account at a provider -->
    <!-- all run by tests/integration/process/first_steps/test_tutorial.py::test_each_step -->

The test has ``@pytest.mark.snippets("docs/how-to/bad-records.md")`` and takes the fences from the fixture
``snippets``. It fails if one that names it was not taken. What begins with ``>>>`` is an example, which
``tests/unit/test_examples.py`` runs; fences of :data:`SHOWN` are no commands.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[3]
#: Languages of what is looked at: a program's output, a picture, a table of contents.
SHOWN = frozenset({"text", "mermaid", "{toctree}"})
_COMMENT = re.compile(
    r"<!-- (?:(?P<all>all )?run by (?P<test>\S+)|not run: (?P<reason>\S.*)) -->\s*\Z", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A fence of a page.

    :param language: what stands behind the backticks.
    :param line: of its first line of code, counted from 1.
    :param test: the test that runs it, as ``file::function``; empty if none is named.
    :param reason: why none does; empty if one is named.
    """

    language: str
    code: str
    line: int
    test: str
    reason: str

    @property
    def needs_a_test(self) -> bool:
        """Whether it is a command or code that no other test takes by itself."""
        return self.language not in SHOWN and not self.code.startswith(">>>")


def snippets_of(text: str) -> Iterator[Snippet]:
    """Yield the fences of a page, in its order."""
    of_page: re.Match[str] | None = None
    own: re.Match[str] | None = None
    for token in MarkdownIt().parse(text):
        if token.type == "html_block":
            own = _COMMENT.match(token.content)
            of_page = own if own and own["all"] else of_page
        elif token.type == "fence" and token.map is not None:
            said = own or of_page
            yield Snippet(
                language=token.info.strip(),
                code=token.content,
                line=token.map[0] + 2,
                test=(said["test"] or "") if said else "",
                reason=(said["reason"] or "") if said else "",
            )
            own = None
        else:
            own = None


class Snippets:
    """The fences of some pages that name one test, in the pages' order.

    :param pages: texts by their paths below the checkout.
    :param test: as the pages name it.
    """

    def __init__(self, pages: dict[str, str], test: str) -> None:
        self._left = [
            (page, found)
            for page, text in pages.items()
            for found in snippets_of(text)
            if found.test == test and found.needs_a_test
        ]
        self.is_named = bool(self._left)

    def take(self, language: str) -> Snippet:
        """Return the next fence of a language; fail if there is none."""
        for at, (_, found) in enumerate(self._left):
            if found.language == language:
                del self._left[at]
                return found
        pytest.fail(f"no {language} fence of the page that names this test is left")

    def write(self, folder: Path) -> Path:
        """Write all files into a folder, and return it: fences whose first line is a comment with a path."""
        for each in list(self._left):
            path = re.match(r"(?:#|//|--) ([\w./-]+\.\w+)\n", each[1].code)
            if path:
                self._left.remove(each)
                (folder / path[1]).parent.mkdir(parents=True, exist_ok=True)
                (folder / path[1]).write_text(each[1].code, encoding="utf-8")
        return folder

    def commands(self) -> list[str]:
        """Return the commands of all fences of a shell: without comments, continued lines joined."""
        taken = [each for each in self._left if each[1].language in ("shell", "console")]
        self._left = [each for each in self._left if each not in taken]
        lines = "\n".join(found.code for _, found in taken).replace("\\\n", " ").splitlines()
        return [line.removeprefix("$ ") for line in lines if line.strip() and not line.startswith("#")]

    def left(self) -> list[str]:
        """Return where the fences are that were not taken."""
        return [f"{page}:{found.line}" for page, found in self._left]


@pytest.fixture
def snippets(request: pytest.FixtureRequest) -> Iterator[Snippets]:
    """The fences that name this test, of the pages of its mark; it takes each of them."""
    pages = [page for mark in request.node.iter_markers("snippets") for page in mark.args]
    test = request.node.nodeid.partition("[")[0]
    found = Snippets({page: (ROOT / page).read_text(encoding="utf-8") for page in pages}, test)
    assert found.is_named, f"no fence of {pages or 'a page: the mark is missing'} names {test}"
    yield found
    assert found.left() == [], "these fences name this test, and it did not take them"


@cache
def marked() -> frozenset[tuple[str, str]]:
    """Return the tests with the mark: ``file::function`` and a page, for each page of a mark."""
    return frozenset(
        (f"{path.relative_to(ROOT).as_posix()}::{function.name}", argument.value)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "mark.snippets(" in (text := path.read_text(encoding="utf-8"))
        for function in ast.parse(text).body
        if isinstance(function, ast.FunctionDef)
        for mark in function.decorator_list
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.snippets"
        for argument in mark.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    )
