"""Makes one trace of what the processes of a run have recorded, and keeps it: a line of JSON a call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

#: Imports that take less are left out.
_LEAST_IMPORT_MS = 1.0


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call.

    :param task: the Airflow task.
    :param process: the process, by what it is for.
    :param thread: the thread; empty for the main one.
    :param at_ms: when it began: milliseconds of ``execute`` before, those of earlier tasks included.
    :param for_ms: how long it took.
    :param depth: number of recorded calls that it is in.
    :param name: what was called.
    :param place: file and function of the package that called it; empty if there is none.
    """

    task: str
    process: str
    thread: str = ""
    at_ms: float
    for_ms: float
    depth: int = 0
    name: str
    place: str = ""

    @property
    def end_ms(self) -> float:
        """When it ended."""
        return self.at_ms + self.for_ms


def read(file: Path) -> list[Call]:
    """Read a trace that was kept."""
    lines = file.read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Call) for line in lines]


def write(file: Path, calls: Iterable[Call]) -> None:
    """Keep a trace."""
    file.write_bytes(b"".join(msgspec.json.encode(call) + b"\n" for call in calls))


def recorded_in(folder: Path) -> list[dict[str, Any]]:
    """Return what the recorders of all processes have written."""
    found: list[dict[str, Any]] = []
    for file in sorted(folder.glob("*.jsonl")):
        found += [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]
    return found


def joined(recorded: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> list[Call]:
    """Return the calls of a run in the order of time.

    What an Airflow task's process does before ``execute`` is left out, and so is the time between two tasks,
    which is Airflow's.

    :param recorded: records of the recorders.
    :param tasks: names of the Airflow tasks in order.
    """
    found: list[Call] = []
    passed_ns = 0
    for task in tasks:
        of_task = [each for each in recorded if each["task"] == task]
        (execute,) = [each for each in of_task if each["name"] == "execute"]
        within = [
            each
            for each in of_task
            if execute["begun_ns"] <= each["begun_ns"] and each["ended_ns"] <= execute["ended_ns"]
        ]
        names, depths = _processes(within), _depths(within)
        found += [
            Call(
                task=task,
                process=names[each["process"]],
                thread="" if each["thread"] == "MainThread" else each["thread"],
                at_ms=round((each["begun_ns"] - execute["begun_ns"] + passed_ns) / 1e6, 1),
                for_ms=round((each["ended_ns"] - each["begun_ns"]) / 1e6, 1),
                depth=depths[each["process"], each["number"]],
                name=each["name"],
                place=each["place"],
            )
            for each in within
        ]
        passed_ns += execute["ended_ns"] - execute["begun_ns"]
    kept = (call for call in found if call.name != "import" or call.for_ms >= _LEAST_IMPORT_MS)
    return sorted(kept, key=lambda call: (call.at_ms, call.depth))


def _processes(recorded: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Return a name for each process id: its role, with a number where several have it."""
    by_role: dict[str, list[int]] = defaultdict(list)
    for each in sorted(recorded, key=lambda each: each["begun_ns"]):
        if each["process"] not in by_role[each["role"]]:
            by_role[each["role"]].append(each["process"])
    return {
        process: role if len(processes) == 1 else f"{role} {number + 1}"
        for role, processes in by_role.items()
        for number, process in enumerate(processes)
    }


def _depths(recorded: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], int]:
    """Return how many calls each call is in, by process and number."""
    within = {(each["process"], each["number"]): (each["process"], each["within"]) for each in recorded}

    def depth(key: tuple[int, int]) -> int:
        around = within[key]
        return 0 if around not in within else depth(around) + 1

    return {key: depth(key) for key in within}
