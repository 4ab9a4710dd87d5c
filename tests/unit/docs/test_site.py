"""The documentation as a site: built once for all tests here, without a warning, complete, and searched."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from dev.docs_site.build import DOCS, SiteError, build, lead_to_releases, moved
from dev.docs_site.pictures import FOLDER, file_name, sources
from dev.reference_pages.errors_page import error_examples
from tests.support.docs.site_search import SiteSearch

ROOT = DOCS.parent
QUESTIONS = tomllib.loads((DOCS / "questions.toml").read_text(encoding="utf-8"))["question"]
PAGES = sorted(path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md"))
_LOADED = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?\s(?:src|href)=["']([^"']+)""")
_ADDRESS = re.compile(r"""\s(?:href|src)="([^"#?]+)""")
FIRST = 5


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site") / "1.0"
    build(target)
    return target


@pytest.fixture(scope="module")
def search(site: Path) -> Iterator[SiteSearch]:
    found = SiteSearch(site)
    yield found
    found.close()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Pages of two shelves, with the real site's settings."""
    docs = tmp_path / "docs"
    for name in ("_static", "_templates"):
        shutil.copytree(DOCS / name, docs / name)
    shutil.copy(DOCS / "conf.py", docs)
    (tmp_path / "airflow_kstreams").mkdir()
    shutil.copy(ROOT / "airflow_kstreams" / "__init__.py", tmp_path / "airflow_kstreams")
    (docs / "how-to").mkdir()
    (docs / "index.md").write_text("# Home\n\n```{toctree}\nhow-to/index\n```\n")
    (docs / "how-to" / "index.md").write_text("# Tasks\n\n```{toctree}\n:glob:\n\n*\n```\n")
    (docs / "how-to" / "task.md").write_text("# Task\n\n[Home](../index.md), [this](#task)\n")
    return docs


def test_every_page_is_built_and_on_a_shelf(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    listed = {unquote(address).removesuffix(".html") for address in _ADDRESS.findall(home)}

    assert [page for page in PAGES if not (site / f"{page}.html").is_file()] == []
    # The list beside each page has all shelves and their pages: a click to open a shelf, a click to the page.
    assert [page for page in PAGES if page != "index" and page not in listed] == []


def test_links_of_the_built_pages_lead_to_files_of_the_site(site: Path) -> None:
    lost = [
        f"{page.relative_to(site)}: {address}"
        for page in site.rglob("*.html")
        for address in set(_ADDRESS.findall(page.read_text(encoding="utf-8")))
        if not re.match(r"\w+:", address) and not address.endswith("../versions.html")
        if not (page.parent / unquote(address)).exists()
    ]

    assert lost == []


def test_nothing_is_loaded_from_elsewhere_when_a_page_is_read(site: Path) -> None:
    pages = [page.read_text(encoding="utf-8") for page in site.rglob("*.html")]
    styles = [style.read_text(encoding="utf-8") for style in site.rglob("*.css")]

    assert [each for page in pages for each in _LOADED.findall(page) if re.match(r"(?:\w+:)?//", each)] == []
    assert [style for style in styles if re.search(r"(?:url\(|@import)\s*['\"]?(?:\w+:)?//", style)] == []


def test_former_address_leads_to_the_page_when_it_was_moved(site: Path) -> None:
    assert moved()["guarantees"] == "reference/guarantees"
    assert [old for old in moved() if old in PAGES] == []
    assert [new for new in moved().values() if new not in PAGES] == []
    page = (site / "internals" / "README.html").read_text(encoding="utf-8")
    assert 'location.replace("index.html" + location.hash)' in page


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked["page"])
def test_page_is_among_the_first_when_its_question_is_asked(
    search: SiteSearch, asked: dict[str, str]
) -> None:
    found = search.pages(asked["asks"])[:FIRST]

    assert {asked["page"], asked.get("or_page")} & {*found}, found


@pytest.mark.parametrize("code", error_examples())
def test_page_of_errors_is_among_the_first_when_a_code_is_asked_for(search: SiteSearch, code: str) -> None:
    assert "reference/errors" in search.pages(code)[:FIRST]


def test_search_shows_pages_with_some_of_the_words_when_none_has_all(search: SiteSearch) -> None:
    assert "explanation/joins" in search.pages("joins zanzibar")[:FIRST]
    assert search.pages("zanzibar") == []


def test_each_mermaid_picture_is_drawn_as_it_stands_now() -> None:
    drawn = {path.name for path in FOLDER.glob("*.svg")}

    assert drawn == {file_name(source) for source in sources()}
    assert drawn


def test_questions_name_pages_that_there_are() -> None:
    named = {page for asked in QUESTIONS for page in (asked["page"], asked.get("or_page", asked["page"]))}

    assert sorted(named - {*PAGES}) == []
    assert len({asked["asks"] for asked in QUESTIONS}) == len(QUESTIONS)


def test_site_is_built_when_pages_are_right(small: Path, tmp_path: Path) -> None:
    build(tmp_path / "site", docs=small)

    assert "Task" in (tmp_path / "site" / "how-to" / "task.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "text", "warning"),
    [
        ("how-to/task.md", "# Task\n\n[lost](../gone.md)\n", "gone.md"),
        ("how-to/task.md", "# Task\n\n[lost](index.md#no-such-heading)\n", "no-such-heading"),
        ("how-to/task.md", "# Task\n\n![lost](gone.svg)\n", "gone.svg"),
        ("alone.md", "# Alone\n", "isn't included in any toctree"),
    ],
    ids=["link", "heading", "picture", "orphan"],
)
def test_build_fails_when_a_page_is_wrong(
    small: Path, tmp_path: Path, page: str, text: str, warning: str
) -> None:
    (small / page).write_text(text, encoding="utf-8")

    with pytest.raises(SiteError) as raised:
        build(tmp_path / "site", docs=small)

    (line,) = str(raised.value).splitlines()
    assert Path(page).name in line
    assert warning in line


def test_newest_release_is_opened_and_all_are_listed_when_a_site_has_several(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "0.10.0.dev0", "latest"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    (tmp_path / "empty").mkdir()

    assert lead_to_releases(tmp_path) == ["0.10.0", "0.10.0.dev0", "0.9.0", "latest"]

    opened, listed = ((tmp_path / name).read_text() for name in ("index.html", "versions.html"))
    assert f"location.replace({json.dumps('0.10.0/index.html')}" in opened
    assert re.findall(r'href="(.+?)/index.html"', listed) == ["0.10.0", "0.10.0.dev0", "0.9.0", "latest"]
