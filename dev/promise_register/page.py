"""Draws ``docs/reference/guarantees.md`` and ``docs/internals/proofs.md`` from the register; the template of
the first holds what is not promised.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from dev.promise_register.proofs import proofs
from dev.promise_register.register import ROOT, Promise, Section

__all__ = ["PAGE", "PROOFS", "draw"]

PAGE = ROOT / "docs" / "reference" / "guarantees.md"
PROOFS = ROOT / "docs" / "internals" / "proofs.md"
_WIDTH = 127


def draw(promises: Mapping[str, Promise], pages: Mapping[str, Sequence[Path]]) -> Mapping[Path, str]:
    """Return the text of each page.

    :param promises: the register.
    :param pages: where each promise is made, as :func:`~dev.promise_register.pages.listed` gives it.
    """
    return {page: _drawn(page, promises, pages) for page in (PAGE, PROOFS)}


def _drawn(drawn: Path, promises: Mapping[str, Promise], pages: Mapping[str, Sequence[Path]]) -> str:
    def linked(promise: Promise) -> str:
        return ", ".join(
            f"[{page.stem}]({os.path.relpath(page, drawn.parent)})" for page in pages.get(promise.id, ())
        )

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=False,  # noqa: S701  (Markdown, from our own files)
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(proof=_proof, item=_item, pages=linked)
    template = environment.get_template(f"{drawn.name}.j2")
    titles = dict.fromkeys(promise.section for promise in promises.values() if promise.section)
    return template.render(
        sections=[
            Section(title=title, promises=tuple(p for p in promises.values() if p.section == title))
            for title in titles
        ],
        others=[promise for promise in promises.values() if not promise.section],
    )


def _proof(promise: Promise) -> str:
    named = ", ".join(f"`{proof.node}`" for proof in proofs().get(promise.id, ()))
    return f"{named}; {promise.beside}" if promise.beside else named


def _item(text: str) -> str:
    words = " ".join(text.split())
    return textwrap.fill(
        f"- {words}", width=_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
