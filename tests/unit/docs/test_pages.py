"""Each page stands on a shelf and has its shelf's form; each fence for users is run, or says why not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.support.docs.snippets import ROOT, Snippets, marked, snippets_of

DOCS = ROOT / "docs"
SHELVES = {"tutorials", "how-to", "reference", "explanation", "internals"}
HOW_TO = sorted(page for page in (DOCS / "how-to").glob("*.md") if page.name != "index.md")
RUN = [*HOW_TO, *sorted((DOCS / "tutorials").glob("*.md"))]
LONGEST_HOW_TO = 60
_FRONT_MATTER = re.compile(r"\A---\n.*?^---\n", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def body(page: Path) -> str:
    return _FRONT_MATTER.sub("", page.read_text(encoding="utf-8")).strip("\n")


def test_every_page_stands_on_a_shelf() -> None:
    beside = {page.relative_to(DOCS).as_posix() for page in DOCS.glob("*.md")}
    folders = {page.parent.relative_to(DOCS).as_posix() for page in DOCS.glob("*/**/*.md")}

    assert beside == {"index.md"}
    assert folders == SHELVES
    assert [shelf for shelf in SHELVES if not (DOCS / shelf / "index.md").is_file()] == []


def test_shelf_of_tasks_names_each_of_them() -> None:
    text = (DOCS / "how-to" / "index.md").read_text(encoding="utf-8")

    assert sorted(re.findall(r"\]\(([\w-]+\.md)\)", text)) == sorted(page.name for page in HOW_TO)


@pytest.mark.parametrize("page", HOW_TO, ids=name)
def test_how_to_page_is_short_and_begins_with_its_steps(page: Path) -> None:
    text = body(page)

    assert text.count("\n") + 1 <= LONGEST_HOW_TO
    assert first_blocks(text) in allowed(page.name)


def allowed(file: str) -> list[list[str]]:
    """Return how a page may begin: a title, a paragraph perhaps, then steps."""
    begins = ["ordered_list", "table"] if file.startswith("coming-from-") else ["ordered_list"]
    return [["heading", *paragraph, block] for paragraph in ([], ["paragraph"]) for block in begins]


def first_blocks(text: str) -> list[str]:
    """Return the kinds of a page's blocks, to the first that is neither heading nor paragraph."""
    found = []
    for token in MarkdownIt().enable("table").parse(text):
        if token.level or token.nesting < 0 or token.type in ("html_block", "inline"):
            continue
        found.append(token.type.removesuffix("_open"))
        if found[-1] not in ("heading", "paragraph"):
            break
    return found


@pytest.mark.parametrize("page", RUN, ids=name)
def test_each_fence_names_its_test_or_a_reason(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    fences = list(snippets_of(text))

    assert indented(body(page)) == []
    assert [found.line for found in fences if not found.language] == []
    silent = [found.line for found in fences if found.needs_a_test and not found.test and not found.reason]
    assert silent == []
    assert [found.test for found in fences if found.test and (found.test, name(page)) not in marked()] == []


def indented(text: str) -> list[str]:
    return [token.content for token in MarkdownIt().parse(text) if token.type == "code_block"]


def test_each_marked_test_is_named_by_its_page() -> None:
    named = {
        (found.test, name(page)) for page in RUN for found in snippets_of(page.read_text(encoding="utf-8"))
    }

    assert marked()
    assert sorted(marked() - named) == []


def test_marked_tests_take_what_names_them() -> None:
    """By the fixture, which sees to it; the tutorial's runner reads its page by itself."""
    by_itself = {"tests/integration/process/first_steps/test_tutorial.py"}

    for test, _ in marked():
        file, function = test.split("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        (found,) = (each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == function)
        assert file in by_itself or "snippets" in {argument.arg for argument in found.args.args}, test


PAGE = """# Page

<!-- all run by tests/a.py::test_all -->

```shell
$ one \\
  --long
# not this
$ two
```

1. First

   <!-- run by tests/a.py::test_one -->
   ```python
   # dags/orders.py
   number = 1
   ```

<!-- not run: it costs money -->
```sql
select 1
```

<!-- run by tests/a.py::test_one -->
Not above a fence.

```python
>>> number
1
```

```text
three
```
"""


def test_fences_have_the_comment_above_them_or_the_page_s() -> None:
    found = [(each.language, each.line, each.test, each.reason) for each in snippets_of(PAGE)]

    assert found == [
        ("shell", 6, "tests/a.py::test_all", ""),
        ("python", 16, "tests/a.py::test_one", ""),
        ("sql", 22, "", "it costs money"),
        ("python", 29, "tests/a.py::test_all", ""),
        ("text", 34, "tests/a.py::test_all", ""),
    ]
    assert [each.needs_a_test for each in snippets_of(PAGE)] == [True, True, True, False, False]


def test_snippets_are_left_until_they_are_taken(tmp_path: Path) -> None:
    ours, other = (Snippets({"page.md": PAGE}, f"tests/a.py::test_{each}") for each in ("all", "one"))

    assert (ours.left(), other.left()) == (["page.md:6"], ["page.md:16"])
    assert ours.commands() == ["one    --long", "two"]
    assert (other.write(tmp_path) / "dags" / "orders.py").read_text() == "# dags/orders.py\nnumber = 1\n"
    assert (ours.left(), other.left()) == ([], [])
    assert not Snippets({"page.md": PAGE}, "tests/a.py::test_none").is_named
    with pytest.raises(pytest.fail.Exception, match="no shell fence"):
        ours.take("shell")
