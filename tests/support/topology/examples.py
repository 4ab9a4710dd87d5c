"""Runs the examples of docstrings and Markdown files: everything that begins with ``>>>``.

An example may use what ``airflow_kstreams.streams`` and ``airflow_kstreams.testing`` export without importing
it, when it stands in a docstring; in a Markdown file it runs as it stands. ``...`` in expected output stands
for anything.
"""

from __future__ import annotations

import doctest
import inspect
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from markdown_it import MarkdownIt

from airflow_kstreams import streams, testing

_PARSER = doctest.DocTestParser()


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """A fenced block of Python in a Markdown file.

    :param line: of its first line of code, counted from 1.
    :param section: number of the heading it stands below.
    """

    code: str
    line: int
    section: int

    @property
    def is_example(self) -> bool:
        return self.code.startswith(">>>")


class _Finder(doctest.DocTestFinder):
    """Finds the examples of decorated functions, too, whose globals are the decorator's."""

    def _from_module(self, module: Any, object: Any) -> Any:  # noqa: A002  (as in doctest)
        return super()._from_module(module, inspect.unwrap(object))  # type: ignore[misc]


def report(test: doctest.DocTest) -> str:
    """Run a test and return what failed as doctest words it, empty if nothing did."""
    output = io.StringIO()
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    runner.run(test, out=output.write)
    return output.getvalue()


def docstring_tests(module: ModuleType) -> list[doctest.DocTest]:
    """Return the tests in the docstrings of a module, one per docstring that has examples."""
    exported = {name: getattr(package, name) for package in (streams, testing) for name in package.__all__}
    finder = _Finder(exclude_empty=True)
    found = finder.find(module, globs=exported | vars(module))
    return [test for test in found if test.examples]


def markdown_tests(path: Path, name: str) -> list[doctest.DocTest]:
    """Return the tests in a Markdown file: one per section, whose blocks build on one another."""
    tests: list[doctest.DocTest] = []
    for block in code_blocks(path.read_text(encoding="utf-8")):
        if not block.is_example:
            continue
        test = _PARSER.get_doctest(block.code, {"__name__": "__main__"}, name, str(path), block.line - 1)
        if tests and tests[-1].globs["__section__"] == block.section:
            for example in test.examples:
                example.lineno += block.line - 1 - (tests[-1].lineno or 0)
            tests[-1].examples += test.examples
            continue
        test.globs["__section__"] = block.section
        tests.append(test)
    return tests


def write_project(text: str, folder: Path) -> Path:
    """Write the files of a Markdown text into a folder, and return that; the first line of each block of
    Python says where it belongs.
    """
    for block in code_blocks(text):
        if block.is_example:
            continue
        first = block.code.splitlines()[0]
        assert first.startswith("# ") and first.endswith(".py"), f"line {block.line}: no file named"
        path = folder / first.removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code, encoding="utf-8")
    return folder


def code_blocks(text: str) -> Iterator[CodeBlock]:
    """Yield the blocks of Python in a Markdown text."""
    section = 0
    for token in MarkdownIt().parse(text):
        if token.type == "heading_open":
            section += 1
        if token.type == "fence" and token.info.strip() == "python" and token.map is not None:
            yield CodeBlock(code=token.content, line=token.map[0] + 2, section=section)
