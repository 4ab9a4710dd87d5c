"""Plays rounds, several on one broker: they share the application, its state and its topics."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dev.chaos_rounds.live_round import LiveRound, RoundFailedError, Stage
from dev.chaos_rounds.log import Outcome
from dev.chaos_rounds.plan import RoundPlan
from dev.chaos_rounds.processes import Helper, StandaloneCluster
from dev.chaos_rounds.strikes import Strike
from dev.chaos_rounds.topics import PARTITIONS
from dev.chaos_rounds.watch import Watch
from dev.proxy.kafka_proxy import KafkaProxy
from dev.servers.embedded import Broker, free_port
from tests.support.kafka.kafka_tools import hanging_transactions

#: Opens what a scene's rounds need besides its broker, in a folder.
OpenStage = Callable[[Path], AbstractContextManager[Stage]]

_ROOT = Path(__file__).parents[2]
_CLIENT_SECONDS = 30.0
_VERIFIER_SECONDS = 180.0
_TOPIC_CONFIG = {"retention.ms": "-1", "retention.bytes": "-1"}
#: Draws of one round after which something is wrong with the rounds themselves.
_DRAWS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A round that is to be played.

    :param point: when its fault comes, in words.
    :param manner: how it comes, in words; empty when there is but one way.
    :param strike: waits for the moment of the fault, and does it.
    :param proxied: whether the proxy stands between the application and the broker.
    :param on_cluster: whether it runs on a standalone cluster.
    """

    plan: RoundPlan
    point: str
    manner: str
    strike: Strike
    proxied: bool = False
    on_cluster: bool = False


#: Makes a round of a number and of how often its fault missed before.
RoundOf = Callable[[int, int], Round]


class Scene:
    """A broker behind its proxy, the feeder, the follower, and the application that all rounds share.

    A context manager. Rounds follow each other on it; the verifier judges the whole scene after each.

    :param folder: for everything that is written; what a violation needs to be understood stays in there.
    :param open_stage: opens what the rounds need besides, in that folder.
    """

    def __init__(self, folder: Path, open_stage: OpenStage) -> None:
        self._open_stage = open_stage
        self._folder = folder
        self._transcript = folder / "transcript.jsonl"
        self._finished: list[str] = []
        self._cluster: StandaloneCluster | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        port = free_port(5)
        self._broker = Broker(port=port, folder=self._folder / "broker", proxy_port=port + 3)
        with ExitStack() as stack:
            stack.enter_context(self._broker)
            _create_topics(self._broker.bootstrap)
            self._proxy = stack.enter_context(KafkaProxy(port=port + 3, broker_port=port + 4))
            self._stage = stack.enter_context(self._open_stage(self._folder))
            self._watch = Watch(self._broker.bootstrap, self._stage.work)
            stack.callback(self._watch.close)
            self._feeder = self._helper("feeder", [self._broker.bootstrap], stack)
            self._follower = self._helper("follower", [self._broker.bootstrap, str(self._transcript)], stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def play(self, round_: Round) -> Outcome:
        """Play one round: new records, a run, its fault, retries until it is finished, and the verdict."""
        plan = round_.plan
        started = time.monotonic()
        records = int(self._feeder.ask(f"burst {plan.records} {plan.seed}/{plan.number}/{plan.draw}"))
        self._watch.start()
        live = LiveRound(
            plan=plan,
            stage=self._stage,
            broker=self._broker,
            proxy=self._proxy,
            watch=self._watch,
            folder=self._folder,
            bootstrap=self._proxy.bootstrap if round_.proxied else self._broker.bootstrap,
            expected=records * len(self._stage.work),
            cluster=self._standalone() if round_.on_cluster else None,
        )
        violations: list[str] = []
        hit = False
        total = 0
        try:
            hit = _disturbed(live, round_.strike)
            self._finished.append(plan.run_id)
            self._follower.refuse_dead()
            found, total = self._verify()
            violations += found
        except RoundFailedError as error:
            violations.append(str(error))
        finally:
            live.abandon()
            self._proxy.clear()
        return Outcome(
            seed=plan.seed,
            round=plan.number,
            draw=plan.draw,
            fault=plan.fault.value,
            point=round_.point,
            manner=round_.manner,
            hit=hit,
            attempts=len(live.drivers),
            errors=tuple(driver.error for driver in live.drivers if driver.error),
            seconds=round(time.monotonic() - started, 1),
            records=total,
            violations=tuple(violations),
        )

    def hanging_transactions(self) -> list[str]:
        """Ask Kafka's own tool for transactions that are open and have no producer."""
        found = hanging_transactions(self._broker.bootstrap)
        return [f"hanging transaction: {line.strip()}" for line in found]

    def _verify(self) -> tuple[list[str], int]:
        module, *arguments = self._stage.verifier
        command = [sys.executable, "-m", f"dev.chaos_rounds.{module}", "--bootstrap", self._broker.bootstrap]
        command += ["--transcript", str(self._transcript), *arguments, "--finished", *self._finished]
        done = subprocess.run(
            command, cwd=_ROOT, capture_output=True, text=True, check=False, timeout=_VERIFIER_SECONDS
        )
        if done.returncode not in (0, 1) or not done.stdout:
            return [f"the verifier failed: {done.stderr[-2000:]}"], 0
        report = msgspec.json.decode(done.stdout)
        return report["violations"], report["records"][next(iter(PARTITIONS))]

    def _standalone(self) -> StandaloneCluster:
        if self._cluster is None:
            self._cluster = StandaloneCluster(self._folder)
            self._stack.callback(self._cluster.stop)
            self._cluster.start()
        return self._cluster

    def _helper(self, module: str, arguments: list[str], stack: ExitStack) -> Helper:
        helper = Helper(module, arguments, log=self._folder / f"{module}.log")
        stack.callback(helper.stop)
        return helper


def play_round(scene: Scene, round_of: RoundOf, number: int, *, tell: Callable[[Outcome], None]) -> Outcome:
    """Play a round, drawn again as long as its fault misses.

    :param round_of: draws it.
    :param tell: called with each draw's outcome.
    :raises RuntimeError: its fault missed time after time.
    """
    for draw in range(_DRAWS):
        outcome = scene.play(round_of(number, draw))
        tell(outcome)
        if outcome.hit or outcome.violations:
            return outcome
    raise RuntimeError(f"the fault of round {number} of seed {outcome.seed} missed {_DRAWS} times")


def _disturbed(live: LiveRound, strike: Strike) -> bool:
    """Run a round to its end with its fault; return whether that hit."""
    live.start_driver()
    hit = strike(live)
    live.finish()
    live.wake()
    live.disperse()
    return hit()


def _create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    wanted = [
        NewTopic(topic, num_partitions=count, replication_factor=1, config=_TOPIC_CONFIG)
        for topic, count in PARTITIONS.items()
    ]
    for created in admin.create_topics(wanted).values():
        created.result(_CLIENT_SECONDS)
