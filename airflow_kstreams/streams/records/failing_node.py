"""At which node an error happened, read from its traceback.

Whatever runs for a node has an argument ``_node``: a closure the node's name, a loop that holds the lines of
several nodes a :class:`NodeOfLine`. It costs nothing until an error asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType


class NodeOfLine:
    """Finds the node at which a loop was by the line of its text."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: list[str]) -> None:
        self._nodes = nodes

    def at(self, line: int) -> str:
        """Return the node that wrote a line; lines count from 1."""
        return self._nodes[line - 1]


def _frames(error_traceback: TracebackType | None) -> Iterator[str]:
    while error_traceback is not None:
        code = error_traceback.tb_frame.f_code
        if "_node" in code.co_varnames[: code.co_argcount]:
            node = error_traceback.tb_frame.f_locals["_node"]
            yield node.at(error_traceback.tb_lineno) if isinstance(node, NodeOfLine) else node
        error_traceback = error_traceback.tb_next


def failing_node(error: BaseException, default: str) -> str:
    """Return the name of the innermost node on an error's traceback."""
    names = list(_frames(error.__traceback__))
    return names[-1] if names else default
