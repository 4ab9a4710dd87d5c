"""How Sphinx makes a site of these pages; ``dev/docs`` builds it.

The pages are written for GitHub, too: their links are paths to files. A file outside ``docs/`` to which a
page links is copied into the site, so that a release's site has that release's sources; a link to
``README.md`` becomes one to the home page. What a reader's browser loads lies in the site, which works from
a disk.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes

from dev.docs_site.pictures import FOLDER, file_name

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_ROOT = Path(__file__).resolve().parents[1]
_VERSION = re.search(
    r'^__version__ = "(.+)"$', (_ROOT / "airflow_kstreams/__init__.py").read_text(), re.MULTILINE
)

project = "airflow-kstreams"
release = version = _VERSION[1] if _VERSION else ""
html_title = f"{project} {release}"

extensions = ["myst_parser"]
exclude_patterns = ["_templates"]
# Links to headings have GitHub's names for them.
myst_heading_anchors = 6
# What is indented is a command, or what one prints.
highlight_language = "text"
# Quotes and dashes stay as they are written, as on GitHub; and a build is a fifth quicker.
smartquotes = False

html_theme = "furo"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "versions.html",
        "sidebar/scroll-end.html",
    ]
}


def _lead_home(_: Sphinx, doctree: nodes.document) -> None:
    for link in doctree.findall(addnodes.pending_xref):
        if link.get("reftarget") == str(_ROOT / "README"):
            link["reftarget"] = "index"


def _show_pictures(_: Sphinx, doctree: nodes.document) -> None:
    for source in doctree.findall(nodes.literal_block):
        if source.get("language") == "mermaid":
            picture = f"/images/{FOLDER.name}/{file_name(source.astext())}"
            source.replace_self(nodes.image(uri=picture, alt=source.astext(), classes=["drawn"]))


def _give_navigation(
    app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    # Sphinx's own function copies every heading of every page, for every page: a third of a build.
    tree = _branches(app, "index", page)
    context["toctree"] = lambda **_: tree


def _branches(app: Sphinx, parent: str, page: str, level: int = 1) -> str:
    items = []
    for name in app.env.toctree_includes.get(parent, ()):
        below = _branches(app, name, page, level + 1)
        current = " current" if name == page or ' class="current ' in below else ""
        own = " current" if name == page else ""
        address = html.escape(app.builder.get_relative_uri(page, name))
        title = html.escape(app.env.titles[name].astext())
        link = f'<a class="{own and "current "}reference internal" href="{address}">{title}</a>'
        items.append(f'<li class="{current and "current "}toctree-l{level}">{link}{below}</li>')
    return f"<ul>{''.join(items)}</ul>" if items else ""


def setup(app: Sphinx) -> None:
    """Add what is said above."""
    # Before Sphinx collects a page's pictures.
    app.connect("doctree-read", _show_pictures, priority=400)
    app.connect("doctree-read", _lead_home)
    app.connect("html-page-context", _give_navigation, priority=400)
    app.add_css_file("drawn.css")
