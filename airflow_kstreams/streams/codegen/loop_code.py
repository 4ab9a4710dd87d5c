"""Writes the text of a function, node by node; the other side of ``LoopCode`` (``graph/services.py``).

A node is written into a loop once for each way that leads to it. Where that would be too much, or too deep
for Python's compiler, the loop calls the node's closure, which is compiled from the same lines
(:func:`closure_of`). The closure also identifies a node: the loop knows no lines of a function around it
(such as a tap), and calls that function. Only the task's own error handler is known to the loop, which writes
it around the node's lines.

A closure differs from the lines in a loop: the record context is set already, its names are its own variables
rather than a module's (many nodes share one compiled text), and it forwards to other closures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.figures.record_counts import Counters, Rule
from airflow_kstreams.streams.graph.services import (
    Changeable,
    Encoding,
    Forward,
    LoopCode,
    Taking,
    WriteAnswer,
    WriteCode,
)
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.records.user_traceback import GENERATED_FILE, NodeOfLine, failing_node
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.serdes import gives_back, takes_bytes

#: Python's compiler takes 20 loops in each other.
_DEEPEST = 12
#: Most nodes in one loop; every two branches that meet again double the nodes below.
_MOST_NODES = 100
#: Texts of a kind that are kept compiled: a worker runs the same topology for many tasks.
_COMPILED = 64
_INDENT = "    "

#: Does something with an error of a node, given the node's name.
Handle = Callable[[Exception, str], None]


class NodeCode(NamedTuple):
    """The facts needed to write a node's lines.

    :param node: name of the node.
    :param children: child name -> its closure, in the order in which they get a record.
    :param write: function that writes the node's lines.
    :param handle: function that takes the node's errors; None if they end the task.
    :param taking: function that returns what takes many records at once; None if nothing does.
    """

    node: str
    children: Mapping[str, Forward]
    write: WriteCode
    handle: Handle | None = None
    taking: Taking | None = None


@dataclass(frozen=True, slots=True)
class Inlining:
    """The parts that the loops of one task share.

    :param context: the record being processed.
    :param counters: the task's counters.
    :ivar codes: closure -> the facts to write its lines.
    """

    context: TaskRecordContext
    counters: Counters
    codes: dict[Forward, NodeCode] = field(default_factory=dict)

    def guarded(self, run: Forward, handled: Forward, handle: Handle | None) -> None:
        """Note a closure that is another one with the task's error handler around it.

        :param run: the closure inside.
        :param handled: the closure with the handler.
        :param handle: function that takes the node's errors.
        """
        code = self.codes.get(run)
        if code is not None and handled is not run:
            self.codes[handled] = code._replace(handle=handle)


class _Line(NamedTuple):
    depth: int
    text: str
    node: str
    for_closures: bool = False
    encodes: tuple[str, Encoding] | None = None


class TaskLoopCode:
    """The port ``LoopCode`` over the nodes of a task.

    :param inlining: the parts that the task's loops share.
    :param node: name of the node that begins to write.
    :param children: child name -> its closure.
    :param place: attribute of the record context -> expression for it; empty if the context is set when the
        function is called.
    :param headers: expression for the current record's headers.
    :param forward: function that takes results for all children, in place of their lines; results for one
        child then go to its closure. None to write the children's lines.
    """

    def __init__(
        self,
        inlining: Inlining,
        node: str,
        children: Mapping[str, Forward],
        place: Mapping[str, str],
        *,
        headers: str,
        forward: Forward | None = None,
    ) -> None:
        self.record = place.get("record", "context.record")
        self.timestamp_ms = place.get("timestamp_ms", "context.timestamp_ms")
        self.headers = headers
        self._held = dict(place)
        self._forward = forward
        self._codes = inlining.codes
        self._counters = inlining.counters
        #: Local variable of each cell that a loop counts in, by the cell's name.
        self._counts: dict[str, str] = {}
        self._node = node
        self._children = children
        self._lines: list[_Line] = []
        self._depth = 0
        self._inlined = 0
        self._variables = 0
        self._calls_closures = False
        #: What the text refers to.
        self._names: dict[str, object] = {
            "context": inlining.context,
            "failing_node": failing_node,
            "EngineError": KStreamsError,
        }
        self._known: dict[int, str] = {}
        #: Variable -> the variable that holds its bytes, and the serde they are of.
        self._bytes: dict[str, tuple[str, Serde]] = {}

    def enter(self, node: str, children: Mapping[str, Forward]) -> None:
        """Go on with another node, to which no node above forwards: a source."""
        self._node, self._children = node, children

    def name(self, held: object, hint: str) -> str:
        """Return the name under which the function finds an object."""
        known = self._known.get(id(held))
        if known is None:
            known = self._known[id(held)] = self.variable(hint)
            self._names[known] = held  # and so it lives, and no other object has its id
        return known

    def variable(self, hint: str) -> str:
        """Return the name of a new variable."""
        self._variables += 1
        return f"{hint}_{self._variables}"

    def line(self, text: str, encodes: tuple[str, Encoding] | None = None) -> None:
        """Write a statement, or a line of one."""
        self._lines.append(_Line(self._depth, text, self._node, encodes=encodes))

    def place(self, *, for_closures: bool = False) -> None:
        """Write lines that set the record context to the current record.

        :param for_closures: True if only nodes that run as closures need it here.
        """
        if self._held:
            text = "; ".join(f"context.{name} = {held}" for name, held in self._held.items())
            self._lines.append(_Line(self._depth, text, self._node, for_closures))

    def call_apart(self, call: str) -> None:
        """Write a call that forwards results of no record; an error in it names no record."""
        if not self._held:
            self.line(call)
            return
        self.place()
        with self.block("try"):
            self.line(call)
        with self.block("except BaseException"):
            # The loop sets the record context by these on the way out.
            self.line("; ".join(f"{held} = context.{name}" for name, held in self._held.items()))
            self.line("raise")

    @contextmanager
    def changed(self, attribute: Changeable, variable: str) -> Iterator[None]:
        """Write lines that change the timestamp or the headers for the lines in the body.

        The record context is changed too, for nodes that run as closures, for stores and for error handlers,
        and is reset when the body is left.
        """
        outside = self.timestamp_ms, self.headers, self._held
        self.place()
        before = self.variable("before")
        self.line(f"{before}, context.{attribute} = context.{attribute}, {variable}")
        if attribute == "replaced_headers":
            self.headers = variable
        else:
            self.timestamp_ms = variable
        if self._held:
            self._held = {**self._held, attribute: variable}
        with self.block("try"):
            yield
        with self.block("finally"):
            self.line(f"context.{attribute} = {before}")
        self.timestamp_ms, self.headers, self._held = outside

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write a compound statement's head; the lines written in the ``with`` block are its body."""
        self.line(f"{head}:")
        before = len(self._lines)
        self._depth += 1
        yield
        if all(line.for_closures for line in self._lines[before:]):
            self.line("pass")
        self._depth -= 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Write the lines that add up the counts of the lines in the body."""
        before = len(self._lines)
        with self.block("try"):
            yield
        with self.block("finally"):
            for cell, count in self._counts.items():
                self.line(f"{cell}[0] += {count}")
        zeros = [_Line(self._depth, f"{count} = 0", self._node) for count in self._counts.values()]
        self._lines[before:before] = zeros

    def count_left_out(self, rule: Rule) -> None:
        """Write that the node being written leaves a record out."""
        self._count(self._counters.left_out(self._node, rule), "left_out")

    def count_written(self, topic: str) -> None:
        """Write that a sink sends a record."""
        self._count(self._counters.written(topic), "written")

    def _count(self, cell: list[int], hint: str) -> None:
        """Write that a cell is counted in: a local variable for it costs a loop the least."""
        held = self.name(cell, hint)
        if self._forward is not None:
            self.line(f"{held}[0] += 1")
            return
        if held not in self._counts:
            self._counts[held] = self.variable("count")
        self.line(f"{self._counts[held]} += 1")

    def deserialized(self, data: str, serde: Serde, hint: str) -> str:
        """Write the line that makes an object of bytes.

        :param data: name of the variable that holds the bytes, or None.
        :param serde: serde that reads them.
        :param hint: beginning of the new variable's name.
        :return: name of the variable that holds the object.
        """
        made = data
        if serde.deserialize is not bytes:
            made = self.variable(hint)
            deserialize = self.name(serde.deserialize, "deserialize")
            self.line(f"{made} = None if {data} is None else {deserialize}({data})")
        self.has_bytes(made, data, serde)
        return made

    def has_bytes(self, variable: str, data: str, serde: Serde) -> None:
        """Note that a variable holds the bytes of another variable's object."""
        self._bytes[variable] = (data, serde)

    def serialized(self, variable: str, serde: Serde, serialize: Callable[[Any], bytes] | None = None) -> str:
        """Return the expression for a variable's bytes, None where it holds None.

        Bytes that were read, and that the serde would write again, are not made anew.

        :param serialize: function to call in place of the serde's own.
        """
        known, of = self._bytes.get(variable, ("", None))
        if of is not None and gives_back(of, serde):
            return known
        function = self.name(serialize or serde.serialize, "serialize")
        if serialize is None and takes_bytes(serde):
            # Most results are bytes: a look at their type costs less than the call that refuses others.
            is_written = f"type({variable}) is bytes or {variable} is None"
            return f"{variable} if {is_written} else {function}({variable})"
        return f"None if {variable} is None else {function}({variable})"

    def forward(self, key: str, value: str, to: str | None = None) -> None:
        """Write the lines of the node's children for a key and a value."""
        if self._forward is not None:
            target = self._forward if to is None else self._children[to]
            self.line(f"{self.name(target, 'forward')}({key}, {value})")
            return
        node, children = self._node, self._children
        for name, closure in children.items():
            if to is not None and name != to:
                continue
            code = self._codes.get(closure)
            if code is None or self._depth > _DEEPEST or self._inlined >= _MOST_NODES:
                self._calls_closures = True
                self.line(f"{self.name(closure, 'run')}({key}, {value})")
                continue
            self._inlined += 1
            self._node, self._children = code.node, code.children
            if code.handle is None:
                code.write(self, key, value)
            else:
                self._write_handled(code, code.handle, key, value)
            self._node, self._children = node, children

    def _write_handled(self, code: NodeCode, handle: Handle, key: str, value: str) -> None:
        """Write a node with the error handler around it."""
        with self.block("try"):
            code.write(self, key, value)
        with self.block("except EngineError"):
            self.line("raise")
        with self.block("except Exception as error"):
            self.place()
            node = self.name(code.node, "node")
            self.line(f"{self.name(handle, 'handle')}(error, failing_node(error, {node}))")

    def function(self, name: str) -> Any:
        """Compile the text and return the function of that name that it defines."""
        lines = [line for line in self._lines if self._calls_closures or not line.for_closures]
        names = {**self._names, "_node_of_line": _node_of_line(lines)}
        exec(_compiled(_text(lines)), names)  # noqa: S102 - made of this package's own words only
        return names[name]

    def closure(self, name: str) -> Any:
        """Compile the text and return the function of that name that it defines, with names of its own."""
        names = [*self._names, "_node_of_line"]
        outer = _Line(-1, f"def make({', '.join(names)}):", self._node)
        lines = [outer, *self._lines, _Line(0, f"return {name}", self._node)]
        return _maker(_text(lines, margin=1))(*self._names.values(), _node_of_line(lines))


def closure_of(inlining: Inlining, code: NodeCode, forward: Forward) -> Forward:
    """Make the closure that runs a node's lines, and keep the lines for the loops of the task.

    :param forward: function that hands a record to every child.
    """
    run: Forward = _closure(inlining, code, forward, "key", "value")
    inlining.codes[run] = code
    return run


def answer_closure(
    inlining: Inlining, node: str, children: Mapping[str, Forward], write: WriteAnswer, forward: Forward
) -> Callable[[Any, Any, Any], None]:
    """Make the function that takes key, value and the answer of a node's call.

    :param node: name of the node.
    :param children: child name -> its closure.
    :param write: function that writes the lines that use an answer.
    :param forward: function that hands a record to every child.
    """

    def write_given(code: LoopCode, key: str, value: str) -> None:
        write(code, key, value, "answer")

    give: Callable[[Any, Any, Any], None] = _closure(
        inlining, NodeCode(node, children, write_given), forward, "key", "value", "answer"
    )
    return give


def _closure(inlining: Inlining, code: NodeCode, forward: Forward, *arguments: str) -> Any:
    text = TaskLoopCode(inlining, code.node, code.children, {}, headers="context.headers()", forward=forward)
    with text.block(f"def run({', '.join(arguments)}, _node=_node_of_line)"):
        code.write(text, "key", "value")
    return text.closure("run")


def forward_only(code: LoopCode, key: str, value: str) -> None:
    """Write a node that does nothing of its own."""
    code.forward(key, value)


def _node_of_line(lines: Sequence[_Line]) -> NodeOfLine:
    encodings = {number: line.encodes for number, line in enumerate(lines, 1) if line.encodes is not None}
    return NodeOfLine([line.node for line in lines], encodings)


def _text(lines: Iterable[_Line], *, margin: int = 0) -> str:
    return "".join(f"{_INDENT * (line.depth + margin)}{line.text}\n" for line in lines)


@lru_cache(_COMPILED)
def _compiled(text: str) -> CodeType:
    return compile(text, GENERATED_FILE, "exec")


@lru_cache(_COMPILED)
def _maker(text: str) -> Callable[..., Any]:
    """Return the function that binds a text to the objects that it names."""
    names: dict[str, Any] = {}
    exec(compile(text, GENERATED_FILE, "exec"), names)  # noqa: S102 - made of this package's own words only
    make: Callable[..., Any] = names["make"]
    return make
