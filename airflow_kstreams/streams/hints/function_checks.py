"""Checks the functions that users pass while they build a topology: a mistake is refused at the line that
makes it, and the argument is named.

Python takes any object for any other. A coroutine or generator function in the place of a function would give
coroutines or generators: as a predicate they are all true, as an action they never run.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CoroutineType
from typing import Any, Final, TypeVar, cast

import airflow_kstreams
from airflow_kstreams.streams.errors import TopologyError

#: Beginning of the file names in this package's code objects; not resolved, as these are not.
PACKAGE_FOLDER: Final = f"{Path(airflow_kstreams.__file__).parent}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSite:
    """The user's file and line that defined a node, for messages."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def short(self) -> str:
        """The line without the file's folders: ``orders.py:17``; ``cell:3`` in a notebook."""
        path = Path(self.file)
        return f"{'cell' if path.parent.name.startswith('ipykernel_') else path.name}:{self.line}"


def call_site() -> CallSite:
    """Return the innermost frame outside this package: the user's line that asked for what is being built."""
    frame = sys._getframe(1)
    # The __init__ that dataclasses generate has no file, but the globals of its class's module.
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(PACKAGE_FOLDER)
        or (
            frame.f_code.co_filename == "<string>"
            and frame.f_globals.get("__file__", "").startswith(PACKAGE_FOLDER)
        )
    ):
        frame = frame.f_back
    return CallSite(file=frame.f_code.co_filename, line=frame.f_lineno)


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: Argument for a function, or (method, argument) -> names of the arguments with which the function is called.
_CALLED_WITH: dict[str | tuple[str, str], tuple[str, ...]] = {
    "action": ("key", "value"),
    "adder": ("key", "value", "aggregate"),
    ("reduce", "adder"): ("aggregate", "value"),
    "aggregator": ("key", "value", "aggregate"),
    "foreign_key": ("key", "value"),
    "function": ("key", "value"),
    ("map_batches", "function"): ("batch",),
    ("timestamps.extract", "function"): ("record",),
    "initializer": (),
    "joiner": ("value", "other"),
    "key": ("key", "value"),
    "mapper": ("key", "value"),
    ("flat_map_values", "mapper"): ("value",),
    ("map_values", "mapper"): ("value",),
    "merger": ("key", "one", "other"),
    "partitioner": ("topic", "key", "value", "partitions"),
    "predicate": ("key", "value"),
    "predicates": ("key", "value"),
    "reducer": ("aggregate", "value"),
    "selector": ("key", "value"),
    "subtractor": ("key", "value", "aggregate"),
    ("reduce", "subtractor"): ("aggregate", "value"),
}

#: (method, argument) of functions whose answer None leaves no record.
_ANSWERS = {
    *((call, "predicate") for call in ("filter", "filter_not")),
    *((call, "mapper") for call in ("map", "flat_map", "flat_map_values")),
    ("group_by", "selector"),
}
#: Methods that take a function's results one by one, and so a generator function, too.
_TAKES_GENERATORS = ("flat_map", "flat_map_values", "flat_map_values_async")
#: The joins of tables, as those of Kafka Streams, give a joiner no key.
_KEY_OF_JOIN = "for the key, transform_values(definition) behind the join"

#: The parameters that a function may declare by name beside its arguments.
CONTEXT, KEY, RESOURCE = "context", "key", "resource"


def check_functions(
    call: str,
    *,
    fix: str = "pass a function, e.g. a lambda",
    called_with: Sequence[str] | None = None,
    **given: object,
) -> None:
    """Refuse a function that does not take its arguments, or would only give a coroutine or a generator.

    :param call: the DSL method, for the message: ``filter``.
    :param fix: the remedy for an object that is no function.
    :param called_with: names of the arguments with which the functions are called; None for those that belong
        to the method's argument.
    :param given: argument -> the user's function.
    :raises TopologyError: one of them is no plain function, or takes other arguments.
    """
    for argument, function in given.items():
        plain = _checked_plain(call, argument, function, fix=fix)
        names = called_with if called_with is not None else _called_with(call, argument)
        instead = _KEY_OF_JOIN if argument == "joiner" else ""
        if CONTEXT in declared_by(plain):
            instead = "give filter, map_values, peek or the like of a stream what needs the record's context"
        refuse_other_arguments(call, argument, plain, names, instead=instead)


def declared_beside(
    call: str, may: Sequence[str], called_with: Sequence[str] | None = None, **given: object
) -> frozenset[str]:
    """Refuse a function as :func:`check_functions` does, and return the names of the parameters that it is
    given beside its arguments.

    Rule: a function is given the record's ``context``, or its ``key``, by name, if it declares a parameter
    called so, wherever the parameter stands. Such a parameter therefore takes no argument of the record: a
    function that needs it for one does not take its arguments, and is refused.

    :param call: the DSL method, for the message: ``filter``.
    :param may: the parameters that functions of the method may declare.
    :param called_with: as in :func:`check_functions`.
    :param given: the user's function, by the name of the method's argument.
    :raises TopologyError: it is no plain function, or takes other arguments.
    """
    ((argument, function),) = given.items()
    plain = _checked_plain(call, argument, function, fix="pass a function, e.g. a lambda")
    names = called_with if called_with is not None else _called_with(call, argument)
    declared = [name for name in may if name in declared_by(plain, may)]
    offers = [f"for the record's {name}, lambda {', '.join((*names, name))}: ..." for name in may]
    refuse_other_arguments(call, argument, plain, names, by_name=declared, instead="; ".join(offers))
    return frozenset(declared)


def _called_with(call: str, argument: str) -> tuple[str, ...]:
    return _CALLED_WITH.get((call, argument)) or _CALLED_WITH[argument]


def _checked_plain(call: str, argument: str, function: object, *, fix: str) -> Callable[..., object]:
    """Return the user's function.

    :raises TopologyError: it is no function, or an asynchronous or a generator function.
    """
    if not callable(function):
        raise TopologyError(
            f"{call} at {call_site()} is given {type(function).__name__} as {argument}, expected a function",
            fix=fix,
        )
    if is_async(function):
        raise TopologyError(
            f"{call} at {call_site()} is given an async function as {argument}: it would only give a "
            "coroutine, which never runs",
            fix="write it with def; call an asynchronous library by asyncio.run(...) inside it",
        )
    _refuse_generator(call, argument, function)
    return function


def _refuse_nothing(call: str, argument: str, function: Callable[..., object]) -> None:
    answers = argument == "predicates" or (call.removesuffix("_async"), argument) in _ANSWERS
    if answers and returns_nothing(function):
        name = getattr(function, "__name__", type(function).__name__)
        raise TopologyError(
            f"{call} at {call_site()} is given {name} as {argument}, which can only return None: no "
            "record would be left",
            fix="end the function with return and what it is to give",
        )


def returns_nothing(function: Callable[..., object]) -> bool:
    """Return True if a function's code returns only None, as if its ``return`` was forgotten.

    A call of another function, or the value of a variable, may be anything.

    >>> returns_nothing(lambda key, value: None), returns_nothing(lambda key, value: value.get("flag"))
    (True, False)
    """
    code = getattr(_called_by(function), "__code__", None)
    if code is None or gives_one_by_one(function) or gives_asynchronously(function):
        return False
    given, before = [], None
    for each in dis.get_instructions(code):
        if each.opname == "RETURN_CONST":
            given.append(each.argval is None)
        elif each.opname == "RETURN_VALUE":
            constant = before is not None and before.opname == "LOAD_CONST" and before.argval is None
            given.append(constant and not each.is_jump_target)
        before = each
    return bool(given) and all(given)


def _refuse_generator(call: str, argument: str, function: Callable[..., object]) -> None:
    if call not in _TAKES_GENERATORS and gives_one_by_one(function):
        raise TopologyError(
            f"{call} at {call_site()} is given a generator function as {argument}: it would only give a "
            "generator, whose body never runs",
            fix="write it with return instead of yield; flat_map and flat_map_values take generators",
        )


def refuse_other_arguments(
    call: str,
    argument: str,
    function: Callable[..., object],
    called_with: Sequence[str],
    *,
    by_name: Sequence[str] = (),
    instead: str = "",
) -> None:
    """Refuse a function that does not take its arguments, or returns nothing where that leaves no record.

    :param call: the DSL method, for the message: ``filter``.
    :param argument: the method's argument for the function.
    :param called_with: names of the arguments with which it is called.
    :param by_name: parameters that it declares and is given by name, beside these.
    :param instead: the remedy if the function takes one argument more ahead of these, or a context.
    :raises TopologyError: it is such a function; one without a signature passes.
    """
    for follow in (True, False) if by_name else (True,):
        try:  # a decorated function shows what it wraps, and is itself what is called
            signature = inspect.signature(function, follow_wrapped=follow)
        except (TypeError, ValueError):  # written in C, without a signature
            return
        if not takes(signature, called_with, dict.fromkeys(by_name)):
            break
    else:
        _refuse_nothing(call, argument, function)
        return
    with_what = ", ".join((*called_with, *(f"{name}={name}" for name in by_name)))
    example = f"lambda {', '.join(called_with)}: ..." if called_with else "lambda: ..."
    more = takes(signature, ("more", *called_with)) or takes(signature, called_with, {CONTEXT: None})
    hint = f"; or {instead}" if instead and more else ""
    if by_name:
        example = f"lambda {', '.join((*called_with, *by_name))}: ..."
        hint = f"; a parameter for anything else needs another name than {' and '.join(by_name)}"
    raise TopologyError(
        f"{call} at {call_site()} is given {_written(function, signature)} as {argument}, and calls it with "
        + (f"({with_what})" if with_what else "no argument"),
        fix=f"write a function that takes that, e.g. {example}{hint}",
    )


def _written(function: Callable[..., object], signature: inspect.Signature) -> str:
    """Return a function as its name and parameters, without types and defaults, whose text may be long."""
    bare = [
        each.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)
        for each in signature.parameters.values()
    ]
    return f"{getattr(function, '__name__', type(function).__name__)}{inspect.Signature(bare)}"


def takes(
    signature: inspect.Signature, arguments: Sequence[object], options: Mapping[str, object] | None = None
) -> bool:
    """Return True if a function of this signature can be called with these arguments and options."""
    try:
        signature.bind(*arguments, **(options or {}))
    except TypeError:
        return False
    return True


def shown_as(name: str) -> Callable[[type[T]], type[T]]:
    """Decorate a class that is a part of another one: Python's errors for calls of its methods then name the
    class that users know.

    :param name: name of the class that users know.
    """

    def decorate(kind: type[T]) -> type[T]:
        for method in vars(kind).values():
            if inspect.isfunction(method):
                method.__qualname__ = f"{name}.{method.__name__}"
        return kind

    return decorate


def options_by_name(*, fix: str) -> Callable[[F], F]:
    """Decorate a method so that a call with a missing argument, or with one too many as for Java's method of
    the name, is refused with the user's line.

    :param fix: the right call of the method.
    """

    def decorate(method: F) -> F:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def checked(*given: Any, **options: Any) -> Any:
            try:
                signature.bind(*given, **options)
            except TypeError as error:
                raise TopologyError(f"{method.__name__} at {call_site()}: {error}", fix=fix) from None
            return method(*given, **options)

        return cast("F", checked)

    return decorate


def check_choice(where: str, choices: Collection[str], **given: object) -> None:
    """Refuse an option that is none of the allowed texts.

    :param where: the call with the user's line, for the message: ``with_window at app.py:12``.
    :param choices: the allowed texts.
    :param given: option -> the user's value.
    :raises TopologyError: an option has another value.
    """
    for option, value in given.items():
        if value not in choices:
            raise TopologyError(f"{where} has {option}={value!r}", fix=f"choose one of: {', '.join(choices)}")


def check_called_functions(call: str, *, threads: bool, **given: object) -> None:
    """Refuse a function that an asynchronous node cannot call.

    :param call: the DSL method, for the message: ``map_values_async``.
    :param threads: True if calls run on threads, which need a plain function; False if the function must be a
        coroutine function.
    :param given: argument -> the user's function.
    :raises TopologyError: one of them is no such function.
    """
    for argument, function in given.items():
        if not callable(function):
            raise TopologyError(
                f"{call} at {call_site()} is given {type(function).__name__} as {argument}, "
                "expected a function",
                fix="pass a function written with async def, or with threads=True a plain one",
            )
        if gives_asynchronously(function):
            raise TopologyError(
                f"{call} at {call_site()} is given an async generator as {argument}, where nothing is "
                "there to await",
                fix="return a list instead of yielding",
            )
        _refuse_generator(call, argument, function)
        if is_async(function) == threads:
            raise TopologyError(
                f"{call} at {call_site()} is given {'an async' if threads else 'a plain'} function as "
                f"{argument}{' and threads=True' if threads else ''}: "
                + ("a thread would only get a coroutine" if threads else "it would hold up every other call"),
                fix="leave out threads=True" if threads else "write it with async def, or pass threads=True",
            )


def refuse_unfilled(call: str, function: Callable[..., object], *, resource: bool) -> None:
    """Refuse a function that needs a resource where none is given.

    :param call: the DSL method, for the message: ``map_values_async``.
    :param resource: True if a resource is given.
    :raises TopologyError: the function needs a resource, and none is given.
    """
    if resource or RESOURCE not in declared_by(function):
        return
    if inspect.signature(function).parameters[RESOURCE].default is inspect.Parameter.empty:
        raise TopologyError(
            f"{call} at {call_site()} is given a function with a parameter resource, and no resource=",
            fix="pass resource=, which makes what the function is given, or give the parameter a default",
        )


def declared_by(
    function: Callable[..., object], names: Sequence[str] = (CONTEXT, RESOURCE)
) -> frozenset[str]:
    """Return those of ``names`` that a function declares as parameters which can be passed by name.

    A parameter that a partial object has filled, or that has a default, keeps the user's value: the ``key``
    of ``sorted`` is a function. Only ``resource``, which the user passes beside the function, replaces its
    default.
    """
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # written in C, without a signature
        return frozenset()
    filled: set[str] = set()
    within = inspect.unwrap(function)
    while isinstance(within, functools.partial):
        filled.update(within.keywords)
        within = within.func
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    free = {
        each.name
        for each in parameters
        if each.kind in by_name and (each.default is inspect.Parameter.empty or each.name == RESOURCE)
    }
    return frozenset((free & {*names}) - filled)


def answered(result: Any) -> Any:
    """Return a function's answer, unless it must be awaited first: it would never run.

    :raises TypeError: the answer must be awaited.
    """
    if type(result) is CoroutineType:
        result.close()
        raise TypeError("the function returned a coroutine, which would never run: await it in an async def")
    return result


def is_async(function: Callable[..., object]) -> bool:
    """Return True if calling an object gives a coroutine or an asynchronous generator, and no result."""
    return inspect.iscoroutinefunction(_called_by(function)) or gives_asynchronously(function)


def gives_asynchronously(function: Callable[..., object]) -> bool:
    """Return True if calling an object gives an asynchronous generator."""
    return inspect.isasyncgenfunction(_called_by(function))


def gives_one_by_one(function: Callable[..., object]) -> bool:
    """Return True if calling an object gives a generator."""
    return inspect.isgeneratorfunction(_called_by(function))


def _called_by(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function that runs when an object is called."""
    while isinstance(function, functools.partial):
        function = function.func
    routine = inspect.isroutine(function) or inspect.isclass(function)
    return function if routine else type(function).__call__
