"""Builds a release's pages with Sphinx, and the page that leads to the releases.

A page that was moved is found at its old address, too: ``docs/moved.toml`` says where it is now, and a page
there leads on, to the same heading.
"""

from __future__ import annotations

import html
import io
import json
import os
import shutil
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.version import InvalidVersion, Version
from sphinx.application import Sphinx
from sphinx.util.console import nocolor
from sphinx.util.docutils import docutils_namespace, patch_docutils

__all__ = ["DOCS", "MOVED", "SiteError", "build", "lead_to_releases", "moved"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
MOVED = DOCS / "moved.toml"
_LEADING_ON = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<meta http-equiv="refresh" content="1; url={address}">
<script>location.replace({address_of_script} + location.hash)</script>
<p><a href="{address}">{title}</a></p>
</html>
"""
_RELEASES = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>airflow-kstreams</title>
<h1>Releases of airflow-kstreams</h1>
<ul>
{items}</ul>
</html>
"""


class SiteError(Exception):
    """The pages make no site; the text holds Sphinx's warnings, a line each."""


def build(target: Path, *, docs: Path = DOCS) -> None:
    """Build the site of one release.

    :param target: folder that is replaced by it.
    :param docs: folder of the pages, with ``conf.py``.
    :raises SiteError: Sphinx warns of something: a link that leads nowhere, a page on no shelf
    """
    shutil.rmtree(target, ignore_errors=True)
    nocolor()
    warnings = io.StringIO()
    with TemporaryDirectory() as read, patch_docutils(docs), docutils_namespace():
        sphinx = Sphinx(
            docs,
            docs,
            target,
            read,
            "html",
            confoverrides={"nitpicky": True},
            status=None,
            warning=warnings,
            warningiserror=True,
        )
        sphinx.build()
    if sphinx.statuscode:
        raise SiteError(warnings.getvalue().strip())
    (target / ".buildinfo").unlink(missing_ok=True)
    for old, new in moved().items():
        _lead_on(target / f"{old}.html", os.path.relpath(f"{new}.html", Path(old).parent), "Moved")


def moved() -> dict[str, str]:
    """Return where pages are now: former address -> address, both below ``docs/`` and without an ending."""
    return tomllib.loads(MOVED.read_text(encoding="utf-8"))


def lead_to_releases(site: Path) -> list[str]:
    """Write a page that opens the newest release and one that lists all; return them, newest first."""
    names = [folder.name for folder in site.iterdir() if (folder / "index.html").is_file()]
    releases = sorted(names, key=_age, reverse=True)
    items = "".join(f'<li><a href="{name}/index.html">{html.escape(name)}</a></li>\n' for name in releases)
    (site / "versions.html").write_text(_RELEASES.format(items=items), encoding="utf-8")
    _lead_on(site / "index.html", f"{releases[0]}/index.html", "airflow-kstreams")
    return releases


def _lead_on(page: Path, address: str, title: str) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    text = _LEADING_ON.format(
        title=title, address=html.escape(address), address_of_script=json.dumps(address)
    )
    page.write_text(text, encoding="utf-8")


def _age(name: str) -> tuple[Version, str]:
    try:
        return Version(name), name
    except InvalidVersion:
        return Version("0.dev0"), name
