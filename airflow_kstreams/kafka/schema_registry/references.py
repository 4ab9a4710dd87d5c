"""Finds what the text of a schema refers to and does not define.

A schema that is given as text cannot name others: a registry keeps those references beside the text. Where
one is missing, a serializer of JSON Schema would register the text and fail at the first value.
"""

from __future__ import annotations

import json
from typing import Any


def missing_in_avro(text: str) -> str | None:
    """Return the first name in an Avro schema that it does not define and Avro does not know; None without
    one.

    :param text: a schema in JSON.
    :raises Exception: it is not valid otherwise.
    """
    from fastavro.schema import UnknownType, parse_schema

    try:
        parse_schema(json.loads(text))
    except UnknownType as unknown:
        return str(unknown.name)
    return None


def missing_in_json_schema(text: str) -> str | None:
    """Return the first reference in a JSON Schema to another that is not in it; None without one. What has an
    address of its own, the registry's client fetches.

    :param text: the schema.
    :raises Exception: it is not valid otherwise.
    """
    from referencing import Registry, Resource
    from referencing.exceptions import NoSuchResource, Unresolvable
    from referencing.jsonschema import DRAFT7, SchemaRegistry

    fetched: list[str] = []

    def retrieve(uri: str) -> Resource[Any]:
        if not uri.startswith(("http://", "https://")):
            raise NoSuchResource(uri)
        fetched.append(uri)
        return Resource.from_contents({}, default_specification=DRAFT7)

    def look(contents: Any, resolver: Any) -> str | None:
        if id(contents) in seen or not isinstance(contents, dict):
            return None
        seen.add(id(contents))
        resource = Resource.from_contents(contents, default_specification=DRAFT7)
        inner = [(part.contents, resolver.in_subresource(part)) for part in resource.subresources()]
        reference = contents.get("$ref")
        if isinstance(reference, str):
            fetched.clear()
            try:
                target = resolver.lookup(reference)
            except Unresolvable:
                return None if fetched else reference
            inner.append((target.contents, target.resolver))
        return next((found for each in inner if (found := look(*each)) is not None), None)

    seen: set[int] = set()
    parsed = json.loads(text)
    registry: SchemaRegistry = Registry(retrieve=retrieve)  # type: ignore[call-arg]
    root: Resource[Any] = Resource.from_contents(parsed, default_specification=DRAFT7)
    return look(parsed, registry.resolver_with_root(root))
