"""How the memory of a task with calls grows by records, beside that of one without."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import msgspec

from dev.benchmarks.calls.cases import IN_FLIGHT
from dev.benchmarks.calls.inputs import messages
from dev.benchmarks.hosts import Host
from dev.benchmarks.publish import Message, create_topics, publish

#: What ``max.waiting.bytes`` is unless set: 64 MiB.
WAITING_MB = (64 << 20) / 1e6
#: A record count by which all buffers are as large as they get.
SETTLED_RECORDS = 1_000_000
_MOST_POINTS = 200


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a task.

    :param name: of what it does.
    :param value_bytes: of each record.
    :param in_flight: calls; 0 for a plain node.
    :param points: pairs of records begun and MB of the process; the last one has the peak.
    """

    name: str
    records: int
    value_bytes: int
    in_flight: int
    seconds: float
    points: Sequence[tuple[int, float]]

    @property
    def peak_mb(self) -> float:
        """The most it ever was, by the kernel's count."""
        return max(megabytes for _, megabytes in self.points)

    @property
    def early_mb(self) -> float:
        """The most that was seen up to ``SETTLED_RECORDS``."""
        return max((mb for records, mb in self.points if records <= SETTLED_RECORDS), default=0.0)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Records whose memory is measured with calls and without.

    :param every: of so many calls one is slow, for ``slow_seconds``: what is behind it waits.
    """

    name: str
    records: int
    value_bytes: int
    every: int
    slow_seconds: float


LOADS = (
    Load(name="many records", records=10_000_000, value_bytes=100, every=50_000, slow_seconds=0.5),
    Load(name="large values", records=20_000, value_bytes=50_000, every=5_000, slow_seconds=2.0),
)


def measure(
    load: Load,
    bootstrap: str,
    folder: Path,
    say: Callable[[str], None],
    locked: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[Curve]:
    """Run a load in a plain node and with calls, each in a process of its own.

    :param locked: is entered for each of the two.
    """
    topic = f"bench-memory-{load.value_bytes}"
    create_topics(bootstrap, {topic: 1})
    publish(bootstrap, _messages(load, topic), count=load.records, progress=lambda _done: None)
    curves = []
    for in_flight in (0, IN_FLIGHT):
        with locked():
            curves.append(_curve(load, topic, in_flight, bootstrap, folder, say))
    return curves


def _messages(load: Load, topic: str) -> Iterator[Message]:
    rest = b"." * (load.value_bytes - 100)
    for message in messages(topic, "zipf", load.records):
        yield message._replace(value=message.value + rest)


def _curve(
    load: Load, topic: str, in_flight: int, bootstrap: str, folder: Path, say: Callable[[str], None]
) -> Curve:
    name = f"bench-memory-{uuid.uuid4().hex[:8]}"
    create_topics(bootstrap, {f"{name}-output": 1})
    started = time.monotonic()
    with Host("calls-memory", folder) as host:
        answer = host.run(
            {
                "bootstrap": bootstrap,
                "application_id": name,
                "input": topic,
                "output": f"{name}-output",
                "in_flight": in_flight,
                "every": load.every,
                "slow_seconds": load.slow_seconds,
            }
        )
    points = msgspec.convert(answer.details["curve"], list[tuple[int, float]])
    if points[-1][0] != load.records:
        raise SystemExit(f"{points[-1][0]:,} calls for {load.records:,} records")
    curve = Curve(
        name=load.name,
        records=load.records,
        value_bytes=load.value_bytes,
        in_flight=in_flight,
        seconds=round(answer.seconds, 1),
        points=thinned(points),
    )
    say(
        f"  memory, {load.name}, {in_flight or 'no'} calls in flight: {curve.peak_mb:,.0f} MB at most, "
        f"{load.records:,} records in {time.monotonic() - started:,.0f} s"
    )
    return curve


def thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return so few points that they can be stored, the highest of each stretch and the last one."""
    *sampled, last = points
    size = -(-len(sampled) // _MOST_POINTS) or 1
    stretches = [sampled[start : start + size] for start in range(0, len(sampled), size)]
    return [*(max(stretch, key=lambda point: point[1]) for stretch in stretches), last]
