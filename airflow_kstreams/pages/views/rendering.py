"""Renders the templates of the pages.

Rule: every text that a template puts out is made printable and then escaped, whichever place it takes; a
piece of HTML is taken as such only where a template, or the picture of a topology, has made it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from airflow_kstreams.inspect.tables_of import number_text
from airflow_kstreams.pages.views.frame import Frame
from airflow_kstreams.pages.views.links import Links
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.time_texts import ago_text, duration_text, time_text
from airflow_kstreams.streams.printable import printable

#: Seconds after which a page is read again while a run is under way.
REFRESH_SECONDS = 5


def render(template: str, frame: Frame, *, refresh: bool = False, **values: Any) -> str:
    """Return a page.

    :param template: its name, without ``.html.j2``.
    :param refresh: whether the page is to be read again, since a run is under way.
    :param values: what the template shows.
    """
    page = _environment().get_template(f"{template}.html.j2")
    seconds = REFRESH_SECONDS if refresh else 0
    return page.render(frame=frame, links=Links(frame=frame), refresh_seconds=seconds, **values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent.parent / "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        ago=ago_text,
        counted=counted,
        duration=duration_text,
        number=number_text,
        time=time_text,
    )
    return environment


def _shown(value: object) -> object:
    """Return what a template's expression puts out; HTML of macros stays as it is."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
