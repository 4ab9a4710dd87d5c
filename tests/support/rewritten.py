"""A pytest plugin: lanes rewrite the assertions of tests once among them, not once each.

pytest rewrites a file of tests before it imports it, and keeps the result under ``__pycache__``: half of what
a collection takes. Lanes collect the same files in the same order at the same time, so none would find what
another has kept. So each lane rewrites a share of the files before it collects all of them; by then the other
shares are there, or nearly. pytest takes what it finds only if it was made from the same source.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Rewrite this lane's share of what it is about to collect."""
    lane = getattr(config, "workerinput", None)
    if lane is None:
        return
    number, lanes = int(lane["workerid"].removeprefix("gw")), lane["workercount"]
    for file in _files(config.args)[number % lanes :: lanes]:
        # Whatever is wrong with a file is said when it is collected.
        with suppress(SyntaxError, OSError):
            _keep_rewritten(file, config)


def _files(collected: Iterable[str]) -> list[Path]:
    """Return the files of tests that stand in these folders; what is collected alone is quickly rewritten."""
    folders = {Path(argument) for argument in collected if Path(argument).is_dir()}
    return sorted({file for folder in folders for file in folder.resolve().rglob("test_*.py")})


def _keep_rewritten(file: Path, config: pytest.Config) -> None:
    folder = rewrite.get_cache_dir(file)
    kept = folder / f"{file.stem}{rewrite.PYC_TAIL}"
    if rewrite.try_makedirs(folder) and rewrite._read_pyc(file, kept) is None:
        source_hash, code = rewrite._rewrite_test(file, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, kept)
