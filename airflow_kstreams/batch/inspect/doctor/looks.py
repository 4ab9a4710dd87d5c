"""Defines findings and the looks that yield them, and makes looks: in turn, or side by side within a time.

A look yields findings, and further looks that became possible by what it saw. Rule of time: side by side,
each look has a thread of its own, and what it has found when the time is over counts. A look that has not
ended is itself a finding, "not looked at", and so is one that the cluster did not answer: nothing that was
not seen passes for well. The threads are daemons, so that a call which never returns ends with the process.

Findings keep the order of the looks, whichever ends first.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from airflow_kstreams.streams.errors import KafkaClientError, KStreamsError


class Level(enum.Enum):
    """The severity of a finding.

    An error breaks the promise, or the next run; a warning may, some day; ``OK`` is a check that found
    nothing wrong, and ``UNSEEN`` one that could not be made.
    """

    OK = "ok"
    UNSEEN = "not looked at"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    :param level: its severity: ok, not looked at, warning or error.
    :param check: name of the check.
    :param code: what was found, in words that do not change: of each fault its own, else the check's name.
    :param text: the finding, and its consequence unless all is well.
    :param fix: the remedy; empty when there is nothing to do.
    """

    level: Level
    check: str
    code: str
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorLook:
    """A part of the diagnosis, which may be made beside others.

    :param check: name of the check that it makes, for what is said when it cannot.
    :param findings: makes the look.
    """

    check: str
    findings: Callable[[], Iterator[Finding | DoctorLook]]


#: Makes a look and those that it yields.
Looking = Callable[[DoctorLook], list[Finding]]


def ok(check: str, text: str) -> Finding:
    """Build the finding of a check that found all well."""
    return Finding(level=Level.OK, check=check, code=_code(check), text=text)


def unseen(check: str, text: str, fix: str = "") -> Finding:
    """Build the finding of a check that could not be made."""
    return Finding(level=Level.UNSEEN, check=check, code=_code(check), text=text, fix=fix)


def warning(check: str, code: str, text: str, fix: str) -> Finding:
    """Build a finding that an operator should look at."""
    return Finding(level=Level.WARNING, check=check, code=code, text=text, fix=fix)


def error(check: str, code: str, text: str, fix: str) -> Finding:
    """Build a finding that must be mended."""
    return Finding(level=Level.ERROR, check=check, code=code, text=text, fix=fix)


def not_permitted(what: str, refused: KafkaClientError) -> Finding:
    """Build the finding of a check that this user may not make.

    :param what: subject of the sentence "... cannot be looked at", e.g. "the broker's settings".
    :raises KafkaClientError: the error is one that may be gone on the next try.
    """
    if refused.is_retriable:
        raise refused
    return unseen("permissions", f"{what} cannot be looked at: {refused.cause}", refused.fix)


def _code(check: str) -> str:
    return check.replace(".", " ").replace(" ", "-")


def in_turn(look: DoctorLook) -> list[Finding]:
    """Make a look, and each further one where it is yielded.

    :raises KafkaClientError: the cluster did not answer one.
    """
    found: list[Finding] = []
    for each in look.findings():
        found += in_turn(each) if isinstance(each, DoctorLook) else [each]
    return found


def side_by_side(looks: Sequence[DoctorLook], *, seconds: float) -> list[Finding]:
    """Make looks, and those that they yield, all at once.

    :param seconds: time for all of them.
    """
    making = _Making()
    begun = [making.begin(look) for look in looks]
    making.await_end(time.monotonic() + seconds)
    with making.ended:
        if making.failures:
            raise making.failures[0]
        return [finding for each in begun for finding in each.findings(seconds)]


@dataclass(slots=True)
class _Begun:
    """A look that was begun, and what it has found so far."""

    look: DoctorLook
    found: list[Finding | _Begun] = field(default_factory=list)
    running: bool = True

    def findings(self, seconds: float) -> Iterator[Finding]:
        """Yield its findings, and that it has not ended."""
        for each in self.found:
            if isinstance(each, _Begun):
                yield from each.findings(seconds)
            else:
                yield each
        if self.running:
            yield unseen(
                self.look.check, f"no end within {seconds:g} s", "wait longer for it: --timeout SECONDS"
            )


class _Making:
    """Makes looks on threads. Whoever reads or changes what they have found holds ``ended``."""

    def __init__(self) -> None:
        self.ended = threading.Condition()
        self.failures: list[BaseException] = []
        self._running = 0

    def begin(self, look: DoctorLook) -> _Begun:
        """Begin a look."""
        begun = _Begun(look)
        with self.ended:
            self._running += 1
        threading.Thread(target=self._make, args=(begun,), name=f"doctor: {look.check}", daemon=True).start()
        return begun

    def await_end(self, deadline: float) -> None:
        """Wait until no look is running, or one failed, or the deadline has come."""
        with self.ended:
            while self._running and not self.failures and (left := deadline - time.monotonic()) > 0:
                self.ended.wait(left)

    def _make(self, begun: _Begun) -> None:
        failure: BaseException | None = None
        try:
            for each in begun.look.findings():
                found = self.begin(each) if isinstance(each, DoctorLook) else each
                with self.ended:
                    begun.found.append(found)
        except KStreamsError as error:
            with self.ended:
                begun.found.append(unseen(begun.look.check, error.cause, error.fix))
        except BaseException as error:  # of this package itself: the thread that waits raises it
            failure = error
        with self.ended:
            begun.running = False
            self._running -= 1
            if failure is not None:
                self.failures.append(failure)
            self.ended.notify_all()
