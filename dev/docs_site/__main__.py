"""``dev/docs``: builds the site of this release below ``site/``, and says where it is."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from airflow_kstreams import __version__
from dev.docs_site.build import DOCS, SiteError, build, lead_to_releases


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="dev/docs", description="The documentation as a site.")
    parser.add_argument("--site", type=Path, default=DOCS.parent / "site", help="folder of all releases")
    parser.add_argument("--release", default=__version__, help="name of this one's folder")
    options = parser.parse_args()
    target = options.site / options.release
    try:
        build(target)
    except SiteError as error:
        print(error, file=sys.stderr)
        print("error: the pages make no site: mend what is named above", file=sys.stderr)
        return 1
    releases = lead_to_releases(options.site)
    print(f"{target / 'index.html'}\n{options.site / 'index.html'} leads to {', '.join(releases)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
