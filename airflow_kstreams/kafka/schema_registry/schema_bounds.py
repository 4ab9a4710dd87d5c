"""Parses schemas within bounds, and makes what fails in that the schema's fault.

Rule: a schema that cannot be parsed, refers to itself in a loop, or needs more work than its size allows for,
is refused with :class:`BrokenSchemaError`, once, before a record is read or written with it. No record is at
fault: the next schema that its topic gets may be sound.

A schema may refer to others in the registry, which refer to more of them. The client's parsers follow every
path; paths can be exponentially many, or without an end. Here each reference is asked for once, and the paths
are counted before the parsers walk them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from airflow_kstreams.kafka.schema_registry.asked_registry import RegistryError

#: Characters of a schema's text, and of all that it refers to together.
MAX_TEXT = 4_000_000
#: Other schemas that one refers to, and those to more.
MAX_REFERRED = 1_000
#: Levels of objects and lists in a schema.
MAX_DEPTH = 100
#: Steps that a parser may take along references: more is an explosion, since each schema is one step.
MAX_STEPS = 20_000

T = TypeVar("T")


class BrokenSchemaError(Exception):
    """A schema cannot be used; its text says why, and holds no record."""


def fault_in(error: BaseException | None) -> RegistryError | BrokenSchemaError | None:
    """Return the fault of a registry or a schema that an error comes from; None if it comes from neither."""
    while error is not None:
        if isinstance(error, BrokenSchemaError):
            return error
        if isinstance(error, RegistryError):
            return error
        error = error.__cause__ or error.__context__
    return None


def within_bounds(parse: Callable[[], T]) -> T:
    """Return what parsing a schema gives.

    :param parse: works on the schema, and on no record.
    :raises BrokenSchemaError: it fails.
    :raises RegistryError: the registry does, asked for what the schema refers to.
    """
    try:
        return parse()
    except (RegistryError, BrokenSchemaError, ImportError):
        raise
    except RecursionError as error:
        raise BrokenSchemaError("it is nested too deep, or refers to itself in a loop") from error
    except Exception as error:
        raise BrokenSchemaError(f"{type(error).__name__}: {' '.join(str(error).split())}") from error


class ParsesWithinBounds:
    """Lets a serializer or deserializer of confluent-kafka parse its schemas within bounds."""

    #: Of the client's class.
    _registry: Any
    _parsed_schemas: Any

    def _get_parsed_schema(self, schema: Any) -> Any:
        known = None if schema is None else self._parsed_schemas.get_parsed_schema(schema)
        if known is not None:
            return known
        parse: Callable[[Any], Any] = super()._get_parsed_schema  # type: ignore[misc]

        def parsed() -> Any:
            if schema is not None:
                check_references(schema, self._registry)
            return self._checked(parse(schema))

        return within_bounds(parsed)

    def _checked(self, parsed: Any) -> Any:
        """Return a parsed schema if it is within the bounds of its format.

        :raises BrokenSchemaError: it is not.
        """
        return parsed


def check_references(schema: Any, registry: Any) -> None:
    """Look at what a schema refers to in the registry, before a parser follows each path to it.

    :param registry: an ``AskedRegistry``.
    :raises BrokenSchemaError: references go in a loop, or along too many paths; or the texts are too long.
    """
    paths: dict[tuple[str, int], int] = {}
    left = MAX_TEXT - len(schema.schema_str or "")
    # Each entry: what is looked at, and its references that are not yet.
    open_: list[tuple[tuple[str, int], Iterator[Any]]] = [(("", 0), iter(schema.references or ()))]
    found: list[int] = [1]
    # Protobuf's parser remembers what it has been to.
    while open_ and schema.schema_type != "PROTOBUF":
        reference = next(open_[-1][1], None)
        if reference is None:
            key, _ = open_.pop()
            count = paths[key] = found.pop()
            if found:
                found[-1] += count
            if count > MAX_STEPS:
                raise BrokenSchemaError(f"it refers to others along more than {MAX_STEPS:,} paths")
            continue
        key = reference.subject, reference.version
        if key in paths:
            found[-1] += paths[key]
            continue
        if any(key == above for above, _ in open_):
            raise BrokenSchemaError(f"its references go in a loop at subject {key[0]!r:.200}")
        if len(open_) > MAX_DEPTH:
            raise BrokenSchemaError(f"its references are nested more than {MAX_DEPTH} deep")
        if len(paths) + len(open_) > MAX_REFERRED:
            raise BrokenSchemaError(f"it refers to more than {MAX_REFERRED:,} others")
        referred = registry.get_version(*key, True).schema
        left -= len(referred.schema_str or "")
        _check_length(left)
        open_.append((key, iter(referred.references or ())))
        found.append(1)
    _check_length(left)


def _check_length(left: int) -> None:
    if left < 0:
        raise BrokenSchemaError(f"its text is longer than {MAX_TEXT:,} characters")


def check_depth(value: Any) -> None:
    """Refuse a parsed JSON text that is nested too deep.

    :raises BrokenSchemaError: it is.
    """
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise BrokenSchemaError(f"it is nested more than {MAX_DEPTH} deep")
