"""How each fault is done to a live round with tables.

A strike waits for its moment. Where a proxy stands before the tables, the moment is exact: the proxy holds
the request, or its answer, until the fault is done. Else it is seen a moment later, in the table's log.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping

from dev.chaos_rounds.live_round import LiveRound
from dev.chaos_rounds.processes import send
from dev.chaos_rounds.strikes import hit, kill_broker, kill_driver, kill_executor, kill_worker, miss
from dev.chaos_rounds.tables.names import TABLE_FILES
from dev.chaos_rounds.tables.places import Place, Served, reached
from dev.chaos_rounds.tables.plan import TableFault, TableRoundPlan
from dev.proxy.http_proxy import HttpProxy, HttpRule

TableStrike = Callable[[LiveRound, TableRoundPlan, Place], Callable[[], bool]]

_LOOK_SECONDS = 0.002
_LOOKS_BETWEEN_POLLS = 100
_PASS_SECONDS = 20.0
_UPLOAD = r"\.parquet$"


def strike(live: LiveRound, plan: TableRoundPlan, place: Place) -> Callable[[], bool]:
    """Wait for the moment of a round, and do its fault."""
    if plan.fault not in _IN_WAIT and not _at_moment(live, plan, place):
        live.let_pass()  # a retry's commit is not to be held in the place of this driver's
        return miss
    struck = STRIKES[plan.fault](live, plan, place)
    if not plan.late:
        live.let_pass()
    return struck


def _at_moment(live: LiveRound, plan: TableRoundPlan, place: Place) -> bool:
    """Wait for the moment of the fault; False when the run was over before."""
    match plan.moment:
        case "upload":
            return live.at_point()
        case "merge":
            frozen = (live.plan.run_id, TABLE_FILES)
            if not live.wait(lambda: frozen in live.watch.frozen):
                return False
            time.sleep(plan.frozen_seconds)
            return live.still_running()
    if place.served is not None:
        return _at_held_commit(live, plan, place.served)
    return _at_seen_commit(live, plan, place)


def _at_held_commit(live: LiveRound, plan: TableRoundPlan, served: Served) -> bool:
    if not live.wait(lambda: live.begun):
        return False
    action, done = ("hold", False) if plan.moment == "commit" else ("hold_answer", True)
    proxy, rule = served.rule_of_commit(plan.table, "hold" if action == "hold" else "hold_answer")
    number = proxy.add(rule)

    def held() -> bool:
        found = reached(proxy, number)
        return found is not None and (not done or found.status is not None)

    live.held.append(lambda: _let_pass(proxy, number))
    return live.wait(held)


def _let_pass(proxy: HttpProxy, number: int) -> None:
    """Let a held request go on, and wait until it was answered."""
    proxy.release(number)
    deadline = time.monotonic() + _PASS_SECONDS
    while (found := reached(proxy, number)) and found.status is None and time.monotonic() < deadline:
        time.sleep(0.05)


def _at_seen_commit(live: LiveRound, plan: TableRoundPlan, place: Place) -> bool:
    """Look at the table's log without pause, for what lies between a commit and the marker is short."""
    if not live.wait(lambda: live.begun):
        return False
    before = place.commits(plan.table)
    while not live.finished and live.newest.exit_code is None:
        for _ in range(_LOOKS_BETWEEN_POLLS):
            if place.commits(plan.table) > before:
                return True
            time.sleep(_LOOK_SECONDS)
        live.watch.poll()
    return False


def _kill_worker(live: LiveRound, plan: TableRoundPlan, place: Place) -> Callable[[], bool]:
    return kill_worker(live)


def _kill_executor(live: LiveRound, plan: TableRoundPlan, place: Place) -> Callable[[], bool]:
    return kill_executor(live)


def _kill_driver(live: LiveRound, plan: TableRoundPlan, place: Place) -> Callable[[], bool]:
    return kill_driver(live)


def _kill_broker(live: LiveRound, plan: TableRoundPlan, place: Place) -> Callable[[], bool]:
    return kill_broker(live)


def _kill_catalog(live: LiveRound, plan: TableRoundPlan, place: Place) -> Callable[[], bool]:
    """SIGKILL the catalogue, let what was held meet that it is down, and start it again a while later."""
    if place.served is None:
        return miss
    place.served.kill()
    running = live.still_running()
    live.let_pass()
    down = time.monotonic()
    live.wait(lambda: time.monotonic() - down > live.plan.seconds)
    place.served.start()
    return hit if running else miss


def _stop_driver(live: LiveRound, plan: TableRoundPlan, place: Place) -> Callable[[], bool]:
    """SIGSTOP the driver with all it started, start the retry, then SIGCONT."""
    for process in live.newest.members():
        if send(process, signal.SIGSTOP):
            live.stopped.append(process)
    if not live.still_running():
        return miss
    if not plan.late:
        live.let_pass()
    begun = live.watch.begun[live.plan.run_id]
    running = live.still_running()
    live.start_driver()
    if live.plan.resume != "when finished":
        live.wait(lambda: live.watch.begun[live.plan.run_id] > begun)
        live.wake()
    return hit if running else miss


def _start_second_driver(live: LiveRound, plan: TableRoundPlan, place: Place) -> Callable[[], bool]:
    """Start another driver, and wait until it has taken the run over, or finished it."""
    run_id = live.plan.run_id
    running = live.still_running()
    begun = live.watch.begun[run_id]
    live.start_driver()
    live.wait(lambda: live.watch.begun[run_id] > begun)
    return hit if running and live.watch.begun[run_id] > begun else miss


def _let_other_write(live: LiveRound, plan: TableRoundPlan, place: Place) -> Callable[[], bool]:
    """Let another writer commit between a look at the table and the commit on its condition."""
    place.write_as_other(plan.table, live.plan.number)
    return hit if live.still_running() else miss


def _lose_upload(live: LiveRound, plan: TableRoundPlan, place: Place) -> Callable[[], bool]:
    if place.served is None or not live.at_point():
        return miss
    rule = HttpRule(
        action="drop_answer" if plan.answer_only else "drop",
        method="PUT",
        path=_UPLOAD,
        skip=live.plan.skip,
    )
    return _harmed(live, place.served.store, rule)


def _lose_commit(live: LiveRound, plan: TableRoundPlan, place: Place) -> Callable[[], bool]:
    if place.served is None or not live.wait(lambda: live.begun):
        return miss
    proxy, rule = place.served.rule_of_commit(plan.table, "drop_answer" if plan.answer_only else "drop")
    return _harmed(live, proxy, rule)


def _harmed(live: LiveRound, proxy: HttpProxy, rule: HttpRule) -> Callable[[], bool]:
    number = proxy.add(rule)

    def harmed() -> bool:
        found = reached(proxy, number)
        proxy.release(number)
        return found is not None and found.at_seconds < live.watch.finished_at.get(live.plan.run_id, 0.0)

    return harmed


STRIKES: Mapping[TableFault, TableStrike] = {
    TableFault.WORKER_KILLED: _kill_worker,
    TableFault.EXECUTOR_KILLED: _kill_executor,
    TableFault.DRIVER_KILLED: _kill_driver,
    TableFault.DRIVER_AT_COMMIT: _kill_driver,
    TableFault.BROKER_KILLED: _kill_broker,
    TableFault.CATALOG_KILLED: _kill_catalog,
    TableFault.COMMIT_LATE: _start_second_driver,
    TableFault.STOPPED: _stop_driver,
    TableFault.SECOND_DRIVER: _start_second_driver,
    TableFault.OTHER_WRITER: _let_other_write,
    TableFault.UPLOAD_LOST: _lose_upload,
    TableFault.COMMIT_LOST: _lose_commit,
}
#: These lie in wait for a request, rather than coming at a moment.
_IN_WAIT = frozenset({TableFault.UPLOAD_LOST, TableFault.COMMIT_LOST})
