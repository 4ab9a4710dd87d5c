"""Reads from a traceback where an error happened: at which line of the user's code, at which node, and what
the node was encoding then.

Between the user's functions lie frames of this package, which say nothing to a user, and of the loops that it
writes, whose lines are in no file. In the place of both stand the nodes that they ran for, each with the line
of the DSL that made it.

What runs for a node has an argument ``_node``: a closure the node's name, what is written as lines a
:class:`NodeOfLine`. What encodes outside of such lines has an argument ``_encoding``, beside what is
encoded, ``given``; what calls serdes for no node, an argument ``_serde_of`` that says for what. It costs
nothing until an error asks.
"""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple

from airflow_kstreams.streams.graph.services import Encoding
from airflow_kstreams.streams.hints.function_checks import PACKAGE_FOLDER

#: What a traceback calls the file of a loop that this package writes.
GENERATED_FILE = "<source loop>"
_STANDARD = f"{sysconfig.get_path('stdlib')}/"
_INSTALLED = tuple(f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib"))
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


def user_call(frames: Iterable[tuple[FrameType, int]]) -> FrameType | None:
    """Return the outermost frame, of those inside what runs for a node or calls serdes, that is neither of
    this package nor of the standard library: a call of a user's function. None where there is none.

    :param frames: of a thread, the innermost first.
    """
    call: FrameType | None = None
    for frame, _ in frames:
        if _takes(frame, "_node") or serde_of(frame) is not None:
            return call
        file = frame.f_code.co_filename
        if not _is_ours(frame.f_code) and (not file.startswith(_STANDARD) or file.startswith(_INSTALLED)):
            call = frame
    return None


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


class NodeOfLine:
    """Finds the node at which a function was by the line of its text; lines count from 1.

    :param nodes: that wrote each line.
    :param encodings: line -> what it encodes.
    """

    __slots__ = ("_nodes", "encodings")

    def __init__(self, nodes: list[str], encodings: Mapping[int, tuple[str, Encoding]]) -> None:
        self._nodes = nodes
        self.encodings = encodings

    def at(self, line: int) -> str:
        """Return the node that wrote a line."""
        return self._nodes[line - 1]


def node_of(frame: FrameType, line: int) -> str | None:
    """Return the name of the node that a frame runs for at a line, None if it is no node's."""
    if not _takes(frame, "_node"):
        return None
    node: str | NodeOfLine = frame.f_locals["_node"]
    return node.at(line) if isinstance(node, NodeOfLine) else node


def serde_of(frame: FrameType) -> str | None:
    """Return for what a frame calls serdes, if it runs for no node; None if it does not."""
    return str(frame.f_locals["_serde_of"]) if _takes(frame, "_serde_of") else None


def failing_node(error: BaseException, default: str) -> str:
    """Return the name of the innermost node on an error's traceback."""
    frames = traceback.walk_tb(error.__traceback__)
    names = [name for frame, line in frames if (name := node_of(frame, line)) is not None]
    return names[-1] if names else default


def failed_encoding(error: BaseException) -> tuple[Encoding, Any] | None:
    """Return what the innermost node on an error's traceback was encoding, and the object; None if it did
    something else.
    """
    found: tuple[Encoding, Any] | None = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if _takes(frame, "_encoding"):
            found = frame.f_locals["_encoding"], frame.f_locals["given"]
        elif _takes(frame, "_node"):
            node = frame.f_locals["_node"]
            variable, encoding = (
                node.encodings.get(line, ("", None)) if isinstance(node, NodeOfLine) else ("", None)
            )
            found = None if encoding is None else (encoding, frame.f_locals.get(variable))
    return found


def _takes(frame: FrameType, argument: str) -> bool:
    code = frame.f_code
    return argument in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


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
