"""What ``dev/bench async`` measures: systems, and what each of them is to do.

Every call sleeps, and gives back what it was given. All systems read one partition with the same records, and
write each result into one partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

Keys = Literal["uniform", "zipf"]
#: What a system promises of the order of calls and results; each system has its own words for it.
Order = Literal["partition", "key", "unordered"]

LATENCIES_MS = (1, 5, 10)
#: The latency that bars are about; the others are printed.
BAR_MS = 10
IN_FLIGHT = 256
THREADS = (8, 16, 32, 64)
#: Different keys among the records, both uniform and Zipf.
KEYS = 10_000
#: About what one core makes of calls that end at once: no system is given more records than that.
_MOST_PER_SECOND = 30_000


class System(msgspec.Struct, frozen=True, kw_only=True):
    """Something that makes calls.

    :param host: the process that runs it, see :mod:`dev.benchmarks.hosts`.
    :param guarantee: for the results in the output topic.
    :param most_per_second: records that it gets through about, so that no round takes minutes.
    :param warmed: whether it runs once before it is measured, as compilers of JVMs need it.
    """

    name: str
    title: str
    host: str
    guarantee: str
    most_per_second: int = _MOST_PER_SECOND
    warmed: bool = False


#: A plain node, which calls while its task waits.
PLAIN = System(
    name="plain",
    title="airflow_kstreams, plain node",
    host="calls",
    guarantee="exactly once",
    most_per_second=150_000,
)
ASYNCIO = System(name="asyncio", title="airflow_kstreams, asyncio", host="calls", guarantee="exactly once")
ON_THREADS = System(name="threads", title="airflow_kstreams, threads", host="calls", guarantee="exactly once")

#: Confluent's Parallel Consumer; its worker waits until the broker has acknowledged the result.
PARALLEL = System(
    name="parallel-consumer",
    title="Parallel Consumer",
    host="parallel-consumer",
    guarantee="at least once",
    most_per_second=10_000,
    warmed=True,
)
#: Results and offsets in transactions.
PARALLEL_TRANSACTIONAL = System(
    name="parallel-consumer-transactional",
    title="Parallel Consumer, transactions",
    host="parallel-consumer",
    guarantee="exactly once",
    most_per_second=10_000,
    warmed=True,
)
#: The function sends the result itself and waits for nothing, so that offsets may be committed without it.
PARALLEL_UNWAITED = System(
    name="parallel-consumer-unwaited",
    title="Parallel Consumer, sends unwaited",
    host="parallel-consumer",
    guarantee="none",
    most_per_second=20_000,
    warmed=True,
)

PYRALLEL = System(
    name="pyrallel-consumer",
    title="pyrallel-consumer",
    host="pyrallel-consumer",
    guarantee="none",
    most_per_second=3_000,
)

OURS = (PLAIN, ASYNCIO, ON_THREADS)
PARALLELS = (PARALLEL, PARALLEL_TRANSACTIONAL, PARALLEL_UNWAITED)
SYSTEMS = {system.name: system for system in (*OURS, *PARALLELS, PYRALLEL)}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One system with one kind of work.

    :param system: name.
    :param latency_ms: for which each call sleeps; 0 for calls that end at once.
    :param in_flight: calls that may run at the same time.
    """

    system: str
    latency_ms: int
    keys: Keys
    order: Order
    in_flight: int

    @property
    def label(self) -> str:
        """What it is, in a line."""
        calls = f"{self.in_flight} in flight" if self.in_flight > 1 else "one in flight"
        return f"{SYSTEMS[self.system].title}, {self.order}, {calls}, {self.latency_ms} ms, {self.keys}"

    def records(self, seconds: float, hottest_share: float) -> int:
        """Return how many records keep it busy for about so many seconds.

        :param hottest_share: of the records, those with the most frequent key.
        """
        per_second: float = SYSTEMS[self.system].most_per_second
        if self.latency_ms:
            side_by_side: float = self.in_flight
            if self.order == "partition" and SYSTEMS[self.system] in PARALLELS:
                side_by_side = 1  # there is one partition
            if self.order == "key":
                side_by_side = min(side_by_side, 1 / hottest_share)
            per_second = min(per_second, side_by_side * 1_000 / self.latency_ms)
        return max(200, round(per_second * seconds / 100) * 100)


def _ours() -> Iterator[tuple[Case, ...]]:
    """Yield what is compared with each other, side by side."""
    yield (Case(system="plain", latency_ms=0, keys="uniform", order="partition", in_flight=1),)
    for latency_ms in LATENCIES_MS:
        yield tuple(
            Case(system=system, latency_ms=latency_ms, keys="uniform", order="partition", in_flight=1)
            for system in ("plain", "asyncio")
        )
    for latency_ms in LATENCIES_MS:
        for threads in THREADS if latency_ms == BAR_MS else THREADS[-1:]:
            yield (
                Case(
                    system="threads",
                    latency_ms=latency_ms,
                    keys="uniform",
                    order="partition",
                    in_flight=threads,
                ),
            )


def beside(order: Order, keys: Keys, latency_ms: int) -> tuple[Case, ...]:
    """Return this engine's case and those of the peers that do the same work with the same order."""
    first = Case(system="asyncio", latency_ms=latency_ms, keys=keys, order=order, in_flight=IN_FLIGHT)
    peers = [PARALLEL]
    if order != "partition":
        peers.append(PYRALLEL)  # with one partition, that order of its gives it no call to make
    if latency_ms == BAR_MS and keys == "uniform" and order != "partition":
        peers += [PARALLEL_TRANSACTIONAL, PARALLEL_UNWAITED]
    return (first, *(msgspec.structs.replace(first, system=peer.name) for peer in peers))


def _side_by_side() -> Iterator[tuple[Case, ...]]:
    keys: tuple[Keys, ...] = ("uniform", "zipf")
    orders: tuple[Order, ...] = ("partition", "key", "unordered")
    for latency_ms in LATENCIES_MS:
        for drawn in keys:
            for order in orders:
                yield beside(order, drawn, latency_ms)


def judged(group: Sequence[Case]) -> bool:
    """Say whether a bar is about a group; the figures of others are only shown."""
    return any(case.latency_ms in {0, BAR_MS} or case.in_flight == 1 for case in group)


#: In groups: what is compared is measured one after the other, round by round.
GROUPS = (*_ours(), *_side_by_side())
CASES = tuple(case for group in GROUPS for case in group)
