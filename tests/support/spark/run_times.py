"""Where the time of a run has gone, as its driver's log tells it, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

_LINE = re.compile(
    r"^(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) INFO airflow_kstreams\S*: (?P<text>.*)$", re.MULTILINE
)
PYTHON, BEGIN, FENCING = "start of Python", "begin, fencing apart", "fencing"
SPARK, STOPS, FINISH, END = "start of Spark's session", "stops between", "finish", "end of its processes"
_SUBTOPOLOGY = "subtopology {}"
_ORDER = (PYTHON, BEGIN, FENCING, SPARK, STOPS, _SUBTOPOLOGY, FINISH, END)
#: A line of the log, and what ends with it.
_ENDS = {
    r"run \S+ is to begin$": PYTHON,
    r"fencing \d+ transactional ids? of the last tasks$": BEGIN,
    r"fenced \d+ transactional ids?$": FENCING,
    r"run \S+ began, at most": BEGIN,
    r"claimed the slice of run": BEGIN,
    r"Spark session ready$": SPARK,
    r"subtopology \d+: launching \d+ tasks?$": STOPS,
    r"subtopology (\d+): its tasks have ended$": _SUBTOPOLOGY,
    r"run \S+ is finished$": FINISH,
}


def seconds_of_run(log: str, *, started: float, ended: float) -> dict[str, float]:
    """Return the seconds that each part of a run took, in the order in which they came first.

    A driver that was killed has spent the last of its time in the subtopology that it had launched.

    :param log: what its driver has printed.
    :param started: when its process was started, seconds since the epoch.
    :param ended: when it was gone.
    """
    seconds: dict[str, float] = {}
    before, last = started, END
    for line in _LINE.finditer(log):
        name = _ended_by(line["text"])
        if name is not None:
            at = datetime.strptime(line["at"], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()
            seconds[name] = seconds.get(name, 0.0) + at - before
            before = at
            last = line["text"].split(":")[0] if name == STOPS else END
    seconds[last] = seconds.get(last, 0.0) + ended - before
    return seconds


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of parts in the order of a run."""
    return sorted({*names}, key=lambda name: (_ORDER.index(re.sub(r"\d+$", "{}", name)), name))


def _ended_by(text: str) -> str | None:
    for pattern, name in _ENDS.items():
        if found := re.search(pattern, text):
            return name.format(*found.groups())
    return None
