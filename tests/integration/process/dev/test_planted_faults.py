"""Each fault of the register of promises is planted, and its test must fail on it; without it, it passes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dev.promise_register.faults import Copy, Outcome, Verdict
from dev.promise_register.register import Fault, all_faults, load

FAULTS = all_faults(load())
_TEST = "test_hash_is_kafkas_when_the_data_is_of_its_own_tests"


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy of the checkout."""
    return Copy(tmp_path_factory.mktemp("promises"))


@pytest.mark.prove
@pytest.mark.timeout(3_600)
def test_tests_of_all_faults_pass_when_none_is_planted(copy: Copy) -> None:
    failing = copy.failing(FAULTS.values())
    assert not failing, failing


@pytest.mark.prove
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found_when_it_is_planted(copy: Copy, name: str, tell: Callable[[str], None]) -> None:
    fault = FAULTS[name]
    outcome = copy.outcome(fault)
    assert outcome.verdict is Verdict.FOUND, f"{fault.title}: {outcome.verdict}: {outcome.text}"
    tell(f"{fault.title}: {outcome.text[:150]}")


def _outcome(copy: Copy, becomes: str) -> Outcome:
    return copy.outcome(
        Fault(
            what="a mistake",
            where="murmur2",
            code="_SEED ^ length",
            becomes=becomes,
            dies=_TEST,
            promise="same-as-kafka-streams",
        )
    )


def test_verdict_says_what_became_of_a_fault(copy: Copy) -> None:
    """A wrong number is found, the same one is not, and a name that is not there is a slip of the pen.

    Each finds the module as it was, or the code that it replaces would not be there.
    """
    found = _outcome(copy, "_SEED ^ length + 1")
    assert found.verdict is Verdict.FOUND
    assert found.text.startswith("test_hash_is_kafkas")
    assert _outcome(copy, "length ^ _SEED").verdict is Verdict.SURVIVED
    slip = _outcome(copy, "SEED ^ length")
    assert slip.verdict is Verdict.BROKEN
    assert "NameError" in slip.text
