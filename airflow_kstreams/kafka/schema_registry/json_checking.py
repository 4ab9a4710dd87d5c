"""Checks values by JSON Schema in bounded time.

jsonschema does what a schema says, however much that is. What makes it run without an end is replaced here,
or refused as the schema's fault:

- ``pattern``, ``patternProperties``: Python's ``re`` backtracks, so that ``^(a+)+$`` takes years for a text
  of 60 characters, while it holds the interpreter's lock. RE2 matches in time linear in the text. It has no
  look-around and no back references; a pattern with one is refused, since no engine that has them is linear.
- ``uniqueItems``: compares all pairs of a list of objects. Here each is looked up by what it holds.
- references that lead back to where they come from, with the same value: are found before a value is checked.
- combinations: two references to a schema of two references and so on are exponentially many steps. The steps
  of one value are counted.

What jsonschema says of a value that does not fit is unchanged.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import re2
import referencing.jsonschema
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from jsonschema import ValidationError
from jsonschema.validators import extend, validator_for
from referencing.exceptions import Unresolvable

from airflow_kstreams.kafka.schema_registry.schema_bounds import (
    BrokenSchemaError,
    ParsesWithinBounds,
    check_depth,
    within_bounds,
)

#: Keywords of a schema that one value may meet; a large document of a large schema meets some 100,000.
MAX_STEPS = 1_000_000
#: Characters of a pattern, and instructions that RE2 makes of it: a text takes at most its length times them.
MAX_PATTERN, MAX_INSTRUCTIONS = 2_000, 10_000
#: Keywords whose schemas judge the value that the schema itself judges.
_SAME_VALUE = frozenset(
    [
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "dependentSchemas",
        "dependencies",
        "extends",
        "disallow",
    ]
)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
#: Keywords that hold one schema or a list of them, and those that hold schemas by name.
_SCHEMAS = _SAME_VALUE | frozenset(
    [
        "additionalItems",
        "additionalProperties",
        "contains",
        "items",
        "prefixItems",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
_BY_NAME = frozenset(
    ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies")
)
#: RE2 takes these for something else than JSON Schema's regular expressions do.
_OTHER_MEANING = re.compile(r"\[:|\\[QCE]")
_CODE_POINT = re.compile(r"\\u([0-9a-fA-F]{4})")

_counted = threading.local()


class CheckedJsonSerializer(ParsesWithinBounds, JSONSerializer):
    """confluent-kafka's serializer, which checks in bounded time."""

    def _checked(self, parsed: Any) -> Any:
        return _shallow(parsed)

    def _get_validator(self, schema: Any, parsed_schema: Any, registry: Any) -> BoundedValidator:
        return _validator(self, schema, parsed_schema, registry)


class CheckedJsonDeserializer(ParsesWithinBounds, JSONDeserializer):
    """confluent-kafka's deserializer, which checks in bounded time."""

    def _checked(self, parsed: Any) -> Any:
        return _shallow(parsed)

    def _get_validator(self, schema: Any, parsed_schema: Any, registry: Any) -> BoundedValidator:
        return _validator(self, schema, parsed_schema, registry)


def _shallow(parsed: Any) -> Any:
    check_depth(parsed[0])
    return parsed


def _validator(serde: Any, schema: Any, parsed: Any, registry: Any) -> BoundedValidator:
    with serde._validators_lock:
        found: BoundedValidator | None = serde._validators.get(schema)
    if found is None:
        found = within_bounds(lambda: BoundedValidator(parsed, registry))
        with serde._validators_lock:
            serde._validators[schema] = found
    return found


class BoundedValidator:
    """Judges values by one schema.

    :param schema: the schema, parsed.
    :param registry: the schemas that it refers to.
    :raises BrokenSchemaError: it is not valid, or has what cannot be bounded.

    >>> BoundedValidator({"pattern": "^(a+)+$"}, referencing.Registry()).validate("a" * 100)
    """

    def __init__(self, schema: Any, registry: Any) -> None:
        plain = validator_for(schema)
        rules = validator_for(plain.META_SCHEMA, default=plain)
        check = _bounded(rules)(plain.META_SCHEMA, format_checker=rules.FORMAT_CHECKER)
        _validate(check, schema)
        self._validator = _bounded(plain)(schema, registry=registry)
        _look(self._validator, schema)

    def validate(self, value: Any) -> None:
        """Judge a value.

        :raises ValidationError: it does not fit.
        :raises BrokenSchemaError: the check takes more steps than any sound schema needs.
        """
        _validate(self._validator, value)


def _validate(validator: Any, value: Any) -> None:
    _counted.left = MAX_STEPS
    validator.validate(value)


@functools.cache
def _bounded(plain: Any) -> Any:
    """Return jsonschema's class for a dialect with bounded keywords."""
    replaced = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    keywords = {name: _count(replaced.get(name, keyword)) for name, keyword in plain.VALIDATORS.items()}
    bounded: Any = extend(plain, keywords)

    def evolve(self: Any, **changes: Any) -> Any:
        # jsonschema's own takes its plain class where a schema inside names its dialect.
        kind = _bounded(validator_for(changes.setdefault("schema", self.schema), default=plain))
        for field in attrs.fields(type(self)):
            if field.init:
                changes.setdefault(field.alias, getattr(self, field.name))
        return kind(**changes)

    bounded.evolve = evolve
    return bounded


Keyword = Callable[[Any, Any, Any, Any], Any]


def _count(keyword: Keyword) -> Keyword:
    def counted(validator: Any, wanted: Any, instance: Any, schema: Any) -> Any:
        _counted.left -= 1
        if _counted.left < 0:
            raise BrokenSchemaError(
                f"it takes more than {MAX_STEPS:,} steps to check one value by it: its parts refer to each "
                "other too often"
            )
        return keyword(validator, wanted, instance, schema)

    return counted


@functools.lru_cache(maxsize=10_000)
def search_of(pattern: str) -> Callable[[str], bool]:
    """Return what looks for a pattern in a text, in linear time.

    >>> search_of("^U[A-Z]$")("UA"), search_of("^U[A-Z]$")("UAL")
    (True, False)

    :raises BrokenSchemaError: RE2 does not take the pattern, or would take it for another one.
    """
    if len(pattern) > MAX_PATTERN:
        raise BrokenSchemaError(f"it has a pattern of more than {MAX_PATTERN:,} characters")
    if _OTHER_MEANING.search(pattern):
        raise BrokenSchemaError(f"its pattern {pattern!r:.200} means another thing to each engine")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled: Any = re2.compile(_CODE_POINT.sub(r"\\x{\1}", pattern), options)
    except (re2.error, UnicodeEncodeError) as error:
        said = error.args[0] if error.args else ""
        reason = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise BrokenSchemaError(
            f"its pattern {pattern!r:.200} cannot be matched in linear time ({reason}); without "
            "look-around and back references, `not` and `allOf` say the same"
        ) from None
    if compiled.programsize > MAX_INSTRUCTIONS:
        raise BrokenSchemaError(f"its pattern {pattern!r:.200} repeats too much; `maxLength` bounds a text")
    return lambda text: compiled.search(text) is not None


def _pattern(validator: Any, pattern: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not search_of(pattern)(instance):
        yield ValidationError("a text does not match the pattern")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, schema in patterns.items():
        matches = search_of(pattern)
        for name, value in instance.items():
            if matches(name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    known = schema.get("properties", {})
    patterns = [search_of(pattern) for pattern in schema.get("patternProperties", {})]
    extra = [name for name in instance if name not in known and not any(find(name) for find in patterns)]
    if validator.is_type(allowed, "object"):
        for name in extra:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extra:
        yield ValidationError("there are additional properties")


def _unique_items(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if not (wanted and validator.is_type(instance, "array")):
        return
    if len(set(map(_by_content, instance))) < len(instance):
        yield ValidationError("there are equal items")


def _by_content(value: Any) -> Any:
    """Return what is equal for equal values of JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, bool):
        return bool, value
    if isinstance(value, dict):
        return dict, frozenset((name, _by_content(inner)) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return list, tuple(map(_by_content, value))
    return value


def _look(validator: Any, schema: Any) -> None:
    """Look through a schema for what cannot be bounded when values are checked.

    :raises BrokenSchemaError: it has something of the kind.
    """
    # An address of its own is asked for when a value needs it.
    registry = attrs.evolve(validator._registry, retrieve=_not_here)
    start = validator.evolve(schema=schema, registry=registry, _resolver=None)
    same_value: dict[int, list[int]] = {}
    kept: list[Any] = []  # ids are those of living objects
    open_: list[tuple[Any, Any]] = [(schema, start._resolver)]
    while open_:
        node, resolver = open_.pop()
        if not isinstance(node, dict) or id(node) in same_value:
            continue
        kept.append(node)
        kind = validator_for(node, default=type(validator))
        dialect = referencing.jsonschema.specification_with(
            str(kind.META_SCHEMA.get("$schema", "")), default=referencing.jsonschema.DRAFT202012
        )
        resolver = resolver.in_subresource(dialect.create_resource(node))
        if isinstance(node.get("pattern"), str):
            search_of(node["pattern"])
        patterns = node.get("patternProperties")
        for pattern in patterns if isinstance(patterns, dict) else ():
            search_of(pattern)
        if patterns and "unevaluatedProperties" in node:
            raise BrokenSchemaError(
                "it has unevaluatedProperties beside patternProperties; additionalProperties says the same"
            )
        same_value[id(node)] = []
        for keyword, inner, where in _inside(node, resolver):
            if keyword in _SAME_VALUE and isinstance(inner, dict):
                same_value[id(node)].append(id(inner))
            open_.append((inner, where))
    if _has_loop(same_value):
        raise BrokenSchemaError("its references lead back to where they come from, without an end")


def _inside(node: dict[str, Any], resolver: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the schemas that one holds or refers to, with keyword and resolver."""
    for keyword in _REFERENCES:
        if isinstance(node.get(keyword), str):
            try:
                found = resolver.lookup(node[keyword])
            except Unresolvable:
                continue  # an error when a value needs it
            yield keyword, found.contents, found.resolver
    for keyword, held in node.items():
        if keyword in _BY_NAME and isinstance(held, dict):
            yield from ((keyword, inner, resolver) for inner in held.values())
        elif keyword in _SCHEMAS:
            for inner in held if isinstance(held, list) else [held]:
                yield keyword, inner, resolver


def _not_here(uri: str) -> Any:
    raise referencing.exceptions.NoSuchResource(uri)


def _has_loop(edges: dict[int, list[int]]) -> bool:
    """Return True if a graph has a loop: nodes without an edge out are taken away, again and again, and some
    are left.
    """
    into: dict[int, list[int]] = {}
    count = {node: len(targets) for node, targets in edges.items()}
    for node, targets in edges.items():
        for target in targets:
            into.setdefault(target, []).append(node)
    free = [node for node, number in count.items() if number == 0]
    taken = 0
    while free:
        taken += 1
        for before in into.get(free.pop(), ()):
            count[before] -= 1
            if count[before] == 0:
                free.append(before)
    return taken < len(edges)
