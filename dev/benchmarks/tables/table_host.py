"""A process without Spark that does what it is asked with tables; one request, one answer a line, both JSON.

usage: python -m dev.benchmarks.tables.table_host FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dev.benchmarks.tables import many_files, one_task
from dev.benchmarks.tables.long_history import Histories

Request = Mapping[str, Any]
Answer = Mapping[str, float]


def main() -> int:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no answer
    does = doings(Path(sys.argv[1]))
    _answer(answers, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        _answer(answers, does[request["system"]](request))
    return 0


def _answer(answers: Any, answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def doings(folder: Path) -> Mapping[str, Callable[[Request], Answer]]:
    """Return what the process can do, by what a request names as its system.

    :param folder: for what it writes by itself.
    """
    histories = Histories(folder)
    return {
        "write-files": lambda request: many_files.write(_files(request)),
        "finish": lambda request: many_files.finish(_files(request)),
        "bare-commit": lambda request: many_files.commit_bare(_files(request)),
        "task": lambda request: one_task.run(msgspec.convert(request, one_task.Work)),
        "commit": lambda request: histories.commit(request["snapshots"], expiring=request["expiring"]),
        "deltalake-merge": _merging(),
    }


def _files(request: Request) -> many_files.Work:
    return msgspec.convert(request, many_files.Work)


def _merging() -> Callable[[Request], Answer]:
    """Return what merges; only a process that does so imports deltalake, for the memory of others counts."""
    made: list[Callable[[Request], Answer]] = []

    def merge(request: Request) -> Answer:
        if not made:
            from dev.benchmarks.tables.delta_merge import Merges

            made.append(Merges().merge)
        return made[0](request)

    return merge


if __name__ == "__main__":
    sys.exit(main())
