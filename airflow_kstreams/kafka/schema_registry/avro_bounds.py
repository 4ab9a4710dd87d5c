"""Bounds what a schema of Avro, or bytes that were written with one, can make its readers do.

- An item that takes no bytes, e.g. null, costs its writer nothing: five bytes say that four billion of them
  follow. Before a record of a schema with such arrays is read, their items are counted here.
- The client writes out each named type wherever it is used. A chain of records that each use the next one
  twice makes that exponential; such a schema is refused.
- fastavro reads a value inside a value by a call in C, without a limit. A schema that holds itself lets a
  record of some thousand bytes end the process. Before such a record is read, its levels are counted here.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from fastavro.io.binary_decoder import BinaryDecoder

from airflow_kstreams.kafka.schema_registry.schema_bounds import MAX_STEPS, BrokenSchemaError
from airflow_kstreams.streams.hints.hidden_values import UnfitValueError

#: Items without bytes in one value.
MAX_EMPTY_ITEMS = 1_000_000
_DECODER: Any = BinaryDecoder
_RECORDS = ("record", "error")
_NAMED = (*_RECORDS, "enum", "fixed")


def check_avro(schema: Any) -> None:
    """Refuse a parsed schema that explodes.

    :raises BrokenSchemaError: it does.
    """
    named = _named(schema)
    left = MAX_STEPS

    def expand(node: Any, above: frozenset[str]) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise BrokenSchemaError(f"its named types stand for more than {MAX_STEPS:,} others")
        node = named.get(node, node) if isinstance(node, str) else node
        if isinstance(node, dict):
            name = str(node["name"]) if node["type"] in _NAMED else ""
            if name in above:
                return
            above |= {name} if name else set()
        for inner in _inner(node):
            expand(inner, above)

    expand(schema, frozenset())


class BoundsOfBytes:
    """Looks over the bytes of a value before it is read, where its schema sets it no bounds.

    :param schema: the writer's, parsed.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._named = _named(schema)
        self._empty = _empty_items(schema, self._named)
        #: Whether bytes decide how deep a value is, or hold more items than there are bytes.
        self.needed = bool(self._empty) or any(_holds(name, self._named) for name in self._named)
        self._left = 0

    def check(self, data: bytes) -> None:
        """Refuse bytes whose values lie deeper than Python's limit of calls, or are billions.

        :raises UnfitValueError: they do.
        """
        self._left = MAX_EMPTY_ITEMS
        try:
            self._pass(self._schema, _DECODER(io.BytesIO(data)))
        except UnfitValueError:
            raise
        except RecursionError:
            raise UnfitValueError("its values are nested too deep to be read") from None
        except Exception:  # the reader meets the same, and says what it is
            return

    def _pass(self, node: Any, decoder: Any) -> None:
        """Pass a value by one call in Python for each level."""
        while True:  # until it is a type of its own
            if isinstance(node, str) and node in self._named:
                node = self._named[node]
            elif isinstance(node, list):
                node = node[decoder.read_long()]
            elif isinstance(node, dict) and isinstance(node["type"], dict | list):
                node = node["type"]
            else:
                break
        kind = node["type"] if isinstance(node, dict) else node
        if kind in _RECORDS:
            for field in node["fields"]:
                self._pass(field["type"], decoder)
        elif kind in ("array", "map"):
            inner = node["items" if kind == "array" else "values"]
            for _ in self._items(node, decoder):
                if kind == "map":
                    decoder.read_bytes()
                self._pass(inner, decoder)
        elif kind == "fixed":
            decoder.read_fixed(node["size"])
        else:
            getattr(decoder, "read_bytes" if kind == "string" else f"read_{kind}")()

    def _items(self, node: Any, decoder: Any) -> Iterator[int]:
        """Yield once for each item of an array or a map that takes bytes."""
        while count := decoder.read_long():
            if count < 0:
                decoder.read_long()
            if id(node) in self._empty:
                self._left -= abs(count)
                if self._left < 0:
                    raise UnfitValueError(f"it holds more than {MAX_EMPTY_ITEMS:,} items without bytes")
            else:
                yield from range(abs(count))


def _empty_items(schema: Any, named: dict[str, Any]) -> set[int]:
    """Return the ids of the arrays whose items take no bytes."""
    found: set[int] = set()
    open_ = [schema]
    while open_:
        node = open_.pop()
        if isinstance(node, dict) and node["type"] == "array":
            found |= {id(node)} if _takes_no_bytes(node["items"], named, frozenset()) else set()
        open_ += _inner(node)
    return found


def _takes_no_bytes(node: Any, named: dict[str, Any], above: frozenset[str]) -> bool:
    node = named.get(node, node) if isinstance(node, str) else node
    if not isinstance(node, dict):
        return bool(node == "null")
    kind = node["type"]
    if kind == "fixed":
        return bool(node["size"] == 0)
    if kind in _RECORDS:
        name = str(node["name"])
        if name in above:  # a record that always holds itself has no values
            return True
        return all(_takes_no_bytes(field["type"], named, above | {name}) for field in node["fields"])
    return _takes_no_bytes(kind, named, above) if isinstance(kind, dict) or kind == "null" else False


def _holds(name: str, named: dict[str, Any]) -> bool:
    """Return True if a named type is inside itself."""
    seen: set[str] = set()
    open_ = _inner(named[name])
    while open_:
        node = open_.pop()
        if isinstance(node, dict) and node["type"] in _NAMED:
            node = str(node["name"])
        if isinstance(node, str) and node in named:
            if node == name:
                return True
            if node in seen:
                continue
            seen.add(node)
            node = named[node]
        open_ += _inner(node)
    return False


def _named(schema: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    open_ = [schema]
    while open_:
        node = open_.pop()
        if isinstance(node, dict) and node["type"] in _NAMED:
            found[node["name"]] = node
        open_ += _inner(node)
    return found


def _inner(node: Any) -> list[Any]:
    """Return the schemas that stand in one."""
    if isinstance(node, list):
        return list(node)
    if not isinstance(node, dict):
        return []
    fields = [field["type"] for field in node.get("fields", ())]
    return fields + [
        node[name]
        for name in ("items", "values", "type")
        if isinstance(node.get(name), dict | list) or (name != "type" and name in node)
    ]
