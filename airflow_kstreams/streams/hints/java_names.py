"""Answers the names of Kafka Streams with this package's names, or with the parameter to pass instead.

A method that an object lacks is answered by its AttributeError, the import of a class by its ImportError, and
a setting (``streams/settings.py``) by its ConfigError. All answers stand in ``java_names.json`` beside this
file, by Kafka Streams' names (4.3); ``docs/reference/from-java.md`` is drawn from it, and a test compares it
with the jar.
"""

from __future__ import annotations

import builtins
import json
import pkgutil
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple, NoReturn, TypeVar

T = TypeVar("T")

#: Beginning of an answer that gives the reason why there is nothing to write.
NOTHING = "nothing: "
#: Key of the answer for all methods of a class that are not named.
ALL = "*"


class JavaClass(NamedTuple):
    """The counterpart of a class of Kafka Streams' DSL.

    :ivar ours: the answer: code to write instead.
    :ivar methods: name of a method in Java -> the answer; ``ALL`` for all methods that are not there.
    :ivar kind: name of this package's class; empty if there is none.
    :ivar looked_up: names of methods that are looked up in this package's class, with a blank between them.
    """

    ours: str
    methods: Mapping[str, str] = {}
    kind: str = ""
    looked_up: str = ""


_ANSWERS: Mapping[str, Mapping[str, Any]] = json.loads(pkgutil.get_data(__name__, "java_names.json") or b"")
#: Method of an object, in small letters with underscores -> the answer, for objects that have the attribute
#: with which the answer begins. An answer that is one method is followed by "(".
METHODS: Mapping[str, str] = _ANSWERS["methods"]
#: Name of a class here -> the same for it and for classes that inherit from it.
METHODS_OF: Mapping[str, Mapping[str, str]] = _ANSWERS["methods_of"]
#: Class of Java's DSL -> its counterpart; an inner class stands behind its outer one and a dot.
CLASSES: Mapping[str, JavaClass] = {java: JavaClass(**found) for java, found in _ANSWERS["classes"].items()}
#: Class here whose objects are values -> the classes of Java whose methods it answers, also on the class
#: itself, beside its own of ``METHODS_OF``, with a blank between them; the first class with an answer
#: decides.
CLASSES_OF_VALUES: Mapping[str, str] = _ANSWERS["classes_of_values"]
#: Class beside the DSL (Processor API, stores, time, errors, settings, test driver) -> the answer.
NEIGHBOURS: Mapping[str, str] = _ANSWERS["neighbours"]
#: Setting of Kafka Streams or its clients that does not exist here -> the remedy.
SETTINGS: Mapping[str, str] = _ANSWERS["settings"]
#: Setting of the same name here -> value in Kafka Streams -> value here.
VALUES_OF_SETTINGS: Mapping[str, Mapping[str, str]] = _ANSWERS["values_of_settings"]

_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: The attribute, of the object that was asked, with which an answer begins.
_BEGINNING = re.compile(r"([a-z_]+)(?:\(|\Z)")
#: An answer that names a parameter to pass.
_PARAMETERS = re.compile(r"(?:parameters|keywords) of |[a-z_]+=")


def answers_java_names(kind: type[T]) -> type[T]:
    """Decorate a class so that the error for a method's name of Kafka Streams gives the name here.

    The attribute stays missing, also for ``hasattr`` and type checkers. A class of values answers on the
    class itself, too, and its existing attributes are not slower.
    """
    javas = CLASSES_OF_VALUES.get(kind.__name__)
    if javas is not None:
        theirs = [CLASSES[java].methods for java in reversed(javas.split())]
        for answers in (*theirs, METHODS_OF.get(kind.__name__, {})):
            for name, ours in answers.items():
                if name != ALL and not hasattr(kind, name):
                    setattr(kind, name, _Lacking(name, ours))
        return kind

    def answer(self: T, name: str) -> Any:
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        ours = java_method(type(self), name)
        raise AttributeError(f"{message}: {told(ours)}" if ours else message, name=name, obj=self)

    kind.__getattr__ = answer  # type: ignore[attr-defined]
    return kind


def java_method(kind: type[Any], name: str) -> str:
    """Return the code to write in place of a method of Kafka Streams; empty if it is none.

    >>> class Stream:
    ...     def map_values(self): ...
    ...     def send_to(self, topic): ...
    >>> java_method(Stream, "mapValues"), java_method(Stream, "to"), java_method(Stream, "nonsense")
    ('map_values', 'send_to(topic)', '')
    """
    ours = _CAPITAL.sub("_", name).lower()
    if name.startswith("_"):
        return ""
    if ours != name and hasattr(kind, ours):
        return ours
    for base in kind.__mro__:
        if ours in METHODS_OF.get(base.__name__, ()):
            return METHODS_OF[base.__name__][ours]
    answer = METHODS.get(ours, "")
    beginning = _BEGINNING.match(answer)
    known = beginning is None or hasattr(kind, beginning[1]) or hasattr(builtins, beginning[1])
    return answer if known else ""


def told(ours: str) -> str:
    """Return an answer in the words of a message: write it, pass it, or the reason to write nothing.

    >>> told("peek(print)"), told("parameters of send_to(topic)"), told("nothing: it is a stream")
    ('write peek(print)', 'pass parameters of send_to(topic)', 'it is a stream')
    """
    if ours.startswith(NOTHING):
        return ours.removeprefix(NOTHING)
    return f"{'pass' if _PARAMETERS.match(ours) else 'write'} {ours}"


def java_class(name: str) -> str:
    """Return the code to write in place of a class of Kafka Streams; empty if it is none.

    >>> java_class("StreamsBuilder"), java_class("Named"), java_class("Nonsense")
    ('KStreamBuilder', 'name=', '')
    >>> java_class("VersionedBytesStoreSupplier")
    'VersionedStoreSpec(history_ms=...)'
    """
    return CLASSES[name].ours if name in CLASSES else NEIGHBOURS.get(name, "")


def ours_for(java: str, method: str) -> str:
    """Return the code to write in place of a method of a class of Kafka Streams; empty if not known.

    >>> ours_for("KStream", "mapValues"), ours_for("KStream", "nonsense")
    ('map_values', '')
    >>> ours_for("Materialized", "withCachingDisabled")
    'StoreSpec(cached=False)'
    """
    found = CLASSES[java]
    if method in found.methods or ALL in found.methods:
        return found.methods.get(method) or found.methods[ALL]
    if method not in found.looked_up.split():
        return ""
    kind = getattr(import_module("airflow_kstreams.streams"), found.kind)
    return method if hasattr(kind, method) else java_method(kind, method)


class _Lacking:
    """Stands for a method of Kafka Streams that a class here lacks; access to it raises the answer.

    :param name: name of the method.
    :param ours: the answer.
    """

    def __init__(self, name: str, ours: str) -> None:
        self._name = name
        self._ours = ours

    def __get__(self, asked: object, kind: type[Any]) -> NoReturn:
        raise AttributeError(
            f"{kind.__name__!r} has no attribute {self._name!r}: {told(self._ours)}",
            name=self._name,
            obj=kind if asked is None else asked,
        )
