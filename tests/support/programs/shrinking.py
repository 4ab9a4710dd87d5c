"""Makes a failing program small: fewer records, fewer steps, as long as it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from tests.support.programs.facts import REKEYING
from tests.support.programs.program import Program, Ref, Step


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Return a program that fails and that no single removal makes smaller.

    :param fails: says whether one fails; it may raise what cannot be built.
    """
    going = True
    while going:
        going = False
        for smaller in _smaller(program):
            if _still(smaller, fails):
                program, going = smaller, True
                break
    return program


def _still(program: Program, fails: Callable[[Program], bool]) -> bool:
    try:
        return fails(program)
    except Exception:
        # What a removal made invalid is no smaller failure.
        return False


def _smaller(program: Program) -> Iterator[Program]:
    yield from _without_steps(program)
    yield from _without_records(program)


def _without_records(program: Program) -> Iterator[Program]:
    records = program.records
    length = len(records) // 2
    while length:
        for start in range(0, len(records), length):
            yield msgspec.structs.replace(program, records=records[:start] + records[start + length :])
        length //= 2


def _without_steps(program: Program) -> Iterator[Program]:
    for number in reversed(range(len(program.steps))):
        if not any(parent == number for step in program.steps for parent, _ in step.of):
            yield _without(program, number, None)
    types = _types(program.steps)
    for number, step in enumerate(program.steps):
        for parent in step.of:
            # Where a handler takes what fails, a serde that does not fit would be one more failure.
            if types[number] == types[parent[0]]:
                yield _without(program, number, parent)


def _types(steps: Sequence[Step]) -> list[tuple[str, str]]:
    """Return what keys and values of each step's results are, as serdes are named."""
    types: list[tuple[str, str]] = []
    for step in steps:
        parent = types[step.of[0][0]] if step.of else ("text", "text")
        types.append((_key_of(step, parent[0]), _value_of(step, parent[1])))
    return types


def _key_of(step: Step, key: str) -> str:
    window = step.arguments.get("window") or step.arguments
    if step.operator == "session_window" or window.get("kind") == "session":
        return "sessions"
    if "_window" in step.operator or "kind" in window:
        return f"windows:{window['size']}"
    rekeyed = step.operator in REKEYING or step.arguments.get("call") in REKEYING
    return "text" if rekeyed else key


def _value_of(step: Step, value: str) -> str:
    if step.operator == "count":
        return "number"
    found = step.arguments.get("gives") or step.arguments.get("value") or value
    gives: str = found["gives"] if isinstance(found, dict) else found
    return gives


def _without(program: Program, removed: int, instead: Ref | None) -> Program:
    """Remove a step; what took it takes another one."""

    def moved(ref: Ref) -> Ref:
        number, branch = instead if ref[0] == removed and instead is not None else ref
        return number - (number > removed), branch

    steps = tuple(
        Step(operator=step.operator, of=tuple(map(moved, step.of)), arguments=step.arguments)
        for number, step in enumerate(program.steps)
        if number != removed
    )
    read = {topic for step in steps for topic in step.reads()}
    records = tuple(record for record in program.records if record[0] in read)
    return msgspec.structs.replace(program, steps=steps, records=records)
