"""At which node an error happened, read from its traceback.

Whatever runs for a node has an argument ``_node``: a closure the node's name, a loop that holds the lines of
several nodes a :class:`NodeOfLine`. It costs nothing until an error asks.
"""

from __future__ import annotations

import traceback
from types import FrameType


class NodeOfLine:
    """Finds the node at which a loop was by the line of its text."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: list[str]) -> None:
        self._nodes = nodes

    def at(self, line: int) -> str:
        """Return the node that wrote a line; lines count from 1."""
        return self._nodes[line - 1]


def node_of(frame: FrameType, line: int) -> str | None:
    """Return the name of the node that a frame runs for at a line, None if it is no node's."""
    code = frame.f_code
    if "_node" not in code.co_varnames[: code.co_argcount]:
        return None
    node: str | NodeOfLine = frame.f_locals["_node"]
    return node.at(line) if isinstance(node, NodeOfLine) else node


def failing_node(error: BaseException, default: str) -> str:
    """Return the name of the innermost node on an error's traceback."""
    frames = traceback.walk_tb(error.__traceback__)
    names = [name for frame, line in frames if (name := node_of(frame, line)) is not None]
    return names[-1] if names else default
