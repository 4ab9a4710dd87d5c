"""Checks processor definitions when a topology is built, and their processors in each task."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import (
    CallSite,
    gives_asynchronously,
    gives_one_by_one,
    is_async,
    takes,
)
from airflow_kstreams.streams.processor.processor import AsyncProcessor, Processor, ValueTransformer

#: Arguments of each method. A punctuation is checked where it is scheduled.
_CALLED_WITH: dict[str, tuple[str, ...]] = {
    "init": ("context",),
    "process": ("record",),
    "transform": ("key", "value"),
    "close": (),
}

#: Calls that take classes other than processors.
_TAKEN_BY: dict[type, str] = {
    AsyncProcessor: "process_async or add_processor_async",
    ValueTransformer: "KTable.transform_values; for a stream, derive it from Processor",
}


def class_of(definition: object) -> type | None:
    """Return the class whose instances a definition makes; None if it is another function."""
    while isinstance(definition, functools.partial):
        definition = definition.func
    return definition if isinstance(definition, type) else None


def fits_threads(kind: type | None) -> bool:
    """Return True if a class of processors declares that its calls may run on several threads."""
    return kind is not None and getattr(kind, "threads", False) is True


def check_processor_def(definition: object, what: str, site: CallSite) -> None:
    """Refuse a processor definition that cannot make an instance per task.

    :raises TopologyError: the definition is an instance, cannot be called, or makes another object.
    """
    _check_def(definition, Processor, f"{what} at {site}", check_processor_class)


def check_transformer_def(definition: object, what: str, site: CallSite) -> None:
    """Refuse a definition that cannot make a transformer of values per task.

    :raises TopologyError: the definition is an instance, cannot be called, or makes another object.
    """
    _check_def(definition, ValueTransformer, f"{what} at {site}", check_transformer_class)


def check_transformer_class(kind: type, what: str) -> None:
    """Refuse a class of transformers whose methods cannot be called.

    :param what: the transformer, for the message.
    :raises TopologyError: a method is declared with ``async def``, is a generator or takes other arguments.
    """
    _refuse_async(kind, ("init", "transform", "close"), what)
    _check_methods(kind, ValueTransformer, what)


def check_async_processor_def(definition: object, what: str, site: CallSite, *, threads: bool) -> None:
    """Refuse a definition that cannot make an instance per task whose calls run side by side.

    :param threads: True if the calls run on threads.
    :raises TopologyError: the definition is an instance, cannot be called, or makes another kind of
        processor.
    """
    where = f"{what} at {site}"
    _check_definition(definition, AsyncProcessor, where)
    kind = class_of(definition)
    if kind is not None:
        check_async_processor_class(kind, where, threads=threads)


def check_processor_class(kind: type, what: str) -> None:
    """Refuse a class of processors whose methods cannot be called, or whose ``threads`` is not valid.

    :param what: the processor, for the message.
    :raises TopologyError: a method is declared with ``async def``, is a generator or takes other arguments,
        or ``threads`` does not fit.
    """
    _refuse_async(kind, ("init", "process", "punctuate", "close"), what)
    _check_methods(kind, Processor, what)
    threads = getattr(kind, "threads", False)
    if type(threads) is not bool:
        raise TopologyError(
            f"{what}: {kind.__name__}.threads is {threads!r}", fix="give the class threads = True or False"
        )
    if threads and getattr(kind, "punctuate", None) is not Processor.punctuate:
        raise TopologyError(
            f"{what}: {kind.__name__} declares threads = True and has a punctuate method: a punctuation has "
            "its place between records, whose calls run side by side",
            fix="keep the punctuation in a processor of its own",
        )


def check_async_processor_class(kind: type, what: str, *, threads: bool) -> None:
    """Refuse a class whose calls cannot run side by side as its node requires.

    :param what: the processor, for the message.
    :param threads: True if the calls run on threads.
    :raises TopologyError: it is no such class.
    """
    if not issubclass(kind, AsyncProcessor):
        more = ", or pass it to process, where threads = True in the class has it run on threads"
        raise TopologyError(
            f"{what} is given {kind.__name__}, which is no AsyncProcessor",
            fix="derive the class from airflow_kstreams.streams.AsyncProcessor"
            + (more if issubclass(kind, Processor) else ""),
        )
    process: Any = kind.process
    if gives_asynchronously(process):
        raise TopologyError(
            f"{what}: {kind.__name__}.process is an async generator, where nothing is there to await",
            fix="forward by the context instead of yielding",
        )
    if is_async(process) == threads:
        raise TopologyError(
            f"{what}: {kind.__name__}.process is {'async, and threads=True' if threads else 'plain'}: "
            + ("a thread would only get a coroutine" if threads else "it would hold up every other call"),
            fix="leave out threads=True" if threads else "write it with async def, or pass threads=True",
        )
    for name in ("init", "close"):
        if is_async(getattr(kind, name)):
            raise TopologyError(
                f"{what}: {kind.__name__}.{name} is async, and runs on the task's own thread",
                fix=f"write {name} with def; what must be opened on the event loop is a resource: resource=",
            )
    _check_methods(kind, AsyncProcessor, what)


def _refuse_async(kind: type, names: Sequence[str], what: str) -> None:
    """Refuse a class with an asynchronous method that the task's own thread calls."""
    for name in names:
        method = getattr(kind, name, None)
        if method is not None and is_async(method):
            other = "; to await in process, derive the class from AsyncProcessor and use process_async"
            raise TopologyError(
                f"{what}: {kind.__name__}.{name} is async: it would only give a coroutine, which never runs",
                fix=f"write {name} with def" + (other if name == "process" else ""),
            )


def _check_methods(kind: type, base: type, what: str) -> None:
    """Refuse a class whose methods cannot be called, or would only give a generator.

    :param kind: the class.
    :param base: the base class of this package that it derives from.
    :raises TopologyError: a method is missing, is a generator, or takes other arguments.
    """
    for name in sorted(getattr(kind, "__abstractmethods__", ())):
        raise TopologyError(
            f"{what}: {kind.__name__} has no method {name}, and so cannot be made",
            fix=f"write def {name}(self{''.join(f', {each}' for each in _CALLED_WITH.get(name, ()))})",
        )
    for name, called_with in _CALLED_WITH.items():
        method = inspect.getattr_static(kind, name, None)
        if not isinstance(method, FunctionType) or not hasattr(base, name):
            continue
        written = f"{kind.__name__}.{name}"
        if gives_one_by_one(method):
            raise TopologyError(
                f"{what}: {written} is a generator: calling it only makes one, whose body never runs",
                fix=f"write {name} without yield"
                + ("; what is to go on is forwarded by the context" if name == "process" else ""),
            )
        signature = inspect.signature(method, follow_wrapped=False)
        if not takes(signature, (kind, *called_with)):
            wanted = ", ".join(("self", *called_with))
            raise TopologyError(
                f"{what}: {written} takes ({', '.join(signature.parameters)}), and is called with ({wanted})",
                fix=f"write def {name}({wanted})",
            )


def _check_def(definition: object, base: type, where: str, check: Callable[[type, str], None]) -> None:
    """Refuse a definition that makes no instance of a class, and a class that does not pass a check."""
    _check_definition(definition, base, where)
    kind = class_of(definition)
    if kind is None:
        return
    if not issubclass(kind, base):
        takers = _TAKEN_BY if base is Processor else {}
        raise TopologyError(
            f"{where} is given {kind.__name__}, which is no {base.__name__}",
            fix=next(
                (f"pass it to {call}" for other, call in takers.items() if issubclass(kind, other)),
                f"derive the class from airflow_kstreams.streams.{base.__name__}",
            ),
        )
    check(kind, where)


def _check_definition(definition: object, base: type, where: str) -> None:
    if isinstance(definition, Processor | AsyncProcessor | ValueTransformer):
        name = type(definition).__name__
        raise TopologyError(
            f"{where} is given an instance of {name}, which all tasks would share",
            fix=f"pass the class, or a function that makes a new one: lambda: {name}(...)",
        )
    if not callable(definition):
        raise TopologyError(
            f"{where} is given {definition!r}, which cannot be called",
            fix=f"pass {_a(base)} class, or a function without arguments that makes a new instance",
        )
    if class_of(definition) is None and is_async(definition):
        raise TopologyError(
            f"{where} is given an async function, which would make a coroutine and no processor",
            fix="write it with def",
        )
    if class_of(definition) is None and gives_one_by_one(definition):
        raise TopologyError(
            f"{where} is given a generator function, which would make a generator and no processor",
            fix="write it with return instead of yield",
        )
    if _takes_arguments(definition):
        raise TopologyError(
            f"{where} is given {getattr(definition, '__name__', 'a function')} that takes arguments, which "
            "are not there when a task makes its own instance",
            fix=f"pass {_a(base)} class, or a function without arguments that makes a new instance; a "
            "function of values goes to map_values, one of keys and values to map or filter",
        )


def _takes_arguments(definition: Any) -> bool:
    """Return True if a definition is known to need arguments."""
    try:
        signature = inspect.signature(definition)
    except (TypeError, ValueError):
        return False
    try:
        signature.bind()
    except TypeError:
        return True
    return False


def made(definition: Any, base: type, task_id: str, node: str) -> Any:
    """Make the processor of one task.

    :param definition: the user's class or function.
    :param base: the class that the processor must have.
    :raises TopologyError: the definition made another object.
    """
    processor = definition()
    if not isinstance(processor, base):
        raise TopologyError(
            f"task {task_id}: the definition of processor {node!r} made a {type(processor).__name__}, "
            f"expected {_a(base)}",
            fix=f"derive the class from airflow_kstreams.streams.{base.__name__}",
        )
    return processor


def _a(base: type) -> str:
    return f"{'an' if base.__name__[0] == 'A' else 'a'} {base.__name__}"
