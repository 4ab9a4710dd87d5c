"""Writes the schema of each JSON document that a command prints, from the type that it is encoded from."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from airflow_kstreams.cli.documents.by_command import DOCUMENTS

#: Folder of the schemas, below that of the pages.
SCHEMAS = "json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ERROR = "error"
_FIELD = re.compile(r"^:param (?P<name>\w+): (?P<text>.+?)(?=^:|\Z)", re.MULTILINE | re.DOTALL)


def schema_file(command: str) -> str:
    """Return the file of a command's schema, below the folder of the pages.

    :param command: words of the command, ``dead-letters list``.
    """
    return f"{SCHEMAS}/{command.replace(' ', '-')}.json"


def json_schemas() -> dict[str, str]:
    """Return the text of each schema by its file."""
    return {schema_file(command): _schema(command, kind) for command, kind in DOCUMENTS.items()}


def _schema(command: str, kind: Any) -> str:
    schema = msgspec.json.schema(kind)
    described = {each.__name__: each for each in _types_in(kind, set())}
    for name, definition in schema.get("$defs", {}).items():
        if name in described:
            _describe(definition, inspect.getdoc(described[name]) or "")
    title = "an error, on stderr" if command == _ERROR else f"airflow-kstreams {command} --json"
    text = json.dumps({"$schema": _DIALECT, "title": title, **schema}, indent=2)
    return f"{text}\n"


def _types_in(kind: Any, seen: set[Any]) -> Iterator[Any]:
    """Yield each struct and dataclass that a type consists of."""
    infos = [msgspec.inspect.type_info(kind)]
    while infos:
        info = infos.pop()
        match info:
            case msgspec.inspect.StructType() | msgspec.inspect.DataclassType():
                if info.cls not in seen:
                    seen.add(info.cls)
                    yield info.cls
                    infos += [field.type for field in info.fields]
            case msgspec.inspect.UnionType():
                infos += info.types
            case msgspec.inspect.DictType():
                infos += [info.key_type, info.value_type]
            case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
                infos.append(info.item_type)
            case msgspec.inspect.TupleType():
                infos += info.item_types
            case _:
                pass


def _describe(definition: dict[str, Any], docstring: str) -> None:
    """Say in a definition what the docstring says of the type and of its fields."""
    text, _, _ = docstring.partition("\n\n:")
    definition["description"] = " ".join(text.split())
    fields: Mapping[str, Any] = definition.get("properties", {})
    for match in _FIELD.finditer(docstring):
        if match["name"] in fields:
            fields[match["name"]]["description"] = " ".join(match["text"].split())
