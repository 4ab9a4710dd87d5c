"""Reads from a traceback at which line of the user's code an error happened.

Between the user's functions lie frames of this package, which say nothing to a user, and of the loops that it
writes, whose lines are in no file. In the place of both stand the nodes that they ran for, each with the line
of the DSL that made it.
"""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import NamedTuple

from airflow_kstreams.streams.hints.call_site import PACKAGE_FOLDER
from airflow_kstreams.streams.records.failing_node import node_of

_LIBRARIES = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))

_TITLE = "Traceback of the application's code (most recent call last):"


class Place(NamedTuple):
    """A line of a function.

    :param function: its name, ``<lambda>`` if it has none.
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function} at {self.file}:{self.line}"


def failing_place(error: BaseException) -> Place | None:
    """Return the innermost line of the user's own code on an error's traceback; of a library's, if there is
    none of the user; None if there is neither, as when a serde written in C refuses a value.
    """
    places = [_place(frame, line) for frame, line in _frames(error) if not _is_ours(frame.f_code)]
    own = [place for place in places if not place.file.startswith(_LIBRARIES)]
    found = own or places
    return found[-1] if found else None


def last_user_line(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return where in the user's own code a thread stands; empty if it is in none.

    :param frames: of the thread, the innermost first.
    """
    for frame, line in frames:
        if not _is_ours(frame.f_code) and not frame.f_code.co_filename.startswith(_LIBRARIES):
            return str(_place(frame, line))
    return ""


def user_traceback(error: BaseException, site_of: Callable[[str], str], *, node: str = "") -> str:
    """Return an error's traceback in Python's form, without the frames of this package; empty if no other one
    is left.

    The error's own words are not in it: they may repeat what the data of users is.

    :param site_of: gives the file and line at which a node was defined, empty if that is not known.
    :param node: at which the traceback begins; one that is on it unless given.
    """
    lines = [_node_line(node, site_of(node))] if node else []
    found = False
    for frame, line in _frames(error):
        here = node_of(frame, line)
        if here is not None and here != node:
            node = here
            lines.append(_node_line(node, site_of(node)))
        if not _is_ours(frame.f_code):
            place, found = _place(frame, line), True
            lines.append(f'  File "{place.file}", line {place.line}, in {place.function}')
            text = linecache.getline(place.file, place.line, frame.f_globals).strip()
            lines += [f"    {text}"] if text else []
    return "\n".join([_TITLE, *lines]) if found else ""


def _node_line(node: str, site: str) -> str:
    return f"  node {node!r}{f', defined at {site}' if site else ''}"


def program_text(error: BaseException) -> str:
    """Return what the program itself says: the constants and names of the functions on an error's traceback,
    and of those that are the user's the names in their modules, of the class of their object, and of the
    classes of what that holds.
    """
    said: dict[str, None] = {}
    for frame, _ in _frames(error):
        code = frame.f_code
        said.update(dict.fromkeys([*_constants(code), *code.co_names, *code.co_varnames]))
        if not _is_ours(code):
            said.update(dict.fromkeys(frame.f_globals))
            said.update(dict.fromkeys(_kinds(frame)))
    return "\n".join(said)


def _kinds(frame: FrameType) -> Iterator[str]:
    owner = frame.f_locals.get("self")
    yield type(owner).__name__
    try:
        held = [*vars(owner).values()]
    except Exception:  # it has slots alone, or what a user wrote to look attributes up
        return
    yield from (type(each).__name__ for each in held)


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    return traceback.walk_tb(error.__traceback__)


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith((PACKAGE_FOLDER, "<"))


def _place(frame: FrameType, line: int) -> Place:
    return Place(frame.f_code.co_filename, line, frame.f_code.co_name)


def _constants(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str | int | float):
            yield str(constant)
        elif isinstance(constant, tuple | frozenset):
            yield from map(str, constant)
