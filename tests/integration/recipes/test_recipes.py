"""The recipes of docs/internals/contributing.md are complete: a copy of the package with them all passes its
checks.

Each tool runs once, over all recipes. A block's first line names its file, and where in an existing file the
block goes; see the page.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.topology.examples import code_blocks

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "internals" / "contributing.md").read_text(encoding="utf-8")
COPIED = ("airflow_kstreams", "dags", "dev", "spark_apps", "tests")
_FIRST_LINE = re.compile(r"# (?P<path>[\w/]+\.py)(, (?P<how>below|above|instead of): (?P<line>.+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of a recipe.

    :param how: where it goes in a file that exists; empty for a new file.
    :param line: the line of that file.
    """

    recipe: int
    path: str
    how: str
    line: str
    code: str

    def write(self, root: Path) -> None:
        file = root / self.path
        if not self.how:
            assert not file.exists(), f"{self.path} exists already"
            file.write_text(self.code, encoding="utf-8")
            return
        lines = file.read_text(encoding="utf-8").splitlines()
        places = [number for number, line in enumerate(lines) if line.strip() == self.line]
        assert len(places) == 1, f"{self.path} has {len(places)} lines {self.line!r}"
        begin = places[0] + (self.how == "below")
        end = places[0] + (self.how != "above")
        apart = (
            ("", "") if self.code.startswith("def ") else ("",) if self.code.startswith("    def ") else ()
        )
        lines[begin:end] = [*self.code.splitlines(), *apart]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _block(recipe: int, text: str) -> Block:
    first, _, code = text.partition("\n")
    place = _FIRST_LINE.fullmatch(first)
    assert place, f"no file named: {first}"
    whole = text if place["how"] is None else code
    return Block(
        recipe=recipe, path=place["path"], how=place["how"] or "", line=place["line"] or "", code=whole
    )


# A block without a file shows what is said of it, and is not written.
BLOCKS = [_block(block.section, block.code) for block in code_blocks(PAGE) if block.code.startswith("# ")]
RECIPES = sorted({block.recipe for block in BLOCKS})
NEW_FILES = [block.path for block in BLOCKS if not block.how]
TESTS = [path for path in NEW_FILES if Path(path).name.startswith("test_")]
TOUCHED = sorted({block.path for block in BLOCKS})


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with every recipe added."""
    root = tmp_path_factory.mktemp("recipes")
    for folder in COPIED:
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "pyproject.toml", root)
    for block in BLOCKS:
        block.write(root)
    return root


def _run(copy: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_recipe_is_one_product_file_and_one_test_file() -> None:
    products = Counter(block.recipe for block in BLOCKS if not block.how and block.path not in TESTS)
    tests = Counter(block.recipe for block in BLOCKS if block.path in TESTS)
    assert len(RECIPES) == 9
    assert all(tests[recipe] == 1 for recipe in RECIPES)
    assert all(products[recipe] <= 1 for recipe in RECIPES)


def test_linters_find_nothing_in_the_recipes(copy: Path) -> None:
    for command in (("ruff", "check"), ("ruff", "format", "--check")):
        done = _run(copy, *command, "--no-cache", *TOUCHED)
        assert done.returncode == 0, done.stdout + done.stderr


def test_own_tests_of_the_recipes_pass(copy: Path) -> None:
    done = _run(copy, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(900)
def test_types_of_the_recipes_fit(copy: Path) -> None:
    """The cache of the checkout's own mypy run makes this a matter of seconds."""
    cache = ROOT / ".mypy_cache"
    if cache.is_dir():
        shutil.copytree(cache, copy / ".mypy_cache", copy_function=_linked)
    done = _run(copy, "mypy", *NEW_FILES)
    assert done.returncode == 0, done.stdout + done.stderr


def _linked(source: str, target: str) -> None:
    """Link a file, which mypy replaces and never changes; copy it to another disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
