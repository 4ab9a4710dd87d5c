"""Lists the operators that call one function of the user for each record: the function's arguments, the use
of its answer, and the parts of the record that the node hands on.

Rule: a row holds the lines of code that use an answer (see ``graph/services.py``). The plain operator
(:class:`FunctionOperator`) writes them with the call itself in place of the answer. The asynchronous one
(:class:`Asynchronous`) compiles the same lines into the function that takes the answers of calls. So a plain
operator and its asynchronous form cannot differ. The calls of an asynchronous operator run side by side, and
results leave in input order: the task runs them (``calls/``, ``runtime/pipeline/``).

Where a pair of key and value or a number of results is expected, the lines take tuples and lists themselves
and ask functions of this module about everything else. Lists and iterators of two are pairs, too. A text of
two characters is none, though Python would unpack it, and neither is a set or a dict, whose order means
nothing. A text is no list of its characters as results, and a dict none of its keys.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.graph.calls import CallOptions, CallSpec, HandedOn
from airflow_kstreams.streams.graph.nodes import Flow, OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, LoopCode, NodeContext, WriteAnswer
from airflow_kstreams.streams.hints.function_checks import is_async
from airflow_kstreams.streams.records.record_context import RecordContext
from airflow_kstreams.streams.records.result_facts import checked_headers, checked_time
from airflow_kstreams.streams.serde.base import Serde

_NO_RESULTS = (str, bytes, bytearray, Mapping)
_NO_PAIRS = (*_NO_RESULTS, Set)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionKind:
    """The use that a kind of node makes of its function.

    :param type: type of the plain operator; the asynchronous one's ends with ``_async``.
    :param write: function that writes the lines that use an answer.
    :param hands_on: ``key``, ``value``, both or neither: the parts that the node passes on beside the answer.
    :param by_value: True if the function takes the value alone, False if key and value.
    :param flow: number of results of a record, as in :class:`OperatorTraits`.
    :param listed: True if the answer may be a generator; a call then makes a list of it.
    :param on_threads: True if the function may run on the threads of a task that has several.
    :param redates: True if the answer is the record's new timestamp.
    """

    type: str
    write: WriteAnswer
    hands_on: HandedOn
    by_value: bool = False
    flow: Flow = "kept"
    listed: bool = False
    on_threads: bool = True
    redates: bool = False

    def arguments(self, key: T, value: T) -> tuple[T, ...]:
        """Return the function's arguments: value, or key and value."""
        return (value,) if self.by_value else (key, value)


_NEITHER: HandedOn = frozenset()
_KEY: HandedOn = frozenset(("key",))
_VALUE: HandedOn = frozenset(("value",))
BOTH: HandedOn = _KEY | _VALUE


def _filter(code: LoopCode, key: str, value: str, answer: str) -> None:
    with code.block(f"if {answer}"):
        code.forward(key, value)
    with code.block("else"):
        code.count_left_out("filtered")


def _filter_not(code: LoopCode, key: str, value: str, answer: str) -> None:
    with code.block(f"if {answer}"):
        code.count_left_out("filtered")
    with code.block("else"):
        code.forward(key, value)


def _peek(code: LoopCode, key: str, value: str, answer: str) -> None:
    code.line(answer)
    code.forward(key, value)


def _foreach(code: LoopCode, key: str, value: str, answer: str) -> None:
    code.line(answer)


def _map(code: LoopCode, key: str, value: str, answer: str) -> None:
    pair = code.variable("pair")
    code.line(f"{pair} = {answer}")
    code.forward(*_unpacked(code, pair, "'map'"))


def _map_values(code: LoopCode, key: str, value: str, answer: str) -> None:
    new_value = code.variable("value")
    code.line(f"{new_value} = {answer}")
    code.forward(key, new_value)


def _flat_map(code: LoopCode, key: str, value: str, answer: str) -> None:
    results, pair = _results(code, "flat_map", answer), code.variable("pair")
    with code.block(f"for {pair} in {results}"):
        code.forward(*_unpacked(code, pair, "'flat_map'", "among=True"))


def _flat_map_values(code: LoopCode, key: str, value: str, answer: str) -> None:
    results, new_value = _results(code, "flat_map_values", answer), code.variable("value")
    with code.block(f"for {new_value} in {results}"):
        code.forward(key, new_value)


def _select_key(code: LoopCode, key: str, value: str, answer: str) -> None:
    new_key = code.variable("key")
    code.line(f"{new_key} = {answer}")
    code.forward(new_key, value)


def _set_headers(code: LoopCode, key: str, value: str, answer: str) -> None:
    headers, said = code.variable("headers"), "set_headers: the function returned {}"
    code.line(f"{headers} = {code.name(checked_headers, 'checked_headers')}({answer}, {said!r})")
    with code.changed("replaced_headers", headers):
        code.forward(key, value)


def _set_timestamp(code: LoopCode, key: str, value: str, answer: str) -> None:
    time_ms, said = code.variable("time_ms"), "set_timestamp: the function returned {}"
    code.line(f"{time_ms} = {code.name(checked_time, 'checked_time')}({answer}, {said!r})")
    with code.changed("timestamp_ms", time_ms):
        code.forward(key, value)


def _unpacked(code: LoopCode, pair: str, *about: str) -> tuple[str, str]:
    """Write the lines that take a pair apart, and return the variables that then hold key and value.

    :param pair: name of the variable that holds the function's answer.
    :param about: expressions of further arguments of :func:`pair_of`, the first one ahead of the pair.
    """
    key, value = code.variable("key"), code.variable("value")
    call, *others = about
    asked = f"{code.name(pair_of, 'pair_of')}({', '.join((call, pair, *others))})"
    with code.block(f"if type({pair}) is not tuple"):
        code.line(f"{pair} = {asked}")
    with code.block("try"):
        code.line(f"{key}, {value} = {pair}")
    with code.block("except ValueError"):
        code.line(f"{key}, {value} = {asked}")
    return key, value


def _results(code: LoopCode, call: str, answer: str) -> str:
    """Write the lines that check an answer of any number of results, and return the variable that then holds
    them.

    :param call: name of the DSL method, for messages.
    :param answer: expression for the answer.
    """
    results = code.variable("results")
    code.line(f"{results} = {answer}")
    with code.block(f"if type({results}) is not list"):
        code.line(f"{results} = {code.name(results_of, 'results_of')}({call!r}, {results})")
    return results


#: Passes on the records that satisfy a predicate.
FILTER = FunctionKind(type="filter", write=_filter, hands_on=BOTH)
#: Passes on the records that do not satisfy a predicate.
FILTER_NOT = FunctionKind(type="filter_not", write=_filter_not, hands_on=BOTH)
#: Shows each record to an action and passes it on as it was.
PEEK = FunctionKind(type="peek", write=_peek, hands_on=BOTH)
#: Hands each record to an action, where a stream ends.
FOREACH = FunctionKind(type="foreach", write=_foreach, hands_on=_NEITHER)
#: Replaces key and value.
MAP = FunctionKind(type="map", write=_map, hands_on=_NEITHER)
#: Replaces the value.
MAP_VALUES = FunctionKind(type="map_values", write=_map_values, hands_on=_KEY, by_value=True)
#: Replaces a record by any number of records.
FLAT_MAP = FunctionKind(type="flat_map", write=_flat_map, hands_on=_NEITHER, flow="free", listed=True)
#: Replaces a value by any number of values under the same key.
FLAT_MAP_VALUES = FunctionKind(
    type="flat_map_values", write=_flat_map_values, hands_on=_KEY, by_value=True, flow="free", listed=True
)
#: Replaces the key.
SELECT_KEY = FunctionKind(type="select_key", write=_select_key, hands_on=_VALUE)
#: Replaces the headers that sinks below write, and that functions and processors below see.
SET_HEADERS = FunctionKind(type="set_headers", write=_set_headers, hands_on=BOTH, on_threads=False)
#: Replaces the timestamp that sinks below write, tables store, and functions and processors below see. Stream
#: time is that of the consumed records (KIP-28), so it does not follow. Folds by windows and joins of
#: streams, which go by stream time, therefore stand behind a topic, where the new times are those of the
#: records that are consumed (``KnownStream.redated``).
SET_TIMESTAMP = FunctionKind(
    type="set_timestamp", write=_set_timestamp, hands_on=BOTH, on_threads=False, redates=True
)
#: Copies each value on its way from one table into another, by ``copy.deepcopy``: an aggregator may change
#: its aggregate in place, and a second table that kept the same object would see its own entries change under
#: it.
COPY_VALUES = dataclasses.replace(MAP_VALUES, type="copy_values", on_threads=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionOperator:
    """Calls its function for each record, and uses the answer by its kind.

    :param kind: the use of the answer.
    :param function: the user's function.
    :param with_context: True if the function is given the record's context by name.
    :param with_key: True if a function of the value alone is given the record's key by name.
    """

    kind: FunctionKind
    function: Callable[..., Any]
    with_context: bool = False
    with_key: bool = False

    @property
    def type(self) -> str:
        """Kind of node."""
        return self.kind.type

    @property
    def traits(self) -> OperatorTraits:
        """The facts about the operator that the engine uses."""
        kind = self.kind
        return OperatorTraits(
            flow=kind.flow, redates=kind.redates, on_threads=self._calling if kind.on_threads else None
        )

    def _calling(self, calls: CallOptions) -> Asynchronous:
        kind, function = self.kind, self.function
        if self.with_key:
            kind, function = by_key_and_value(kind, function)
        return Asynchronous(kind=kind, function=function, calls=calls, with_context=self.with_context)

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""

        def write(code: LoopCode, key: str, value: str) -> None:
            arguments = ", ".join(self.kind.arguments(key, value))
            if self.with_key:
                arguments = f"{arguments}, key={key}"
            if self.with_context:
                arguments = f"{arguments}, context={written_context(code)}"
            self.kind.write(code, key, value, f"{code.name(self.function, 'function')}({arguments})")

        return context.written(write, forward, children)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asynchronous:
    """Calls its function asynchronously for each record, and uses the answer by its kind.

    :param kind: the use of the answer.
    :param function: the user's function.
    :param calls: options of the calls.
    :param with_context: True if the function of a plain operator is given the record's context.
    """

    kind: FunctionKind
    function: Callable[..., Any]
    calls: CallOptions
    with_context: bool = False

    @property
    def type(self) -> str:
        """Kind of node."""
        return f"{self.kind.type}_async"

    @property
    def traits(self) -> OperatorTraits:
        """The facts about the operator that the engine uses."""
        return OperatorTraits(flow="free" if self.calls.parks else self.kind.flow, calls=self.calls)

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        kind = self.kind
        spec = CallSpec(
            function=in_list(self.function, self.type) if kind.listed else self.function,
            arguments=kind.arguments,
            options=self.calls,
            hands_on=kind.hands_on,
            with_context=self.with_context,
        )
        return context.calls(spec, context.answered(kind.write, forward, children))


def by_key_and_value(
    kind: FunctionKind, function: Callable[..., Any]
) -> tuple[FunctionKind, Callable[..., Any]]:
    """Return the kind of node and the function for calls with key and value, in place of a function of the
    value that declares the key.
    """
    kind = dataclasses.replace(kind, by_value=False)
    if is_async(function):

        @functools.wraps(function)
        async def call_async(key: Any, value: Any, **offered: Any) -> Any:
            return await function(value, key=key, **offered)

        return kind, call_async

    @functools.wraps(function)
    def call(key: Any, value: Any, **offered: Any) -> Any:
        return function(value, key=key, **offered)

    return kind, call


def in_list(function: Callable[..., Any], call: str) -> Callable[..., Any]:
    """Return a function that makes a list of another function's results, so that a generator's body runs in
    the call.

    :param call: name of the DSL method, for messages.
    """
    if is_async(function):

        @functools.wraps(function)
        async def listed_async(*arguments: Any, **offered: Any) -> list[Any]:
            return [*results_of(call, await function(*arguments, **offered))]

        return listed_async

    @functools.wraps(function)
    def listed(*arguments: Any, **offered: Any) -> list[Any]:
        return [*results_of(call, function(*arguments, **offered))]

    return listed


def written_context(code: LoopCode) -> str:
    """Return the expression for the current record's context."""
    made = code.name(RecordContext, "RecordContext")
    return f"{made}({code.record}, {code.timestamp_ms}, {code.headers})"


def pair_of(call: str, given: Any, *, among: bool = False) -> tuple[Any, Any]:
    """Return a function's result as key and value.

    :param call: name of the DSL method, for the message.
    :param given: the function's result.
    :param among: True if it is one of several results.
    :raises TypeError: the result is no pair.

    >>> pair_of("map", ["a", 1])
    ('a', 1)
    >>> pair_of("map", "ab")
    Traceback (most recent call last):
    TypeError: map: the function returned str, expected a pair (key, value)
    """
    found = type(given).__name__
    if isinstance(given, Iterable) and not isinstance(given, _NO_PAIRS):
        pair = tuple(islice(given, 3))
        if len(pair) == 2:
            return pair
        found += f" of {len(pair)}" if len(pair) < 3 else " of more than 2"
    if among:
        raise TypeError(
            f"{call}: the function returned {found} among its results, expected pairs (key, value)"
        )
    raise TypeError(f"{call}: the function returned {found}, expected a pair (key, value)")


def results_of(call: str, given: Any) -> Iterable[Any]:
    """Return a function's answer as an iterable of results.

    :param call: name of the DSL method, for the message.
    :param given: the function's answer.
    :raises TypeError: it is no iterable, or a text, bytes or a dict.

    >>> results_of("flat_map_values", "an ox")
    Traceback (most recent call last):
    TypeError: flat_map_values: the function returned str, expected a list of results
    """
    if not isinstance(given, _NO_RESULTS):
        with suppress(TypeError):
            results: Iterable[Any] = iter(given)
            return results
    found = type(given).__name__
    raise TypeError(f"{call}: the function returned {found}, expected a list of results")


class UnfitNameError(TypeError):
    """A function named an entry by a key that the other table's key serde does not take."""

    own_words = True  # the text holds no data of a user's


def unfit_name(call: str, named: Any, serde: Serde, error: Exception) -> Exception:
    """Return the exception to raise for an error of a key serde.

    :param call: the DSL method's argument for the function.
    :param named: the function's result.
    :param serde: serde of the other table's keys.
    :param error: the serde's error; an error of the engine's own is returned unchanged.

    >>> from airflow_kstreams.streams import serdes
    >>> unfit_name("foreign_key", "UA", serdes.int64(), ValueError())
    UnfitNameError('foreign_key: the function returned str, the keys of the other table are serdes.int64')
    """
    if isinstance(error, KStreamsError):
        return error
    found = type(named).__name__
    return UnfitNameError(f"{call}: the function returned {found}, the keys of the other table are {serde!r}")
