"""Finds what is wrong with an application although its runs are green.

Rule: a run is compared with the finished runs before it, at most the last ten of those that had records, and
with none before there were three. Each suspicion gives its rule, its threshold and both figures. Thresholds
are the settings ``suspicion.*`` that the run began with, unless the look is given others. What waits, or does
not come, is judged by those of the last run.

- nothing-new: nothing new has come for more than ``suspicion.quiet.times`` the longest time that has passed
  between two runs with records; of a run that was empty, and of an application for which nothing waits.
- fewer, more: the run has read fewer than 1/n, or more than n times, the records of the middle one of these
  runs; n is ``suspicion.records.times``.
- share: more than ``suspicion.lost.share`` of the records were late, parked or dead-lettered, and more than
  twice the share that the middle one of these runs had.
- untaken: records wait, no driver works, and no run has begun for more than ``suspicion.quiet.times`` the
  longest time between the begins of two runs: a paused DAG, a scheduler that is down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

import msgspec

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.parked import sum_parked
from airflow_kstreams.batch.protocol.slice.slice import Thresholds
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.time_texts import duration_text
from airflow_kstreams.streams.settings import SETTINGS, ApplicationSettings

#: Number of runs that a run is compared with, and the fewest that tell what is usual.
COMPARED = 10
_FEWEST = 3

SuspicionRule = Literal["nothing-new", "fewer", "more", "share", "untaken"]
ThresholdSource = Literal["run", "given", "default"]


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    """A reason to doubt a run, or an application, that has not failed.

    :param rule: rule that found it.
    :param text: the finding, with the figures, in one sentence.
    :param figure: the figure that was judged.
    :param usual: the figure of the runs before.
    :param setting: setting that has the threshold.
    :param threshold: value of that setting.
    :param source: where the value comes from: the settings of the run, those given to the look, or the
        default, where the run's are not known.
    """

    rule: SuspicionRule
    text: str
    figure: float
    usual: float
    setting: str
    threshold: float
    source: ThresholdSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The thresholds of a look, each with its source.

    :param settings: those of the look; a value that differs from the default counts as given.
    :param own: those that the run began with.
    """

    settings: ApplicationSettings
    own: Thresholds | None

    def of(self, setting: str) -> tuple[float, ThresholdSource]:
        """Return a threshold and its source.

        :param setting: name of the setting.
        """
        asked = getattr(self.settings, setting.replace(".", "_"))
        if asked != SETTINGS[setting].default:
            return asked, "given"
        if self.own is None:
            return asked, "default"
        return getattr(self.own, setting.removeprefix("suspicion.").replace(".", "_")), "run"


_QUIET, _RECORDS, _SHARE = "suspicion.quiet.times", "suspicion.records.times", "suspicion.lost.share"


def of_run(
    run: RunSummary, before: Sequence[RunSummary], settings: ApplicationSettings
) -> tuple[Suspicion, ...]:
    """Return what is odd about a finished run.

    :param before: the finished runs before it, the last one first.
    :param settings: of the look.
    """
    earlier = [each for each in before if not each.empty]
    bounds = Bounds(settings=settings, own=run.thresholds)
    if run.empty:
        return nothing_new(run.begun_ms, earlier, bounds)
    known = [each for each in earlier if each.records_in is not None][:COMPARED]
    if len(known) < _FEWEST or run.records_in is None:
        return ()
    return (*_other_number(run, known, bounds), *_shares(run, known, bounds))


def untaken(lag: int, begun: Sequence[int], now_ms: int, bounds: Bounds) -> tuple[Suspicion, ...]:
    """Return the suspicion that no run will take the records that wait.

    :param lag: number of offsets that wait, while no driver works.
    :param begun: times at which the last runs began, the last one first, epoch milliseconds.
    """
    usual_ms = _longest_gap(begun[: COMPARED + 1])
    since_ms = now_ms - begun[0] if begun else 0
    times, source = bounds.of(_QUIET)
    if not lag or usual_ms is None or since_ms <= times * usual_ms:
        return ()
    waiting = f"{counted(lag, 'offset')} wait{'s' if lag == 1 else ''}"
    return (
        Suspicion(
            rule="untaken",
            text=f"{waiting} and no run has begun for {duration_text(since_ms)}, usually one does within "
            f"{duration_text(usual_ms)}: is its DAG paused?",
            figure=since_ms / 1000,
            usual=usual_ms / 1000,
            setting=_QUIET,
            threshold=times,
            source=source,
        ),
    )


def nothing_new(at_ms: int, earlier: Sequence[RunSummary], bounds: Bounds) -> tuple[Suspicion, ...]:
    """Return the suspicion that nothing new comes any more.

    :param at_ms: time at which there was nothing new, epoch milliseconds.
    :param earlier: the finished runs before it that had records, the last one first.
    """
    begun = [run.begun_ms for run in earlier[: COMPARED + 1]]
    usual_ms, (times, source) = _longest_gap(begun), bounds.of(_QUIET)
    if usual_ms is None or at_ms - begun[0] <= times * usual_ms:
        return ()
    return (
        Suspicion(
            rule="nothing-new",
            text=f"nothing new has come for {duration_text(at_ms - begun[0])}, usually it does within "
            f"{duration_text(usual_ms)}",
            figure=(at_ms - begun[0]) / 1000,
            usual=usual_ms / 1000,
            setting=_QUIET,
            threshold=times,
            source=source,
        ),
    )


def _other_number(run: RunSummary, known: Sequence[RunSummary], bounds: Bounds) -> Iterator[Suspicion]:
    found, usual = run.records_in or 0, median(each.records_in or 0 for each in known)
    times, source = bounds.of(_RECORDS)
    rule: SuspicionRule | None = None
    if found * times < usual:
        rule = "fewer"
    elif found > usual * times:
        rule = "more"
    if rule is not None:
        yield Suspicion(
            rule=rule,
            text=f"{counted(found, 'record')} in, far {rule} than the {usual:,.0f} of the middle one of the "
            f"last {counted(len(known), 'run')}",
            figure=found,
            usual=usual,
            setting=_RECORDS,
            threshold=times,
            source=source,
        )


_LOST: dict[str, Callable[[RunSummary], int | None]] = {
    "late": lambda run: None if run.counts is None else run.counts.by("late"),
    "dead-lettered": lambda run: None if run.counts is None else run.counts.by("dead-lettered"),
    "parked": lambda run: sum_parked(run.parked) if run.parked else 0,
}


def _shares(run: RunSummary, known: Sequence[RunSummary], bounds: Bounds) -> Iterator[Suspicion]:
    largest, source = bounds.of(_SHARE)
    for what, count in _LOST.items():
        share = _share(run, count)
        earlier = [each for each in (_share(one, count) for one in known) if each is not None]
        if share is None or len(earlier) < _FEWEST:
            continue
        usual = median(earlier)
        if share > largest and share > 2 * usual:
            yield Suspicion(
                rule="share",
                text=f"{share:.1%} of the records were {what}, {usual:.1%} in the middle one of the last "
                f"{counted(len(earlier), 'run')}",
                figure=share,
                usual=usual,
                setting=_SHARE,
                threshold=largest,
                source=source,
            )


def _share(run: RunSummary, count: Callable[[RunSummary], int | None]) -> float | None:
    lost = count(run)
    return None if lost is None or run.records_in is None else lost / max(1, run.records_in)


def _longest_gap(begun: Sequence[int]) -> int | None:
    """Return the longest time between two begins that follow each other; None of too few runs."""
    return max(later - earlier for later, earlier in pairwise(begun)) if len(begun) > _FEWEST else None
