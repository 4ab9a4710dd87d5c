"""The search of a built site, asked as its page asks: Sphinx's own scripts and the site's, in V8."""

from __future__ import annotations

import json
from pathlib import Path

from py_mini_racer import MiniRacer

#: What the scripts touch of a browser before and during a search.
_BROWSER = """
var window = globalThis;
const SPHINX_HIGHLIGHT_ENABLED = false;
const document = {readyState: "loading", addEventListener() {}, getElementById() { return null; }};
var _ready = () => {};
var _ = (text) => text;
"""
#: In the order of the search page; the index comes last.
_SCRIPTS = ("searchtools.js", "language_data.js", "most_words.js")
_ASK = "JSON.stringify(Search._performSearch(...Search._parseQuery(%s)).reverse().map((found) => found[0]))"


class SiteSearch:
    """Finds pages of a site.

    :param site: folder of a release.
    """

    def __init__(self, site: Path) -> None:
        self._engine = MiniRacer()
        scripts = [site / "_static" / name for name in _SCRIPTS]
        for text in (_BROWSER, *(path.read_text(encoding="utf-8") for path in scripts)):
            self._engine.eval(text)
        self._engine.eval((site / "searchindex.js").read_text(encoding="utf-8"))

    def pages(self, question: str) -> list[str]:
        """Return the pages that the search shows, the best first: paths below ``docs/``, no ending."""
        found: list[str] = json.loads(str(self._engine.eval(_ASK % json.dumps(question))))
        return list(dict.fromkeys(found))

    def close(self) -> None:
        """End the engine and its threads."""
        self._engine.close()
