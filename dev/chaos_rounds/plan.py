"""What a seed makes of a round: which fault, when, and how hard. Nothing here touches a process."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeVar

F = TypeVar("F", bound=StrEnum)


class Fault(StrEnum):
    """The faults; each block of as many rounds as there are faults has each of them once."""

    WORKER_KILLED = "worker killed"
    EXECUTOR_KILLED = "executor killed"
    DRIVER_KILLED = "driver killed"
    DRIVER_JVM_KILLED = "driver's JVM killed"
    BROKER_KILLED = "broker killed"
    STOPPED = "stopped, retried, continued"
    SECOND_DRIVER = "second driver"
    END_DELAYED = "EndTxn delayed"
    END_DROPPED = "EndTxn dropped"
    ANSWER_DELAYED = "EndTxn's answer delayed"
    ANSWER_DROPPED = "EndTxn's answer dropped"
    ONE_SIDE_CUT = "one side cut"


#: Faults that need the proxy between the application and the broker.
PROXIED = frozenset(
    {Fault.END_DELAYED, Fault.END_DROPPED, Fault.ANSWER_DELAYED, Fault.ANSWER_DROPPED, Fault.ONE_SIDE_CUT}
)
#: Faults that need something at work in a task.
_AT_WORK = frozenset({Fault.WORKER_KILLED, Fault.EXECUTOR_KILLED, Fault.DRIVER_JVM_KILLED, Fault.STOPPED})

Resume = Literal["when taken over", "in the retry's work", "when finished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """One round, drawn from seed, number and draw alone.

    :param fault: of the rounds with topics or of those with tables.
    :param draw: 0, or how often the fault of this round missed before.
    :param records: input records that are written before the run begins.
    :param begun_seconds: the fault comes so long after the completed marker; None when ``progress`` tells.
    :param progress: share of the run's work that is done when the fault comes.
    :param threads: ``num.stream.threads``.
    :param commit_records: ``commit.every.records``.
    :param skip: proxy: requests that pass before one is harmed.
    :param seconds: how long a request or an answer is delayed, or how long until what was stopped goes on.
    :param cut_client: one side cut: the client's side rather than the broker's.
    :param past_transaction: stopped: until the broker has given the transaction up; else the retry alone can
        put an end to it.
    :param whole_driver: stopped: the driver with all it started, rather than one worker.
    :param resume: stopped: when it goes on.
    """

    seed: int
    number: int
    draw: int
    fault: StrEnum
    records: int
    begun_seconds: float | None
    progress: float
    threads: int
    commit_records: int
    skip: int
    seconds: float
    cut_client: bool
    past_transaction: bool
    whole_driver: bool
    resume: Resume

    @property
    def run_id(self) -> str:
        """The run's id."""
        return f"round-{self.number}-{self.draw}"

    @property
    def point(self) -> str:
        """When the fault comes, in words."""
        if self.begun_seconds is not None:
            return f"{self.begun_seconds:.1f} s after begin"
        return f"at {self.progress:.0%} of the work"

    @property
    def manner(self) -> str:
        """How it comes, in words; empty when there is but one way."""
        match self.fault:
            case Fault.END_DELAYED | Fault.ANSWER_DELAYED:
                return f"by {self.seconds:.1f} s, {self.skip} passed before"
            case Fault.END_DROPPED | Fault.ANSWER_DROPPED:
                return f"{self.skip} passed before"
            case Fault.ONE_SIDE_CUT:
                return f"the {'client' if self.cut_client else 'broker'}'s side, for {self.seconds:.1f} s"
            case Fault.STOPPED:
                what = "whole driver" if self.whole_driver else "one worker"
                how_long = "past" if self.past_transaction else "within"
                return f"{what}, {how_long} its transaction, on {self.resume}"
            case _:
                return ""


def plan_of(seed: int, number: int, draw: int = 0) -> RoundPlan:
    """Draw a round; the same for the same seed, number and draw."""
    fault = fault_of(Fault, f"{seed}", number)
    rng = random.Random(f"{seed}/{number}/{draw}")  # noqa: S311 - reproducible on purpose
    return drawn_plan(rng, seed, number, draw, fault, early=fault not in _AT_WORK)


def fault_of(faults: type[F], seed: str, number: int) -> F:
    """Return the fault of a round: each comes once in a block of as many rounds as there are faults."""
    block, place = divmod(number, len(faults))
    return random.Random(f"{seed}/block {block}").sample(list(faults), len(faults))[place]  # noqa: S311


def drawn_plan(
    rng: random.Random, seed: int, number: int, draw: int, fault: StrEnum, *, early: bool
) -> RoundPlan:
    """Draw all but the fault.

    :param early: whether the fault may come as soon as the run has begun.
    """
    early = rng.random() < 0.25 and early
    return RoundPlan(
        seed=seed,
        number=number,
        draw=draw,
        fault=fault,
        records=rng.randrange(500, 1_200),
        begun_seconds=rng.uniform(0.0, 3.0) if early else None,
        progress=rng.uniform(0.02, 1.0),
        threads=rng.choice((1, 2)),
        commit_records=rng.choice((40, 100, 250)),
        skip=rng.randrange(0, 6),
        seconds=rng.uniform(1.0, 13.0),
        cut_client=rng.random() < 0.5,
        past_transaction=rng.random() < 0.6,
        whole_driver=rng.random() < 0.5,
        resume=rng.choice(("when taken over", "in the retry's work", "when finished")),
    )
