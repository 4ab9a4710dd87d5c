"""The verifier of the rounds with tables: a program of its own that reads tables and topics.

It knows the input, what the application means, KIP-95's records, and what the documentation says of
snapshots; it imports nothing of the engine, and no library of a table format. Its output is that of
:mod:`dev.chaos_rounds.verifier`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from dev.chaos_rounds.tables.checks import table_verdict
from dev.chaos_rounds.tables.lake import Lake
from dev.chaos_rounds.tables.names import TABLE_FILES
from dev.chaos_rounds.verifier import gather, parser, report


def main(arguments: Sequence[str]) -> int:
    """Verify, print the verdict, and return the exit code."""
    asked = parser(__doc__)
    asked.add_argument("--lake", required=True, help="where tables are, as JSON")
    options = asked.parse_args(arguments)
    evidence = gather(options.bootstrap, Path(options.transcript), options.finished, between=(TABLE_FILES,))
    return report(evidence, table_verdict(evidence, Lake(json.loads(options.lake)).tables()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
