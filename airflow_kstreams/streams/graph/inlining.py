"""The lines of code of which an operator makes its closure, so that a task can run many nodes as one loop.

A closure per node costs a call per node and record. So an operator may make its closure of lines
(:class:`LoopCode`, ``NodeContext.written``). The task compiles what the nodes wrote into one function, see
``codegen/source_loop.py``, and compiles a node's lines alone into its closure, for wherever a loop cannot
hold them.

Rule: the lines see variables and names that ``LoopCode`` gave, nothing else: no text of a user ever becomes
code.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

from airflow_kstreams.streams.figures.record_counts import Rule
from airflow_kstreams.streams.serde.base import Serde, Side

#: What a node may change of the record context for what lies below it.
Changeable = Literal["timestamp_ms", "replaced_headers"]


class Encoding(NamedTuple):
    """What is made into bytes, for messages.

    :param side: of the record.
    :param topic: it is for, real name.
    """

    side: Side
    topic: str
    serde: Serde

    def unfit(self, given: object) -> str:
        """Say that an object is not what the serde takes; its type is shown, not the object."""
        kind = type(given).__qualname__
        return f"the {self.side} for topic {self.topic!r}, of type {kind}, does not fit {self.serde!r}"


class LoopCode(Protocol):
    """The text of a function while nodes write it.

    :ivar record: expression for the consumed record that led to what is processed, or None.
    :ivar timestamp_ms: expression for the timestamp of what is processed.
    :ivar headers: expression for its headers.
    """

    record: str
    timestamp_ms: str
    headers: str

    def name(self, held: object, hint: str) -> str:
        """Return the name under which the function finds an object.

        :param hint: what the name begins with, an identifier.
        """
        ...

    def variable(self, hint: str) -> str:
        """Return the name of a new variable."""
        ...

    def line(self, text: str, encodes: tuple[str, Encoding] | None = None) -> None:
        """Write a statement, or a line of one.

        :param encodes: what the line makes into bytes: the variable that holds it, and what for.
        """
        ...

    def place(self, *, for_closures: bool = False) -> None:
        """Write how the record context is set to what is processed.

        :param for_closures: whether only nodes that run as closures need it here.
        """
        ...

    def block(self, head: str) -> AbstractContextManager[None]:
        """Write a compound statement's head; what is written meanwhile is its body.

        :param head: without the colon.
        """
        ...

    def changed(self, attribute: Changeable, variable: str) -> AbstractContextManager[None]:
        """Write that what the lines in the body process has another timestamp, or other headers.

        :param attribute: of the record context.
        :param variable: holds the new one.
        """
        ...

    def counted(self) -> AbstractContextManager[None]:
        """Write what adds up what the lines in the body count."""
        ...

    def count_left_out(self, rule: Rule) -> None:
        """Write that the node being written leaves a record out."""
        ...

    def count_written(self, topic: str) -> None:
        """Write that a sink sends a record.

        :param topic: real name.
        """
        ...

    def serialized(self, variable: str, serde: Serde, serialize: Callable[[Any], bytes] | None = None) -> str:
        """Return the expression for a variable's bytes, None where it holds None.

        :param serialize: called in place of the serde's own function.
        """
        ...

    def has_bytes(self, variable: str, data: str, serde: Serde) -> None:
        """Take note of which variable holds the bytes of another one's object."""
        ...

    def forward(self, key: str, value: str, to: str | None = None) -> None:
        """Write what the children of the node do with a key and a value.

        :param key: variable that holds it.
        :param value: variable that holds it.
        :param to: the only child meant.
        """
        ...

    def function(self, name: str) -> Any:
        """Compile the text and return the function of that name that it defines; it has an argument
        ``_node=_node_of_line``.
        """
        ...


#: Writes what a node does with a key and a value, given the variables that hold them.
WriteCode = Callable[[LoopCode, str, str], None]

#: Writes what becomes of the answer of a node's function, given the variables that hold key and value, and
#: the expression of the answer, which the lines evaluate once.
WriteAnswer = Callable[[LoopCode, str, str, str], None]
