"""How each fault is done to a live round.

A strike waits for the point at which it comes. It returns what tells, after the run, whether the fault hit
between begin and finish; a round whose fault did not does not count.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dev.chaos_rounds.live_round import TRANSACTION_SECONDS, LiveRound
from dev.chaos_rounds.plan import Fault
from dev.chaos_rounds.processes import send
from dev.proxy.kafka_proxy import Action, Rule
from dev.proxy.kafka_request import Api

if TYPE_CHECKING:
    import psutil

Strike = Callable[[LiveRound], Callable[[], bool]]

_SEARCH_SECONDS = 20.0
_APPLICATION_PATTERN = "chaos-*"
_OF_TRANSACTIONS = (
    Api.PRODUCE,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.ADD_OFFSETS_TO_TXN,
    Api.TXN_OFFSET_COMMIT,
    Api.END_TXN,
)


def hit() -> bool:
    """Say that the fault hit."""
    return True


def miss() -> bool:
    """Say that it did not."""
    return False


def strike_at_point(live: LiveRound) -> Callable[[], bool]:
    """Wait for the round's point, and do its fault."""
    return STRIKES[Fault(live.plan.fault)](live) if live.at_point() else miss


def kill_worker(live: LiveRound) -> Callable[[], bool]:
    """SIGKILL one Python worker that is at work."""
    return kill_one(live, lambda: live.newest.workers(live.ports))


def kill_executor(live: LiveRound) -> Callable[[], bool]:
    """SIGKILL one executor of the standalone cluster that has a worker at work."""
    cluster = live.cluster
    if cluster is None:
        return miss

    def at_work() -> list[psutil.Process]:
        return [one for one in cluster.executors() if one.is_running()] if cluster.workers(live.ports) else []

    return kill_one(live, at_work)


def kill_driver(live: LiveRound) -> Callable[[], bool]:
    """SIGKILL the driver; what it started may live on for a moment, and the retry comes at once."""
    driver = live.newest
    if driver.exit_code is not None:
        return miss
    live.killed.append(driver)
    driver.kill()
    return hit if live.still_running() else miss


def kill_driver_jvm(live: LiveRound) -> Callable[[], bool]:
    """SIGKILL Spark's JVM below the driver."""

    def jvm() -> list[psutil.Process]:
        found = live.newest.jvm()
        return [found] if found is not None else []

    return kill_one(live, jvm)


def kill_broker(live: LiveRound) -> Callable[[], bool]:
    """SIGKILL the only broker and start it again."""
    live.broker.kill()
    live.broker.start(die_with_parent=True)
    return hit if live.still_running() else miss


def stop_and_continue(live: LiveRound) -> Callable[[], bool]:
    """SIGSTOP, wait until the broker has given the transaction up or not, start the retry, then SIGCONT."""
    first = live.newest
    found = _search(live, lambda: first.workers(live.ports))
    if not found:
        return miss
    chosen = first.members() if live.plan.whole_driver else [found[live.plan.skip % len(found)]]
    for process in chosen:
        if send(process, signal.SIGSTOP):
            live.stopped.append(process)
    if not live.still_running():
        return miss
    stopped_at = time.monotonic()
    if live.plan.past_transaction:
        live.wait(lambda: time.monotonic() - stopped_at > TRANSACTION_SECONDS + 1)
    begun = live.watch.begun[live.plan.run_id]
    struck = live.still_running()
    live.start_driver()
    if live.plan.resume != "when finished":
        live.wait(lambda: live.watch.begun[live.plan.run_id] > begun)
        if live.plan.resume == "in the retry's work":
            done = live.watch.records
            live.wait(lambda: live.watch.records > done)
        live.wake()
    return hit if struck else miss


def start_second_driver(live: LiveRound) -> Callable[[], bool]:
    """Start another driver of the same run while the first is at work."""
    begun = live.watch.begun[live.plan.run_id]
    live.start_driver()
    run_id = live.plan.run_id
    live.wait(lambda: live.watch.begun[run_id] > begun)
    return hit if live.watch.begun[run_id] > begun else miss


def delay_end(live: LiveRound) -> Callable[[], bool]:
    """Hold one EndTxn."""
    return _harm(live, "hold", (Api.END_TXN,))


def drop_end(live: LiveRound) -> Callable[[], bool]:
    """Lose one EndTxn."""
    return _harm(live, "drop", (Api.END_TXN,))


def delay_answer(live: LiveRound) -> Callable[[], bool]:
    """Hold the answer to one EndTxn."""
    return _harm(live, "hold_answer", (Api.END_TXN,))


def drop_answer(live: LiveRound) -> Callable[[], bool]:
    """Lose the answer to one EndTxn."""
    return _harm(live, "drop_answer", (Api.END_TXN,))


def cut_one_side(live: LiveRound) -> Callable[[], bool]:
    """End one side of a connection that speaks for a transaction; the other side hears of it late."""
    return _harm(live, "cut_client" if live.plan.cut_client else "cut_broker", _OF_TRANSACTIONS)


STRIKES: Mapping[Fault, Strike] = {
    Fault.WORKER_KILLED: kill_worker,
    Fault.EXECUTOR_KILLED: kill_executor,
    Fault.DRIVER_KILLED: kill_driver,
    Fault.DRIVER_JVM_KILLED: kill_driver_jvm,
    Fault.BROKER_KILLED: kill_broker,
    Fault.STOPPED: stop_and_continue,
    Fault.SECOND_DRIVER: start_second_driver,
    Fault.END_DELAYED: delay_end,
    Fault.END_DROPPED: drop_end,
    Fault.ANSWER_DELAYED: delay_answer,
    Fault.ANSWER_DROPPED: drop_answer,
    Fault.ONE_SIDE_CUT: cut_one_side,
}


def kill_one(live: LiveRound, look: Callable[[], list[psutil.Process]]) -> Callable[[], bool]:
    """SIGKILL one of the processes that are found, as soon as there are any."""
    found = _search(live, look)
    if not found:
        return miss
    driver = live.newest
    struck = send(found[live.plan.skip % len(found)], signal.SIGKILL)
    return hit if struck and live.still_running() and driver.exit_code is None else miss


def _search(live: LiveRound, look: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    """Look again and again; nothing is found when the run is over before."""
    found: list[psutil.Process] = []

    def search() -> bool:
        found[:] = look()
        return bool(found)

    live.wait(search, _SEARCH_SECONDS)
    return found


def _harm(live: LiveRound, action: Action, apis: tuple[Api, ...]) -> Callable[[], bool]:
    rule = Rule(
        action=action,
        apis=apis,
        transactional_id=_APPLICATION_PATTERN,
        skip=live.plan.skip,
        seconds=live.plan.seconds,
    )
    number = live.proxy.add(rule)

    def harmed() -> bool:
        finished = live.watch.finished_at.get(live.plan.run_id, 0.0)
        hits = live.proxy.hits(number)
        return bool(hits) and hits[0].at_seconds < finished

    return harmed
