"""The REST catalogue of the rounds: a program of its own, so that it can be killed and started again.

What it knows stands in a SQLite file; it ends when its standard input does. It answers each line of its
standard input with ``up``.
"""

from __future__ import annotations

import json
import sys

from pyiceberg.catalog.sql import SqlCatalog

from tests.support.tables.rest_catalog import rest_catalog


def main(port: str, properties: str) -> None:
    """Serve until standard input ends.

    :param properties: of the SQL catalogue, as JSON.
    """
    catalog = SqlCatalog("default", **json.loads(properties))
    with rest_catalog(catalog, port=int(port)):
        for _ in sys.stdin:
            sys.stdout.write("up\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
