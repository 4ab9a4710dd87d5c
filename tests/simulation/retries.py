"""What of a seed calls again: which steps, how often and when, what the service says to which record, and
when it is away. Drawn apart from all else, so that other seeds stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from airflow_kstreams.streams import RetryPolicy
from tests.simulation.faults import Fault, PlannedFault

if TYPE_CHECKING:
    from tests.simulation.stages import Application

#: Share of the seeds that call in which steps call again, and of the steps there that do.
_RETRIES, _STEPS = 0.55, 0.7
#: So many calls outlast every time for which the service is away.
_OUTLASTING = 1_000
#: For how long it is away from the beginning of a run, seconds.
_AWAY_SECONDS = (0.5, 3.0, 12.0, 40.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What the service says to the calls of one record.

    :param times: how many calls fail for now, before anything else is said.
    :param then: what is said after that: an answer, or that it fails for now again and again, or for good.
    """

    times: int = 0
    then: Literal["answer", "fails on", "refuses"] = "answer"

    @property
    def gives_up(self) -> bool:
        """Whether the record becomes a dead letter."""
        return self.then != "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """What becomes of the records of one step.

    :param policy: of the step.
    :param parks: whether they are parked meanwhile.
    :param most: how many calls of a record may fail before it is answered.
    :param fails_on: whether some fail again and again.
    :param gives_up: whether some become dead letters at all.
    """

    seed: int
    step: str
    policy: RetryPolicy
    parks: bool
    most: int
    fails_on: bool
    gives_up: bool

    def of(self, record: str) -> Fate:
        """Return what becomes of a record.

        :param record: its place; what is asked where no record led to the call.
        """
        random = Random(f"{self.seed} fate {self.step} {record}")
        times = random.randint(1, self.most) if self.most and random.random() < 0.3 else 0
        if not self.gives_up or random.random() >= 0.15:
            return Fate(times=times)
        fails_on = self.fails_on and random.random() < 0.5
        return Fate(times=times, then="fails on" if fails_on else "refuses")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """The service is away, for all keys or for some.

    :param until: seconds of the world.
    """

    seed: int
    share: float
    until: float

    def hits(self, key: str, seconds: float) -> bool:
        """Say whether a call of a record is not answered.

        :param key: of its idempotency.
        """
        return seconds < self.until and Random(f"{self.seed} away {key}").random() < self.share


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRetries:
    """How a seed calls again.

    :param application: whose steps call.
    :param settings: beside those of the seed.
    :param plan: faults that happen to tasks while records are parked.
    :param away: number of a run, from 0 -> for how long the service is away from its beginning, seconds.
    """

    seed: int
    application: Application
    settings: Mapping[str, Any]
    plan: tuple[PlannedFault, ...]
    away: Mapping[int, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"calls again with {dict(self.settings)}, the service away {dict(self.away) or 'never'}"

    def outage(self, run: int, now: float) -> Outage | None:
        """Return when the service is away in a run that begins now, seconds of the world."""
        if run not in self.away:
            return None
        share = Random(f"{self.seed} outage {run}").choice((0.5, 1.0, 1.0))
        return Outage(seed=self.seed, share=share, until=now + self.away[run])

    def fates(self, step: str, *, parks: bool, by_record: bool) -> Fates | None:
        """Return how a step calls again, and what becomes of its records; None if it does not.

        :param parks: whether its order has a retry topic.
        :param by_record: whether it can be told which records lead to its calls.
        """
        random = Random(f"{self.seed} again {step}")
        if random.random() >= _STEPS:
            return None
        outlasts = bool(self.away) and parks
        policy = RetryPolicy(
            attempts=_OUTLASTING if outlasts else random.choice((2, 3, 5)),
            backoff_ms=random.choice((500, 4_000) if outlasts else (0, 20, 500, 4_000)),
            multiplier=random.choice((1, 2.0)),
            backoff_max_ms=8_000,
            jitter=random.choice((0.0, 0.2)),
            errors=(ConnectionError,),
            max_parked=random.choice((1, 2, 5, 10_000)),
        )
        return Fates(
            seed=self.seed,
            step=step,
            policy=policy,
            parks=parks,
            # In place, the budget counts, which time uses up: no record comes out as it would without faults.
            most=min(3, policy.attempts - 1) if parks else 0,
            fails_on=not outlasts,
            gives_up=by_record,
        )


def drawn_retries(
    seed: int, application: Application, instead: Mapping[str, Application]
) -> DrawnRetries | None:
    """Draw whether and how a seed that calls does so again.

    :param application: what it has been drawn.
    :param instead: name of an application -> what may stand in its place.
    """
    random = Random(f"{seed} retries")
    if random.random() >= _RETRIES:
        return None
    if application.name in instead and random.random() < 0.7:
        application = instead[application.name]
    away: dict[int, float] = {}
    if random.random() < 0.5:
        away = {run: random.choice(_AWAY_SECONDS) for run in range(3) if random.random() < 0.6}
    return DrawnRetries(
        seed=seed,
        application=application,
        settings={
            "retry.run.budget.ms": random.choice((0, 300, 3_000, 20_000)),
            "processing.exception.handler": "dead-letter",
        },
        plan=tuple(_fault(random) for _ in range(random.choice((0, 1, 1, 2)))),
        away=away,
    )


def _fault(random: Random) -> PlannedFault:
    call, about = random.choice(
        (
            ("writer.produce", "-retry"),
            ("writer.commit", ""),
            ("writer.send_offsets", ""),
            ("reader.poll", ""),
            ("calls.start", ""),
        )
    )
    return PlannedFault(
        call=call,
        fault=random.choice((Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.ZOMBIE, Fault.DELAY)),
        number=int(60 ** random.random()),
        role="task",
        about=about,
    )
