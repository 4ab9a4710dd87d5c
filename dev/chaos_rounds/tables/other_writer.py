"""Another writer of the tables: appends one row to a table, by the library of its format.

::

    python -m dev.chaos_rounds.tables.other_writer FORMAT NAME MARK SETTINGS

``MARK`` stands in the row, ``SETTINGS`` is what a connection says, as JSON, with ``root`` for Delta tables.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow

from dev.chaos_rounds.tables.names import NAMESPACE

_VALUES = {"id": -1, "number": 0, "cents": 0, "_partition": None, "_offset": None}


def main(kind: str, name: str, mark: str, said: str) -> None:
    """Append the row."""
    settings: dict[str, str] = json.loads(said)
    of_format = {key.partition(".")[2]: text for key, text in settings.items() if key.startswith(kind)}
    if kind == "iceberg":
        table = load_catalog("default", **of_format).load_table(f"{NAMESPACE}.{name}")
        table.append(_row(schema_to_pyarrow(table.schema()), mark))
    else:
        found = DeltaTable(f"{settings['root']}/{name}", storage_options=of_format)
        write_deltalake(found, _row(pa.schema(found.schema().to_arrow()), mark), mode="append")


def _row(schema: pa.Schema, mark: str) -> pa.Table:
    arrays = [pa.array([_VALUES.get(column.name, mark)], column.type) for column in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


if __name__ == "__main__":
    main(*sys.argv[1:])
