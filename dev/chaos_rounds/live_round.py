"""One round as it happens: drivers are started until the run is finished, however it is disturbed."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dev.chaos_rounds.plan import Fault, RoundPlan
from dev.chaos_rounds.processes import Driver, StandaloneCluster, send
from dev.chaos_rounds.topics import APPLICATION_ID
from dev.chaos_rounds.watch import Watch
from dev.proxy.kafka_proxy import KafkaProxy
from dev.servers.embedded import Broker

if TYPE_CHECKING:
    import psutil

#: No round may take longer; a run that is not finished by then never stops.
ROUND_SECONDS = 240.0
_ATTEMPTS = 8
_MARKER_SECONDS = 15.0
#: The shortest there may be, as it is waited for.
TRANSACTION_SECONDS = 10
#: Long enough for a retry to come to its work meanwhile.
_LONG_TRANSACTION_SECONDS = 60
_SETTINGS = {
    "processing.guarantee": "exactly_once",
    "autostop.at": "eol",
    "commit.interval.ms": "500",
    "client.timeout.ms": "10000",
    "lease.ms": "6000",
    "run.stall.timeout.ms": "90000",
}


class RoundFailedError(Exception):
    """The run did not do what every run must; the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What all rounds of a scene have in common besides its broker.

    :param application: the file that drivers run.
    :param arguments: of its command line, further ones.
    :param environment: what it has in its environment besides.
    :param settings: of the application, besides those that all rounds have.
    :param work: topics in which each input record shows once, as soon as it is written.
    :param verifier: the program that judges, a module of this package, and its further arguments.
    """

    application: Path
    work: tuple[str, ...]
    verifier: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class LiveRound:
    """A round in the making.

    :param stage: what is run, and how.
    :param bootstrap: where the application finds the broker: the proxy, or the broker itself.
    :param expected: records that the run will write to the topics of work, about.
    :ivar drivers: in the order of their start.
    :ivar held: lets a request go on that a proxy holds, and waits until it has.
    :ivar stopped: processes that wait for SIGCONT.
    :ivar killed: drivers that were ended from outside, in whole or in part.
    """

    plan: RoundPlan
    stage: Stage
    broker: Broker
    proxy: KafkaProxy
    watch: Watch
    folder: Path
    bootstrap: str
    expected: int
    cluster: StandaloneCluster | None = None
    drivers: list[Driver] = field(default_factory=list)
    stopped: list[psutil.Process] = field(default_factory=list)
    held: list[Callable[[], None]] = field(default_factory=list)
    killed: list[Driver] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    @property
    def ports(self) -> tuple[int, int]:
        """Where connections to the broker lead."""
        return self.broker.port, self.proxy.port

    @property
    def finished(self) -> bool:
        """Whether the run's finished marker has been seen."""
        return self.plan.run_id in self.watch.finished_at

    @property
    def begun(self) -> bool:
        """Whether its completed marker has been seen."""
        return self.watch.begun[self.plan.run_id] > 0

    @property
    def newest(self) -> Driver:
        """The driver that was started last."""
        return self.drivers[-1]

    def start_driver(self) -> Driver:
        """Start another driver of this run; whoever starts later takes over."""
        config = self.folder / f"{self.plan.run_id}.json"
        config.write_text(json.dumps({"bootstrap.servers": self.bootstrap}))
        outlives = self.plan.fault is Fault.STOPPED and not self.plan.past_transaction
        transaction_seconds = _LONG_TRANSACTION_SECONDS if outlives else TRANSACTION_SECONDS
        settings = {
            **_SETTINGS,
            "transaction.timeout.ms": transaction_seconds * 1000,
            "num.stream.threads": self.plan.threads,
            "commit.every.records": self.plan.commit_records,
            **self.stage.settings,
        }
        arguments = [str(self.stage.application), "--application-id", APPLICATION_ID]
        arguments += ["--run-id", self.plan.run_id, "--client-config", str(config), *self.stage.arguments]
        for name, value in settings.items():
            arguments += ["--setting", f"{name}={value}"]
        driver = Driver(
            arguments,
            environment=self.stage.environment,
            master=self.cluster.master if self.cluster is not None else "local[2,4]",
            executor_cores=self.plan.threads,
            log=self.folder / f"{self.plan.run_id}-driver-{len(self.drivers) + 1}.log",
        )
        self.drivers.append(driver)
        return driver

    def wait(self, condition: Callable[[], bool], seconds: float = ROUND_SECONDS) -> bool:
        """Watch until a condition holds, time is up, the run is finished, or its newest driver has ended."""
        deadline = time.monotonic() + seconds
        while not (held := condition()) and time.monotonic() < deadline:
            if self.finished or self.newest.exit_code is not None:
                return condition()
            self.watch.poll()
        return held

    def at_point(self) -> bool:
        """Wait for the moment of the fault; False when the run was over before."""
        if not self.wait(lambda: self.begun):
            return False
        if self.plan.begun_seconds is not None:
            begun = time.monotonic()
            self.wait(lambda: time.monotonic() - begun > (self.plan.begun_seconds or 0.0))
        else:
            self.wait(lambda: self.watch.records >= self.plan.progress * self.expected)
        return self.still_running()

    def still_running(self) -> bool:
        """Whether the run has begun and was not finished before this call."""
        self.watch.look_again()
        return self.begun and not self.finished

    def finish(self) -> None:
        """Start drivers, as a scheduler would, until one says that the run is finished.

        :raises RoundFailedError: none did.
        """
        while True:
            self._wait_for(self.newest)
            code = self.newest.exit_code
            if code == 0:
                break
            self._judge(self.newest)
            if len(self.drivers) >= _ATTEMPTS:
                raise RoundFailedError(f"the run was not finished in {_ATTEMPTS} attempts")
            self.start_driver()
        deadline = time.monotonic() + _MARKER_SECONDS
        while not self.finished:
            if time.monotonic() > deadline:
                raise RoundFailedError("a driver reported the run as finished; there is no finished marker")
            self.watch.poll()

    def wake(self) -> None:
        """Let everything go on that was stopped, and requests that were held."""
        self.let_pass()
        while self.stopped:
            send(self.stopped.pop(), signal.SIGCONT)

    def let_pass(self) -> None:
        """Let requests go on that were held."""
        while self.held:
            self.held.pop()()

    def disperse(self) -> None:
        """See every other driver to its end.

        :raises RoundFailedError: one did not end, or left something behind.
        """
        for driver in self.drivers:
            self._wait_for(driver)
            self._judge(driver)
        for driver in self.drivers:
            if left := driver.end():
                raise RoundFailedError(f"a driver has ended and left behind: {', '.join(left)}")

    def abandon(self) -> None:
        """End everything, whatever state it is in."""
        self.wake()
        for driver in self.drivers:
            for process in driver.members():
                send(process, signal.SIGKILL)
            driver.end()

    def _wait_for(self, driver: Driver) -> None:
        while driver.exit_code is None:
            if time.monotonic() - self.started > ROUND_SECONDS:
                raise RoundFailedError(f"a driver did not end within {ROUND_SECONDS:.0f} s")
            self.watch.poll()

    def _judge(self, driver: Driver) -> None:
        """A driver may fail; it must say why, and never that a retry cannot help."""
        code = driver.exit_code
        if code == 0 or driver in self.killed:
            return
        if code != 1 or not driver.error:
            raise RoundFailedError(
                f"a driver ended with {code} and the error {driver.error or 'untold'}: {driver.log}"
            )
