"""The text of a loop, written node by node; the other side of ``topology/inlining.py``.

A node is written into the loop once for each way that leads to it. Where that would be too much, or too deep
for Python's compiler, its closure is called instead, which does the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any

from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.topology.inlining import WriteCode
from airflow_kstreams.streams.topology.nodes import Forward

#: Python's compiler takes 20 loops in each other.
_DEEPEST = 12
#: Nodes in one loop; every two branches that meet again double what lies below.
_MOST_NODES = 100
#: Loops whose text is kept compiled: a worker runs the same topology for many tasks.
_COMPILED = 64
_INDENT = "    "


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The bound nodes of a task, as a loop sees them.

    :param children: node -> its children's names and closures, in the order in which they get a record.
    :param written: of the nodes that can be written into a loop, how.
    """

    children: dict[str, Mapping[str, Forward]] = field(default_factory=dict)
    written: dict[str, WriteCode] = field(default_factory=dict)


class NodeOfLine:
    """Tells at which node a loop was, given the line of its text."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: list[str]) -> None:
        self._nodes = nodes

    def at(self, line: int) -> str:
        """Return the node that wrote a line; lines count from 1."""
        return self._nodes[line - 1]


class TaskLoopCode:
    """The port ``LoopCode`` over the nodes of a task.

    :param node: the node whose children come first.
    :ivar calls_closures: whether any node runs as a closure, so that it must find the record in the task's
        record context.
    """

    def __init__(
        self,
        graph: Graph,
        node: str,
        *,
        timestamp_ms: str = "timestamp_ms",
        headers: str = "record.headers()",
    ) -> None:
        self.timestamp_ms = timestamp_ms
        self.headers = headers
        self.calls_closures = False
        #: What the text refers to.
        self.names: dict[str, object] = {}
        self._graph = graph
        self._node = node
        self._lines: list[tuple[int, str, str]] = []
        self._depth = 0
        self._nodes = 0
        self._count = 0
        self._known: dict[int, str] = {}
        #: Variable -> the variable that holds its bytes, and the serde they are of.
        self._bytes: dict[str, tuple[str, Serde]] = {}

    def name(self, held: object, hint: str) -> str:
        """Return the name under which the loop finds an object."""
        known = self._known.get(id(held))
        if known is None:
            known = self._known[id(held)] = self.variable(hint)
            self.names[known] = held  # and so it lives, and its id is nobody else's
        return known

    def variable(self, hint: str) -> str:
        """Return the name of a new variable."""
        self._count += 1
        return f"{hint}_{self._count}"

    def line(self, text: str) -> None:
        """Write a statement."""
        self._lines.append((self._depth, text, self._node))

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write a compound statement's head; what is written meanwhile is its body."""
        self.line(f"{head}:")
        before = len(self._lines)
        self._depth += 1
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    def deserialized(self, data: str, serde: Serde, hint: str) -> str:
        """Write how an object is made of bytes.

        :param data: variable that holds the bytes, or None.
        :return: the variable that holds the object.
        """
        made = data
        if serde.deserialize is not bytes:
            made = self.variable(hint)
            deserialize = self.name(serde.deserialize, "deserialize")
            self.line(f"{made} = None if {data} is None else {deserialize}({data})")
        if serde.canonical:
            self._bytes[made] = (data, serde)
        return made

    def serialized(self, variable: str, serde: Serde) -> str:
        """Return the expression for a variable's bytes, None where it holds None.

        Bytes that were read and would be written the same way again are not made anew.
        """
        known, of = self._bytes.get(variable, ("", None))
        if of == serde and serde.canonical:
            return known
        return f"None if {variable} is None else {self.name(serde.serialize, 'serialize')}({variable})"

    def forward(self, key: str, value: str, to: str | None = None) -> None:
        """Write what the children of the node do with a key and a value."""
        node = self._node
        for child, closure in self._graph.children[node].items():
            if to is not None and child != to:
                continue
            write = self._graph.written.get(child)
            if write is None or self._depth > _DEEPEST or self._nodes >= _MOST_NODES:
                self.calls_closures = True
                self.line(f"{self.name(closure, 'run')}({key}, {value})")
                continue
            self._nodes += 1
            self._node = child
            write(self, key, value)
            self._node = node

    def text(self) -> str:
        """Return the text."""
        return "".join(f"{_INDENT * depth}{text}\n" for depth, text, _ in self._lines)

    def function(self, name: str) -> Any:
        """Compile the text and return a function that it defines."""
        names = {**self.names, "_node_of_line": NodeOfLine([node for _, _, node in self._lines])}
        exec(_compiled(self.text()), names)  # noqa: S102 - made of this package's own words only
        return names[name]


@lru_cache(_COMPILED)
def _compiled(text: str) -> CodeType:
    return compile(text, "<fused loop>", "exec")
