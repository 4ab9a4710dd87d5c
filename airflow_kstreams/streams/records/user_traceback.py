"""Finds in a traceback the line of the user's code and the node at which an error happened, and the object
that the node was encoding then.

Between the user's functions lie frames of this package, which mean nothing to a user, and of the loops that
it writes, whose lines are in no file. In the place of both stand the nodes that they ran for, each with the
line of the DSL that made it.

A function that runs for a node has an argument ``_node``: the node's name in a closure, a :class:`NodeOfLine`
in a function made of lines. A function that encodes outside of such lines has an argument ``_encoding``,
beside the object, ``given``; one that calls serdes for no node has an argument ``_serde_of``, which names the
objects. One that starts or ends a node, around which no error handler is, has an argument ``_ends``: the
node's name. These arguments cost nothing until an error happens.
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

#: File name, in tracebacks, of a loop that this package writes.
GENERATED_FILE = "<source loop>"
_STANDARD = f"{sysconfig.get_path('stdlib')}/"
_INSTALLED = tuple(f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib"))
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_TITLE = "Traceback of the application's code (most recent call last):"


class Place(NamedTuple):
    """A line of a function.

    :param file: path of the file.
    :param line: number of the line, from 1 on.
    :param function: name of the function, ``<lambda>`` if it has none.
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
    """Return the line of the user's own code that a thread executes, as text; empty if it executes none.

    :param frames: pairs of frame and line of the thread, the innermost first.
    """
    for frame, line in frames:
        if not _is_ours(frame.f_code) and not frame.f_code.co_filename.startswith(_LIBRARIES):
            return str(_place(frame, line))
    return ""


def user_call(frames: Iterable[tuple[FrameType, int]]) -> FrameType | None:
    """Return the outermost frame of a user's function that a node or a serde has called: a frame neither of
    this package nor of the standard library. None where there is none.

    :param frames: pairs of frame and line of a thread, the innermost first.
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
    """Return an error's traceback in Python's form, without the frames of this package; empty if no other
    frame is left.

    The error's message is not in it: it may repeat data of users.

    :param site_of: function that gives the file and line at which a node was defined; empty if not known.
    :param node: name of the node at which the traceback begins; empty for the first one on it.
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

    :param nodes: name of the node that wrote each line.
    :param encodings: line that encodes -> (variable of the object, description for messages).
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
    """Return the objects for which a frame calls serdes, as text, if it runs for no node; None if it does not
    call serdes.
    """
    return str(frame.f_locals["_serde_of"]) if _takes(frame, "_serde_of") else None


def failing_node(error: BaseException, default: str) -> str:
    """Return the name of the innermost node on an error's traceback; ``default`` if there is none."""
    frames = traceback.walk_tb(error.__traceback__)
    names = [name for frame, line in frames if (name := node_of(frame, line)) is not None]
    return names[-1] if names else default


def ends_at(error: BaseException, node: str) -> bool:
    """Return whether a node failed as it was started or ended, not in what it or another node forwarded."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(_takes(frame, "_ends") and frame.f_locals["_ends"] == node for frame, _ in frames)


def failed_encoding(error: BaseException) -> tuple[Encoding, Any] | None:
    """Return the encoding of the innermost node on an error's traceback, and the object; None if it was not
    encoding.
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
    """Return the texts that come from the program and not from data: the constants and names of the functions
    on an error's traceback, and for functions of the user's the names in their modules, of their object's
    class, and of the classes of its attributes.
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
    except Exception:  # the object has slots only, or attribute access of a user's own
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
