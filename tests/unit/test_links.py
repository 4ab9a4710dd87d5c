"""Pages link to files, headings and modules that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_PAGES = (_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md")))
_LINK = re.compile(r"\]\((?!\w+:)(?P<path>[^)#\s]*)(?:#(?P<heading>[^)\s]+))?\)")
_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|toml))(?:::\w+)?`")
#: What a path in a page may be relative to.
_BASES = (_ROOT, *(_ROOT / folder for folder in ("airflow_kstreams", "tests", "dev")))


def _anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in _LINK.finditer(text):
        target = page.parent / link["path"] if link["path"] else page
        assert target.exists(), link[0]
        if link["heading"] and target.suffix == ".md":
            assert link["heading"] in _anchors(target), link[0]


@pytest.mark.parametrize(
    "page", [page for page in _PAGES if page.name != "contributing.md"], ids=lambda page: page.name
)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    named = set(_PATH.findall(page.read_text(encoding="utf-8")))
    assert [path for path in named if not any((base / path).exists() for base in _BASES)] == []
