"""``dev/reference``: writes the API reference, or checks that the committed one is what would be written."""

from __future__ import annotations

import argparse
import sys

from dev.reference_pages.pages import FOLDER, Reference, differences, write
from dev.reference_pages.public_api import ROOT, load_package


def main() -> int:
    """Write or check; return the exit code."""
    parser = argparse.ArgumentParser(prog="dev/reference", description="The API reference, from docstrings.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 when a page is not up to date"
    )
    options = parser.parse_args()
    pages = Reference(load_package()).pages()
    stale = differences(pages)
    folder = FOLDER.relative_to(ROOT)
    for page in stale:
        print(f"{folder}/{page}")
    if options.check:
        print("stale: run dev/reference" if stale else f"{len(pages)} pages are up to date")
        return 1 if stale else 0
    write(pages)
    print(f"{len(stale)} of {len(pages)} pages changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
