"""Runs cases in turn, round after round, on one broker."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from airflow_kstreams.streams.errors import KStreamsError
from dev.benchmarks import outputs
from dev.benchmarks.calls.cases import SYSTEMS, Case
from dev.benchmarks.calls.inputs import Input, Inputs, beginning_of, hottest_share
from dev.benchmarks.calls.measured import Measured, Round
from dev.benchmarks.hosts import Answer, Host, HostError
from dev.benchmarks.publish import create_topics

#: A round is quiet when others have no more of the machine than this while a case of it runs.
_QUIET = 0.1


class WrongOutputError(Exception):
    """What a system wrote is not what it was to write: its figure does not count."""


@dataclass(kw_only=True)
class Rounds:
    """Measures cases.

    :param folder: for all that systems write.
    :param say: prints a line.
    :param seconds: that one run of a case takes, about.
    :param more: so many rounds more than are wanted are made while others disturb, at most.
    :ivar left_out: cases that could not be measured, with the reason.
    """

    bootstrap: str
    folder: Path
    say: Callable[[str], None]
    seconds: float
    more: int = 0
    left_out: dict[Case, str] = field(default_factory=dict)
    _inputs: Inputs = field(init=False)
    _hosts: dict[str, Host] = field(default_factory=dict)
    _warmed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._inputs = Inputs(bootstrap=self.bootstrap)

    def close(self) -> None:
        """End all hosts."""
        for host in self._hosts.values():
            host.close()
        self._hosts.clear()

    def measure(self, group: Sequence[Case], rounds: int) -> list[Measured]:
        """Measure cases that are compared with each other: in turn, and the other way round in every second
        round. While others disturb it there are more rounds, and the quietest are kept.
        """
        for case in group:
            self._input(case)
        self._warm_up(group)
        kept = self._rounds(group, rounds)
        return [
            Measured(
                case=case,
                records=self._input(case).records,
                hottest_records=self._input(case).hottest_records,
                rounds=[one[case] for one in kept],
            )
            for case in group
            if case not in self.left_out
        ]

    def _rounds(self, group: Sequence[Case], rounds: int) -> list[Mapping[Case, Round]]:
        made: list[Mapping[Case, Round]] = []
        while len(made) < rounds + self.more and not quiet(made, rounds):
            number, this_one = len(made), dict[Case, Round]()
            for case in reversed(group) if number % 2 else group:
                if case not in self.left_out and (measured := self._try(case, f"round {number + 1}")):
                    this_one[case] = measured
            made.append(this_one)
        return quietest(made, rounds)

    def _warm_up(self, group: Sequence[Case]) -> None:
        for case in group:
            system = SYSTEMS[case.system]
            if system.warmed and system.name not in self._warmed:
                self._warmed.add(system.name)
                quick = msgspec.structs.replace(case, latency_ms=1, order="unordered", keys="uniform")
                self._try(quick, "warm-up")

    def _try(self, case: Case, what: str) -> Round | None:
        try:
            measured = self._run(case)
        except (HostError, WrongOutputError, KafkaException, KStreamsError) as error:
            self.left_out[case] = f"{case.label}: {error}"
            self.say(f"  FAILED {case.label}: {error}")
            return None
        rate = self._input(case).records / measured.seconds
        self.say(
            f"  {what}: {case.label:<75} {rate:>9,.0f}/s, "
            f"{measured.latency_ms:.2f} ms in the call, {measured.others:.0%} of the machine for others"
        )
        return measured

    def _input(self, case: Case) -> Input:
        return self._inputs.of(case.keys, case.records(self.seconds, hottest_share(case.keys)))

    def _run(self, case: Case) -> Round:
        source, host = self._input(case), self._host(SYSTEMS[case.system].host)
        name = f"bench-calls-{uuid.uuid4().hex[:8]}"
        create_topics(self.bootstrap, {f"{name}-output": 1})
        try:
            host.wait_until_ready()
            with _Others() as others:
                answer = host.run(self._request(case, source, name))
            self._check(source, f"{name}-output")
        except HostError:
            self._hosts.pop(host.kind).close()
            raise
        finally:
            self._delete(name)
        return _round(answer, others.share)

    def _host(self, kind: str) -> Host:
        if kind not in self._hosts:
            Host.prepare(kind)
            self._hosts[kind] = Host(kind, self.folder)
        return self._hosts[kind]

    def _request(self, case: Case, source: Input, name: str) -> dict[str, str | float]:
        return {
            "bootstrap": self.bootstrap,
            "application_id": name,
            "input": source.topic,
            "output": f"{name}-output",
            "records": source.records,
            "hottest": beginning_of(source.hottest).decode(),
            "system": case.system,
            "latency_ms": case.latency_ms,
            "order": case.order,
            "in_flight": case.in_flight,
        }

    def _check(self, source: Input, output: str) -> None:
        found = outputs.digest(outputs.read(self.bootstrap, output), table=False)
        if difference := outputs.differences(source.expected, found):
            raise WrongOutputError(difference)

    def _delete(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        names = [topic for topic in admin.list_topics(timeout=30).topics if name in topic]
        for deleted in admin.delete_topics(names).values():
            deleted.result(30)


def disturbance(made: Mapping[Case, Round]) -> float:
    """Return how much of the machine others had in a round of several cases, at most."""
    return max((each.others for each in made.values()), default=0.0)


def quiet(made: Sequence[Mapping[Case, Round]], rounds: int) -> bool:
    """Say whether there are so many rounds in which others did little."""
    return sum(disturbance(each) <= _QUIET for each in made) >= rounds


def quietest(made: Sequence[Mapping[Case, Round]], rounds: int) -> list[Mapping[Case, Round]]:
    """Return the rounds in which others did least, in the order in which they were made."""
    kept = sorted(range(len(made)), key=lambda number: disturbance(made[number]))[:rounds]
    return [made[number] for number in sorted(kept)]


def _round(answer: Answer, others: float) -> Round:
    return Round(
        seconds=round(answer.seconds, 4),
        processor_seconds=round(answer.processor_seconds, 2),
        latency_ms=round(answer.details["latency_ms"], 4),
        hottest_ms=round(answer.details.get("hottest_ms", 0.0), 4),
        peak_memory_mb=round(answer.peak_memory_mb, 1),
        others=round(others, 3),
    )


class _Others:
    """Which share of the machine's processor time had programs that are no children of this one.

    :ivar share: of the block's time.
    """

    share = 0.0

    def __enter__(self) -> _Others:
        self._started, self._busy, self._own = time.monotonic(), _busy_seconds(), _own_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        all_of_it = (time.monotonic() - self._started) * (os.cpu_count() or 1)
        busy, own = _busy_seconds() - self._busy, _own_seconds() - self._own
        self.share = min(1.0, max(0.0, busy - own) / all_of_it)


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return times.user + times.nice + times.system


def _own_seconds() -> float:
    this = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in (this, *this.children(recursive=True)))
