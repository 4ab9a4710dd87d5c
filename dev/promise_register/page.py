"""Draws ``docs/guarantees.md`` from the register; the template holds what is not promised."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from dev.promise_register.proofs import proofs
from dev.promise_register.register import ROOT, Promise, Section

__all__ = ["PAGE", "draw"]

PAGE = ROOT / "docs" / "guarantees.md"
_TEMPLATE = Path(__file__).parent / "guarantees.md.j2"
_WIDTH = 127


def draw(promises: Mapping[str, Promise], pages: Mapping[str, Sequence[Path]]) -> str:
    """Return the page's text.

    :param promises: the register.
    :param pages: where each promise is made, as :func:`~dev.promise_register.pages.listed` gives it.
    """

    def linked(promise: Promise) -> str:
        return ", ".join(
            f"[{page.stem}]({'../' if page.parent == ROOT else ''}{page.name})"
            for page in pages.get(promise.id, ())
        )

    environment = jinja2.Environment(
        autoescape=False,  # noqa: S701  (Markdown, from our own files)
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(proof=_proof, item=_item, pages=linked)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
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
