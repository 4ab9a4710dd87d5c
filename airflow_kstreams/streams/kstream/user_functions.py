"""Adds the nodes that call functions and processors of the user: a function for each record, predicates,
batches, calls whose answers take time, processors. Methods of a stream call it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.calls import (
    CallArguments,
    CallOptions,
    RetryPolicy,
    checked_options,
    retry_spec,
)
from airflow_kstreams.streams.graph.nodes import Operator
from airflow_kstreams.streams.graph.store_specs import RetryStoreSpec, StoreSpec
from airflow_kstreams.streams.hints.function_checks import (
    CONTEXT,
    KEY,
    RESOURCE,
    call_site,
    check_called_functions,
    check_functions,
    declared_beside,
    declared_by,
    refuse_other_arguments,
    refuse_unfilled,
)
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.kstream.arguments import check_used_stores
from airflow_kstreams.streams.kstream.known import KnownStream
from airflow_kstreams.streams.kstream.operators.function_kinds import (
    Asynchronous,
    FunctionKind,
    FunctionOperator,
    by_key_and_value,
)
from airflow_kstreams.streams.kstream.operators.map_batches import BatchFunction, map_batches_operator
from airflow_kstreams.streams.kstream.operators.stateless import Branch, PassThrough, Predicate
from airflow_kstreams.streams.processor.definitions import check_async_processor_def, check_processor_def
from airflow_kstreams.streams.processor.operator import CallingProcessorOperator, ProcessorOperator
from airflow_kstreams.streams.processor.processor import AsyncProcessorDef, ProcessorDef
from airflow_kstreams.streams.records.record_context import InContext, RecordContext

if TYPE_CHECKING:
    from airflow_kstreams.streams.kstream.operators.map_batches import BatchSchema

T = TypeVar("T")

#: Method -> the beginning of its nodes' names where that is not the method's name, as in Kafka Streams.
_NODE_KINDS = {"filter_not": "FILTER", "select_key": "KEY-SELECT"}


@answers_java_names
class Branches(dict[str, T]):
    """Branch name -> its stream."""


def applied(known: KnownStream, kind: FunctionKind, name: str | None, **given: Any) -> KnownStream:
    """Add the node that calls a function for each record, and return the stream of its results.

    :param kind: the use that the node makes of the answers; its type is the name of the DSL method.
    :param name: the node's name given by the user; None for a numbered one.
    :param given: the function given by the user, by the name of the method's argument.
    :raises TopologyError: it is no function, it takes other arguments, or the name is taken.
    """
    may = (KEY, CONTEXT) if kind.by_value else (CONTEXT,)
    declared = declared_beside(kind.type, may, kind.arguments("key", "value"), **given)
    (function,) = given.values()
    operator = FunctionOperator(
        kind=kind, function=function, with_key=KEY in declared, with_context=CONTEXT in declared
    )
    node_kind = _NODE_KINDS.get(kind.type) or kind.type.replace("_", "").upper()
    return _answers(known.behind(f"KSTREAM-{node_kind}", operator, name), kind, kind.type)


def called(
    known: KnownStream, kind: FunctionKind, threads: bool, options: CallArguments, **given: Any
) -> KnownStream:
    """Add the node that calls a function whose answers take time, and return the stream of its results.

    :param kind: the use that the node makes of the answers; its type and ``_async`` are the name of the DSL
        method.
    :param threads: True if the calls run on threads.
    :param options: options given by the user.
    :param given: the function given by the user, by the name of the method's argument.
    :raises TopologyError: the function or an option is not valid, or ``retry`` lacks a name or a serde.
    """
    ((argument, function),) = given.items()
    call = f"{kind.type}_async"
    calls, name = _call_options(call, threads, options)
    check_called_functions(call, threads=threads, **given)
    refuse_unfilled(call, function, resource=calls.resource is not None)
    may = (KEY, CONTEXT, RESOURCE) if kind.by_value else (CONTEXT, RESOURCE)
    declared = declared_by(function, may)
    refuse_other_arguments(call, argument, function, kind.arguments("key", "value"), by_name=sorted(declared))
    checked_options(call, calls, name)
    if KEY in declared:
        kind, function = by_key_and_value(kind, function)
    if CONTEXT in declared:
        calls = _with_key_name(known, calls, name, call)
    operator = Asynchronous(kind=kind, function=function, calls=calls)
    prefix = f"KSTREAM-{kind.type.replace('_', '').upper()}-ASYNC"
    return _answers(_with_calls(known, prefix, operator, calls, name, call), kind, call)


def branched(
    known: KnownStream,
    call: str,
    predicates: Sequence[tuple[str, Predicate | InContext]],
    *,
    default: str | None = None,
    name: str | None = None,
) -> list[KnownStream]:
    """Add a node that branches, and return one stream for each of its branches.

    :param call: name of the DSL method, for messages.
    :param predicates: pairs of a branch's name and its predicate, in the order in which they are tried.
    :param default: name of the branch of the records for which none holds; None drops them.
    :param name: the node's name given by the user; None for a numbered one.
    :raises TopologyError: there is no predicate, or one of them is no function.
    """
    if not predicates:
        raise TopologyError(f"{call} at {call_site()} has no predicate", fix="pass one predicate per branch")
    calls = [f"split({branch}=)" if call == "split" else call for branch, _ in predicates]
    taking = [
        bool(declared_beside(one, (CONTEXT,), predicates=predicate))
        for one, (_, predicate) in zip(calls, predicates, strict=True)
    ]
    graph = known.graph
    node = graph.node_name("KSTREAM-BRANCH", name)
    names = [branch for branch, _ in predicates] + ([] if default is None else [default])
    children = [graph.name("KSTREAM-BRANCHCHILD") if name is None else f"{name}-{each}" for each in names]
    operator = Branch(
        predicates=tuple(
            predicate if takes or not any(taking) else _without_context(predicate)
            for (_, predicate), takes in zip(predicates, taking, strict=True)
        ),
        children=tuple(children[: len(predicates)]),
        rest=None if default is None else children[-1],
        with_context=any(taking),
    )
    graph.topology.add_operator(node, operator, known.node)
    for child in children:
        graph.topology.add_operator(child, PassThrough(type="branch_child"), node)
    return [known.at(child) for child in children]


def _without_context(predicate: Any) -> InContext:
    """Return a predicate that takes a context, as others of its node do, and does not use it."""

    def beside_others(key: Any, value: Any, /, *, context: RecordContext) -> Any:
        return predicate(key, value)

    return beside_others


def in_batches(
    known: KnownStream,
    function: BatchFunction,
    batch_size: int,
    schema: BatchSchema | None,
    *,
    changes_key: bool,
    with_offsets: bool,
    name: str | None,
) -> KnownStream:
    """Add the node that calls a function for batches of records, and return the stream of its results.

    :param changes_key: True if results may have other keys than the records in their places.
    :param with_offsets: True if batches have the places of their records, too.
    :param name: the node's name given by the user; None for a numbered one.
    :raises TopologyError: no function, no positive size, or a schema of other columns is given.
    """
    check_functions("map_batches", function=function)
    operator = map_batches_operator(function, batch_size, schema, with_offsets=with_offsets)
    # A table may change the objects that wait here for their batch.
    node = known.with_own_values().behind("KSTREAM-MAPBATCHES", operator, name).node
    mapped = known.at(node).with_new_value("map_batches")
    return mapped.with_new_key("map_batches") if changes_key else mapped


def processed(
    known: KnownStream,
    call: str,
    definition: ProcessorDef,
    stores: tuple[str | StoreSpec, ...],
    name: str | None,
    *,
    keeps_keys: bool = False,
) -> KnownStream:
    """Add a processor's node with its stores, and return the stream of its results.

    :param call: name of the DSL method, for messages.
    :param stores: names or specs of the stores that the processor uses.
    :param name: the node's name given by the user; None for a numbered one.
    :param keeps_keys: True if the processor's results have the keys of its records.
    :raises TopologyError: the definition cannot be called, or a store's name is taken.
    """
    check_processor_def(definition, call, call_site())
    check_used_stores(stores, call)
    graph = known.graph
    names = [store if isinstance(store, str) else store.name for store in stores]
    for store in stores:
        if not isinstance(store, str):
            graph.topology.add_state_store(store)
    operator = ProcessorOperator(definition=definition, keeps_keys=keeps_keys)
    node_kind = "KSTREAM-PROCESSVALUES" if keeps_keys else "KSTREAM-PROCESSOR"
    results = known.at(graph.operator(node_kind, operator, known.node, names, name=name)).with_new_value(call)
    return results if keeps_keys else results.with_new_key(call)


def processed_async(
    known: KnownStream,
    definition: AsyncProcessorDef,
    stores: tuple[object, ...],
    threads: bool,
    options: CallArguments,
) -> KnownStream:
    """Add the node of a processor whose calls take time, and return the stream of its results.

    :param stores: stores given by the user; any is refused.
    :param threads: True if the calls run on threads.
    :param options: options given by the user.
    :raises TopologyError: a store is given, the definition makes no such processor, an option is not valid,
        or ``retry`` lacks a name or a serde.
    """
    call = "process_async"
    for store in stores:
        raise TopologyError(
            f"{call} at {call_site()} is given the store {getattr(store, 'name', store)!r}: what calls "
            "for several records see there would depend on time",
            fix="keep the store in a processor above or below, with process(definition, store)",
        )
    calls, name = _call_options(call, threads, options)
    checked_options(call, calls, name)
    check_async_processor_def(definition, call, call_site(), threads=threads)
    calls = _with_key_name(known, calls, name, call)
    operator = CallingProcessorOperator(definition=definition, calls=calls)
    results = _with_calls(known, "KSTREAM-PROCESSOR-ASYNC", operator, calls, name, call)
    return results.with_new_key(call).with_new_value(call)


def _answers(known: KnownStream, kind: FunctionKind, call: str) -> KnownStream:
    """Return the stream of a function's answers, with the parts of the record that the node hands on.

    :param known: description of the stream above, with the node that calls the function.
    :param kind: the use that the node makes of the answers.
    :param call: name of the DSL method, for messages.
    """
    if "key" not in kind.hands_on:
        known = known.with_new_key(call)
    if "value" not in kind.hands_on:
        known = known.with_new_value(call)
    return dataclasses.replace(known, redated=True) if kind.redates else known


def _call_options(call: str, threads: bool, given: CallArguments) -> tuple[CallOptions, str | None]:
    """Return a node's call options, and the name that the user gave it.

    :raises TypeError: there is no such option.
    """
    for option in given:
        if option not in CallArguments.__annotations__:
            raise TypeError(f"KStream.{call}() got an unexpected keyword argument {option!r}")
    options: dict[str, Any] = {**given}
    name = options.pop("name", None)
    return CallOptions(threads=threads, **options), name


def _with_key_name(known: KnownStream, calls: CallOptions, name: str | None, call: str) -> CallOptions:
    """Return the options of a node that may ask for idempotency keys, with the node's name in these keys.

    :raises TopologyError: the node has no name, and another one reads and does the same: two calls for one
        record would have one key.
    """
    if name is not None:
        return calls
    kind = call.replace("_", "-")
    key_name = known.graph.lasting_name(known.reads, kind, call, option="name")
    return dataclasses.replace(calls, key_name=key_name)


def _with_calls(
    known: KnownStream, node_kind: str, operator: Operator, calls: CallOptions, name: str | None, call: str
) -> KnownStream:
    """Add an asynchronous node, with its retry topic if it has one, and return the stream of its results.

    :param node_kind: the beginning of a numbered name, e.g. ``KSTREAM-FILTER-ASYNC``.
    :param name: the node's name given by the user; None for a numbered one.
    :param call: name of the DSL method, for messages.
    :raises TopologyError: a serde is missing.
    """
    if name is None:
        return known.behind(node_kind, operator)
    topology = known.graph.topology
    topology.add_operator(name, operator, known.node)
    if calls.retry is not None and calls.parks:
        topology.add_state_store(_retry_store(known, name, calls.retry, call), name)
    return known.at(name)


def _retry_store(known: KnownStream, name: str, retry: RetryPolicy, call: str) -> RetryStoreSpec:
    """Return the spec of the store of the records that a node parks.

    :raises TopologyError: a serde is missing.
    """
    option, of = "RetryPolicy(key_serde)", f"{call}(retry=)"
    keys = known.graph.serde("key", retry.key_serde, known.serdes, of, option=option)
    values = known.graph.serde(
        "value", retry.value_serde, known.serdes, of, option=option.replace("key", "value")
    )
    return retry_spec(name, keys, values, keys_changed=known.key_changed)
