"""No text of the package says "1 records": a number before a noun passes :func:`counted`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import airflow_kstreams

_NOUNS = (
    "record|task|run|partition|offset|topic|key|letter|byte|processor|row|group|slot|node|commit|call|changelog|"
    "member|header|cell|launch|column|value|store|thread|broker|sample|line|entrie|copie|subtopologie|id"
)
_PLURAL = (
    rf"(?:(?:new|more|such|existing|input|changelog|partition|other|transactional) )?(?:{_NOUNS})s\b(?!/)"
)
_BEHIND = re.compile(rf" {_PLURAL}")
_IN_LOG_LINE = re.compile(rf"%[.\d,]*[df] {_PLURAL}")
#: Placeholders that hold no number, or never 1.
_NEVER_ONE = {
    "counts",  # a history of counts
    "doing",
    "'intermediate' if other[0] == '--intermediate-topics' else 'input'",
    "count!r",  # refused
    "limit",  # bytes of a setting
    "passed + 1",
    "self.lines",  # one line has a text of its own
    "total",
    "settings.application_id",
    "partitions",
}


def _wrong(code: str) -> Iterator[str]:
    """Yield the texts in which a number stands before a noun in the plural."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.JoinedStr):
            for shown, text in pairwise(node.values):
                if isinstance(shown, ast.FormattedValue) and isinstance(text, ast.Constant):
                    what = ast.unparse(shown.value) + ("!r" if shown.conversion == ord("r") else "")
                    behind = str(text.value)
                    if not what.isupper() and what not in _NEVER_ONE and _BEHIND.match(behind):
                        yield f"line {shown.lineno}: {{{what}}}{behind}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for found in _IN_LOG_LINE.findall(node.value):
                yield f"line {node.lineno}: {found}"


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ('f"{len(tasks)} tasks, {n:,} more partitions"', 2),
        ('log.info("subtopology %d: %d tasks are launched", 0, 1)', 1),
        ("f\"{counted(n, 'task')}, {MOST} records, {topic} keeps records, {rate} records/s\"", 0),
    ],
)
def test_texts_are_found_that_say_one_records(code: str, wrong: int) -> None:
    assert len(list(_wrong(code))) == wrong


def test_no_text_says_one_records() -> None:
    (folder,) = airflow_kstreams.__path__
    assert [
        f"{file.relative_to(folder)}, {text}"
        for file in sorted(Path(folder).rglob("*.py"))
        for text in _wrong(file.read_text(encoding="utf-8"))
    ] == []
