"""At which node an error happened, and what the node was encoding then, read from its traceback.

Whatever runs for a node has an argument ``_node``: a closure the node's name, what is written as lines a
:class:`NodeOfLine`. Whatever encodes outside of such lines has an argument ``_encoding``, beside what is
encoded, ``given``. It costs nothing until an error asks.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from types import FrameType
from typing import Any

from airflow_kstreams.streams.graph.inlining import Encoding


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
