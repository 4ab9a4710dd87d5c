"""Adds a log's rounds to the ones that are kept in ``docs/internals/``, and renews the summary there."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dev.chaos_rounds import log

_DOCS = Path(__file__).parents[2] / "docs" / "internals"
KEPT, PAGE = _DOCS / "chaos-log.jsonl", _DOCS / "chaos.md"
_BEGIN, _END = "<!-- summary: dev/chaos --publish -->\n", "<!-- end of summary -->\n"


def publish(path: Path, *, kept: Path = KEPT, page: Path = PAGE) -> str:
    """Merge a log into the kept one, write the summary between the page's marks, and return it.

    :raises ValueError: the page has no marks.
    """
    outcomes = log.merged(log.read(kept), log.read(path))
    kept.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in outcomes))
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{page} has no marks for the summary")
    table = log.markdown(outcomes)
    page.write_text(f"{before}{begin}\n{table}\n\n{end}{after}", encoding="utf-8")
    return table
