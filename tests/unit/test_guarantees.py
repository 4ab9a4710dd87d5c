"""The page of guarantees names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
PROOFS = sorted(set(re.findall(r"`((?:unit|property|contract|simulation|integration|faults)/[^`]+)`", PAGE)))


def test_every_promise_has_a_proof() -> None:
    promises = [line for line in PAGE.splitlines() if line.startswith("| **")]
    assert len(promises) > 20
    for line in promises:
        assert re.search(r"`\w+/.+\.py", line), line


@pytest.mark.parametrize("proof", PROOFS)
def test_proof_is_a_test_that_there_is(proof: str) -> None:
    path, _, name = proof.partition("::")
    file = ROOT / "tests" / path
    assert file.is_file(), f"{proof}: no such file"
    text = file.read_text(encoding="utf-8")
    assert re.search(rf"^def {name or 'test_'}", text, re.MULTILINE), f"{proof}: no such test"


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([\w/-]+\.md)\)", PAGE))))
def test_page_that_is_linked_is_there(link: str) -> None:
    assert (ROOT / "docs" / link).is_file()


def test_cell_holds_a_phrase() -> None:
    for line in PAGE.splitlines():
        for cell in line.strip("|").split("|") if line.startswith("|") else ():
            words = re.sub(r"`[^`]*`", "", cell).split()
            assert len(words) <= 15, cell
