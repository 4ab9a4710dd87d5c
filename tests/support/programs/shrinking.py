"""Makes a failing program small: fewer records, fewer steps, as long as it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

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
    for number, step in enumerate(program.steps):
        for parent in step.of:
            yield _without(program, number, parent)


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
