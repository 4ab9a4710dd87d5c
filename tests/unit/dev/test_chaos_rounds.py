from __future__ import annotations

from pathlib import Path

import pytest

from dev.chaos_rounds import log, publish
from dev.chaos_rounds.log import Outcome
from dev.chaos_rounds.plan import Fault, plan_of
from dev.chaos_rounds.strikes import STRIKES


def outcome(number: int = 0, *, hit: bool = True, draw: int = 0, violations: tuple[str, ...] = ()) -> Outcome:
    plan = plan_of(7, number, draw)
    return Outcome(
        seed=7,
        round=number,
        draw=draw,
        fault=plan.fault.value,
        point=plan.point,
        hit=hit,
        attempts=2,
        violations=violations,
    )


def test_round_is_the_same_when_it_is_drawn_again() -> None:
    assert plan_of(7, 3, 1) == plan_of(7, 3, 1)
    assert len({plan_of(7, 3, draw).records for draw in range(20)}) > 1, "another draw is another round"
    assert plan_of(7, 3, 1).fault is plan_of(7, 3, 0).fault, "but of the same fault"


@pytest.mark.parametrize("seed", [0, 7])
def test_every_fault_comes_once_in_each_block(seed: int) -> None:
    size = len(Fault)
    for block in range(3):
        assert {plan_of(seed, block * size + place).fault for place in range(size)} == set(Fault)
    assert STRIKES.keys() == set(Fault)


def test_faults_come_at_all_moments_and_in_all_manners() -> None:
    plans = [plan_of(1, number) for number in range(1_800)]
    early = [plan for plan in plans if plan.begun_seconds is not None]
    assert 150 < len(early) < 600
    assert min(plan.progress for plan in plans) < 0.1 < 0.9 < max(plan.progress for plan in plans)
    stopped = [plan.manner for plan in plans if plan.fault is Fault.STOPPED]
    assert len(set(stopped)) == 2 * 2 * 3, "one worker or all, past its transaction or not, three moments"


def test_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "log.jsonl"
    assert log.read(file) == []
    rounds = [outcome(0), outcome(1, hit=False), outcome(1, draw=1), outcome(2, violations=("lost",))]
    for one in rounds:
        log.append(file, one)
    assert log.read(file) == rounds
    assert [one.verdict for one in rounds] == ["ok", "missed", "ok", "violated"]


def test_rounds_add_up_once_when_logs_of_several_sessions_are_merged() -> None:
    merged = log.merged([outcome(1), outcome(0)], [outcome(1), outcome(2, hit=False), outcome(2, draw=1)])
    assert [(one.round, one.draw) for one in merged] == [(0, 0), (1, 0), (2, 1)], "what missed does not count"
    assert "| **all** | 3 | 6 | 3 | 0 |" in log.markdown(merged)


def test_violation_counts_in_the_summary_whether_its_fault_hit_or_not() -> None:
    table = log.markdown(log.merged([outcome(0, hit=False, violations=("lost",)), outcome(1)]))
    assert "| **all** | 1 | 4 | 2 | 1 |" in table


def test_publishing_adds_rounds_and_renews_the_summary(tmp_path: Path) -> None:
    kept, page, session = tmp_path / "kept.jsonl", tmp_path / "page.md", tmp_path / "log.jsonl"
    page.write_text(
        "before\n<!-- summary: dev/chaos --publish -->\nold\n<!-- end of summary -->\nafter\n",
        encoding="utf-8",
    )
    log.append(kept, outcome(0))
    log.append(session, outcome(1))
    publish.publish(session, kept=kept, page=page)
    assert log.read(kept) == [outcome(0), outcome(1)]
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("<!-- end of summary -->\nafter\n")
    assert "old" not in text
    assert "| **all** | 2 |" in text


def test_page_shows_the_summary_of_the_rounds_that_are_kept() -> None:
    kept = log.read(publish.KEPT)
    assert log.markdown(kept) in publish.PAGE.read_text(encoding="utf-8")
    assert kept == log.merged(kept)
