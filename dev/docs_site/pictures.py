"""Draws the Mermaid pictures of the pages: GitHub draws them by itself, the site shows these SVGs.

usage: python -m dev.docs_site.pictures PATH/TO/mermaid.min.js

npm's package ``mermaid`` has that file; Chromium runs it. A picture's file is named after its source,
so one that is not drawn anew after a change is missing, which the build of the site says. What no page shows
any more is removed.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["DOCS", "FOLDER", "file_name", "sources"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = DOCS / "images" / "drawn"
_FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECONDS = 120
_PAGE = """<!doctype html>
<meta charset="utf-8">
<script src="{script}"></script>
<body>
<script type="application/json" id="drawn"></script>
<script>
mermaid.initialize({{startOnLoad: false, theme: "neutral", htmlLabels: false,
  flowchart: {{htmlLabels: false}},
  fontFamily: "sans-serif", securityLevel: "strict"}});
const drawn = {{}};
(async () => {{
  for (const [name, source] of Object.entries({sources}))
    drawn[name] = (await mermaid.render("p" + name, source)).svg;
  document.getElementById("drawn").textContent = JSON.stringify(drawn).replaceAll("<", "\\\\u003c");
}})().catch((error) => {{ document.title = `failed: ${{error}}`; }});
</script>
"""


def sources() -> Iterator[str]:
    """Yield the source of each picture of the pages."""
    for page in sorted(DOCS.rglob("*.md")):
        yield from _FENCE.findall(page.read_text(encoding="utf-8"))


def file_name(source: str) -> str:
    """Return the name of a picture's file."""
    return f"{hashlib.sha256(source.strip().encode()).hexdigest()[:12]}.svg"


def main(script: Path) -> None:
    """Draw the pictures that are missing, and remove those of former sources."""
    wanted = {file_name(source): source for source in sources()}
    FOLDER.mkdir(parents=True, exist_ok=True)
    there = {path.name for path in FOLDER.glob("*.svg")}
    for name in there - wanted.keys():
        (FOLDER / name).unlink()
    for name, svg in _drawn({name: wanted[name] for name in wanted.keys() - there}, script).items():
        (FOLDER / name).write_text(f"{svg}\n", encoding="utf-8")
        print(FOLDER / name)


def _drawn(missing: dict[str, str], script: Path) -> dict[str, str]:
    if not missing:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        ids = {name.removesuffix(".svg"): source for name, source in missing.items()}
        page.write_text(_PAGE.format(script=script.resolve().as_uri(), sources=json.dumps(ids)))
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
        own = [f"--user-data-dir={folder}/profile", "--virtual-time-budget=60000", "--dump-dom"]
        done = subprocess.run(
            ["chromium", *flags, *own, page.as_uri()],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    found = re.search(r'id="drawn">(.*?)</script>', done.stdout, re.DOTALL)
    if found is None or not found[1]:
        sys.exit(f"error: Chromium has drawn nothing: {done.stderr[-2000:]}")
    return {f"{name}.svg": svg for name, svg in json.loads(found[1]).items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
