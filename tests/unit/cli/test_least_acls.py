"""What ``airflow-kstreams acls`` lists is enough for all work, in memory, and none of it is too much.

The long proof does the same on a broker with an authorizer (``integration/security/test_each_permission``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from airflow_kstreams.cli.least_acls import Purpose, needed_lines
from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.naming.permissions import Permission
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.kafka.permission_trials import missed, needed_of_all, tried
from tests.support.kafka.permitted_work import WORK, Work, by_key, everything

pytestmark = pytest.mark.promise(
    "each-missing-acl-is-named", "each-acl-serves-what-it-says", "catch-ups-need-what-is-listed"
)

#: Work that not every topology allows.
_TOPOLOGIES: dict[Purpose, Callable[[str], Topology]] = {
    Purpose.EXPAND_PROCESSORS: by_key,
    Purpose.EXPAND_ABORT: by_key,
    Purpose.CONTINUOUS: partial(everything, table=False),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Hundreds of refused attempts are of no interest in a log."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def named(permission: Permission) -> str:
    return f"{permission.operation} {permission.name}"


@pytest.mark.parametrize("work", WORK, ids=str)
def test_work_is_done_with_its_list_and_fails_without_what_it_needs(work: Work) -> None:
    for permission, outcome in tried(work).outcomes.items():
        if outcome is None:
            assert permission.without, f"{work} makes use of {permission} and is done without it"
        else:
            assert missed(work, permission, outcome), f"without {permission}: {outcome}"


@pytest.mark.parametrize("purpose", Purpose)
def test_each_permission_of_a_list_is_needed_by_some_of_its_work(purpose: Purpose) -> None:
    topology = _TOPOLOGIES.get(purpose, everything)
    settings = ApplicationSettings.parse("app", {"deserialization.exception.handler": "dead-letter"})
    # Before and after an application runs continuously, it runs in batches.
    purposes = {purpose, *([Purpose.RUN] if purpose is Purpose.CONTINUOUS else [])}
    work = [each for each in WORK if purposes & {*each.purposes}]
    used = {permission for each in work for permission in tried(each).exact}
    reasons = {(each.operation, each.reason) for each in used}
    for line in needed_lines(topology("app").plan("app"), settings, [purpose]):
        each = line.permission
        # What is about growth is used where topics have grown, which those of everything have not.
        assert each in used or (each.operation, each.reason) in reasons, f"nothing needs {each}"


@pytest.mark.parametrize("work", WORK, ids=str)
def test_line_says_whom_it_serves_when_all_lists_are_given_together(work: Work) -> None:
    for line in needed_of_all(work):
        assert {*line.serves} & {*work.purposes}, f"{work} needs {line}"


def test_each_sensor_needs_what_the_list_says_of_it() -> None:
    found = {
        str(work): {named(each) for each, outcome in tried(work).outcomes.items() if outcome is not None}
        for work in WORK
        if work.purposes == (Purpose.WATCH,)
    }
    ledger, both = {"Read app-runs"}, {"Read app-runs", "Read app-metadata"}
    between = {"Describe app-parity-repartition", "Describe middle-app"}
    counted = {*both, "Read in-app", "Describe app"}
    assert found == {
        "RunFinishedSensor": ledger,
        "finished_run": ledger,
        "NewDataSensor": counted,
        "CaughtUpSensor": counted,
        "StopOffsetsReachedSensor": {*both, "Read in-app", "Describe app", *between},
        "status": {*counted, *between},
        "status of copies": {*counted, "Describe app-counts-changelog", "Describe app-catchup"},
    }
