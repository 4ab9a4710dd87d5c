"""Fetches jars, and writes the SHA-256 sums that they must have, for ``dev/setup``.

The sums of the broker's jars stand in the package, which fetches them for users, too; those of the others in
``dev/lib/jars.sha256``.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.resources import files
from pathlib import Path

from airflow_kstreams.first_steps import broker
from airflow_kstreams.first_steps.broker.jar_sums import digests, listed_name
from airflow_kstreams.first_steps.broker.kafka_jars import VERSION, fetch, working_java
from airflow_kstreams.streams.errors import KStreamsError

SUMS = Path(__file__).parents[1] / "lib" / "jars.sha256"
BROKER_SUMS = Path(str(files(broker))) / "jars.sha256"


def main(arguments: list[str]) -> int:
    """Fetch the jars of one folder, or write their sums; the exit code is 1 if a jar is refused."""
    parser = argparse.ArgumentParser(prog="python -m dev.commands.jar_checksums", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of jars; .partial at its name's end does not count")
    doing = parser.add_mutually_exclusive_group(required=True)
    doing.add_argument("--fetch", type=Path, metavar="IVY_FILE", help="fetch the jars that the file names")
    doing.add_argument("--write", action="store_true", help="write the folder's lines of the sums anew")
    options = parser.parse_args(arguments)
    folder, sums = options.folder, sums_of(options.folder)
    if options.write:
        write(folder, sums)
        return 0
    try:
        fetch(options.fetch, folder, sums, java=working_java(os.environ), environment=os.environ)
    except KStreamsError as error:
        print(f"error: {error}", file=sys.stderr)
        print(
            "If a version was raised on purpose, compare the jars with what their projects publish, then run "
            f"python -m dev.commands.jar_checksums --write {folder} on a folder that holds them",
            file=sys.stderr,
        )
        return 1
    return 0


def sums_of(folder: Path) -> Path:
    """Return the file that holds the sums of a folder's jars."""
    return BROKER_SUMS if listed_name(folder) == f"libs-{VERSION}" else SUMS


def write(folder: Path, sums: Path) -> None:
    """Replace the lines of one folder."""
    lines = [
        line
        for line in sums.read_text().splitlines()
        if not line.partition("  ")[2].startswith(f"{listed_name(folder)}/")
    ]
    lines += [f"{digest}  {name}" for name, digest in digests(folder).items()]
    sums.write_text("".join(f"{line}\n" for line in sorted(lines, key=lambda line: line.partition("  ")[2])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
