"""Compares fetched jars with the SHA-256 sums of ``dev/lib/jars.sha256``, for ``dev/setup``.

The file has a line for every jar of every folder below ``.kafka``, in the form of ``sha256sum``. A folder
passes if it holds exactly these jars: one that differs, one more and one less are refused by name.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

SUMS = Path(__file__).parents[1] / "lib" / "jars.sha256"


def main(arguments: list[str]) -> int:
    """Check or write the sums of one folder; the exit code is 1 if a jar is refused."""
    parser = argparse.ArgumentParser(prog="python -m dev.commands.jar_checksums", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of jars; .partial at its name's end does not count")
    parser.add_argument("--write", action="store_true", help="write the folder's lines of the file anew")
    options = parser.parse_args(arguments)
    if options.write:
        write(options.folder)
        return 0
    refused = list(refusals(options.folder))
    if refused:
        print("\n       ".join(["error: fetched jars are not the expected ones", *refused]), file=sys.stderr)
        print(f"What to do: {_cure(options.folder)}", file=sys.stderr)
    return bool(refused)


def refusals(folder: Path, sums: Path = SUMS) -> Iterator[str]:
    """Yield what is wrong with a folder's jars, each with its name; nothing if all is right."""
    expected = {
        name: digest
        for digest, _, name in (line.partition("  ") for line in sums.read_text().splitlines())
        if name.startswith(f"{_name(folder)}/")
    }
    found = _digests(folder)
    for name in sorted(expected | found):
        match expected.get(name), found.get(name):
            case None, digest:
                yield f"{name}: not listed in {sums.name}, its SHA-256 is {digest}"
            case digest, None:
                yield f"{name}: not fetched"
            case wanted, digest if wanted != digest:
                yield f"{name}: its SHA-256 is {digest}, {sums.name} says {wanted}"


def write(folder: Path, sums: Path = SUMS) -> None:
    """Replace the lines of one folder."""
    lines = [
        line
        for line in sums.read_text().splitlines()
        if not line.partition("  ")[2].startswith(f"{_name(folder)}/")
    ]
    lines += [f"{digest}  {name}" for name, digest in _digests(folder).items()]
    sums.write_text("".join(f"{line}\n" for line in sorted(lines, key=lambda line: line.partition("  ")[2])))


def _digests(folder: Path) -> dict[str, str]:
    return {
        f"{_name(folder)}/{jar.name}": hashlib.sha256(jar.read_bytes()).hexdigest()
        for jar in folder.iterdir()
    }


def _name(folder: Path) -> str:
    return folder.name.removesuffix(".partial")


def _cure(folder: Path) -> str:
    return (
        "run dev/setup again, which fetches them anew. If it says the same, do not use them: the repository, "
        "or a proxy before it, serves other files; take another one. If a version was raised on purpose, "
        "compare the jars with what their projects publish, then run "
        f"python -m dev.commands.jar_checksums --write {folder}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
