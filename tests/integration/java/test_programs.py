"""Generated programs in both engines: equal results, in order.

How programs are drawn, and what no program asks because the engines may differ there, stands in
``tests/support/programs/drawing.py``; what of the results is compared, in ``comparing.py``.

A program that fails is made small and written to ``programs/`` beside this file, where it is run from then
on.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.integration.java.cases import results_of
from tests.integration.java.peer import KafkaStreamsPeer
from tests.support.programs.comparing import differences, in_python
from tests.support.programs.drawing import draw_program
from tests.support.programs.facts import agrees
from tests.support.programs.features import deep_in
from tests.support.programs.operators import DEEP, SOUGHT
from tests.support.programs.program import Program, kept
from tests.support.programs.shrinking import shrunk

pytestmark = pytest.mark.promise("same-as-kafka-streams")

_FOLDER = Path(__file__).parent / "programs"
_IN_TEST = 100
_IN_PROOF = 2_000
#: How often each operator occurs at depth 3 or more, at least.
_DEEP_IN_PROOF = 100


@pytest.fixture(autouse=True)
def without_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """Leave out what the engine says of records that fail on purpose, thousands of lines."""
    caplog.set_level(logging.ERROR, "airflow_kstreams")


def _difference(program: Program, kafka_streams: KafkaStreamsPeer) -> str:
    """Return where results differ, nothing if they do not."""
    java = results_of(kafka_streams.run_program(program))
    for topic, theirs, ours in differences(program, java, in_python(program)):
        return f"{topic}:\njava   {theirs}\npython {ours}"
    return ""


def _compare(seeds: Iterable[int], kafka_streams: KafkaStreamsPeer) -> Counter[str]:
    """Compare programs, and return in how many each operator occurs at depth 3 or more."""
    occurred: Counter[str] = Counter()
    for seed in seeds:
        program = draw_program(seed, SOUGHT[seed % len(SOUGHT)])
        if _difference(program, kafka_streams):
            small = shrunk(program, lambda one: agrees(one) and bool(_difference(one, kafka_streams)))
            _FOLDER.mkdir(exist_ok=True)
            path = _FOLDER / f"seed-{seed}.json"
            path.write_text(small.to_json())
            difference = _difference(small, kafka_streams)
            pytest.fail(f"the program of seed {seed} differs, see {path}:\n{small.to_json()}{difference}")
        occurred.update(deep_in(program))
    return occurred


def _print_table(occurred: Counter[str], programs: int, tell: Callable[[str], None]) -> None:
    lines = [f"  {name:36} {occurred[name]:6,}" for name in DEEP]
    tell("\n".join([f"programs of {programs:,} with the operator at depth 3 or more", *lines]))


def test_results_are_those_of_kafka_streams_when_programs_once_differed(
    kafka_streams: KafkaStreamsPeer,
) -> None:
    for name, program in kept(_FOLDER).items():
        assert not _difference(program, kafka_streams), name


def test_results_are_those_of_kafka_streams_when_programs_are_drawn(
    kafka_streams: KafkaStreamsPeer, tell: Callable[[str], None]
) -> None:
    occurred = _compare(range(_IN_TEST), kafka_streams)
    _print_table(occurred, _IN_TEST, tell)
    assert {*DEEP} <= {*occurred}


@pytest.mark.prove
@pytest.mark.timeout(1_800)
def test_results_are_those_of_kafka_streams_when_many_programs_are_drawn(
    kafka_streams: KafkaStreamsPeer, tell: Callable[[str], None]
) -> None:
    # Fresh ones each time; one that differs is written down whole, so no seed has to be kept.
    first = secrets.randbelow(2**40)
    occurred = _compare(range(first, first + _IN_PROOF), kafka_streams)
    _print_table(occurred, _IN_PROOF, tell)
    assert not [name for name in DEEP if occurred[name] < _DEEP_IN_PROOF]
