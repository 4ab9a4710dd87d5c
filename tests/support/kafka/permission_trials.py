"""Does permitted work in memory without some of its permissions, and says what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache, partial

from airflow_kstreams.cli.least_acls import NeededLine, Purpose, needed_lines
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.permissions import Permission
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.authorizer import Authorizer
from tests.support.kafka.permitted_work import Scene, Unseen, Work


def listed(scene: Scene, work: Work) -> list[Permission]:
    """Return what ``airflow-kstreams acls`` lists for the work."""
    settings = scene.application(owner=True).checked
    return [line.permission for line in needed_lines(scene.plan, settings, work.purposes)]


def attempt(work: Work, scene: Scene) -> Exception | None:
    """Do the work; return what was refused or could not be seen, None if it was done."""
    try:
        work.do(scene)
    except (AccessDeniedError, Unseen) as refused:
        return refused
    return None


def missed(work: Work, permission: Permission, outcome: Exception) -> bool:
    """Return True if an outcome is that of a missing permission: it names what the permission is on, and of a
    run the permission itself.
    """
    if not isinstance(outcome, AccessDeniedError):
        return bool(permission.without) or permission.name in str(outcome)
    named = outcome.permission
    if {*work.purposes} & {Purpose.RUN, Purpose.CONTINUOUS}:
        return _what(named) == _what(permission)
    if named.resource is not permission.resource:
        return False
    if permission.prefixed:
        return named.name.startswith(permission.name)
    return named.name == permission.name or (named.prefixed and permission.name.startswith(named.name))


def _what(permission: Permission) -> tuple[object, ...]:
    return permission.operation, permission.resource, permission.name, permission.prefixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Work that was done with its list, and then without each of the permissions that it makes use of.

    :param outcomes: permission -> what became of the work without it, None if it was done.
    :param exact: permissions whose own operation the work needs, not one that is included in it.
    """

    outcomes: Mapping[Permission, Exception | None]
    exact: Set[Permission]


@cache
def tried(work: Work) -> Trial:
    """Return what becomes of the work, in memory, without each of the permissions that it makes use of.

    What it makes no use of cannot change it: a memory without other threads does the same each time.
    """
    scene, authorizer = _in_memory(work, lambda permissions: permissions)
    outcome = attempt(work, scene)
    if outcome is not None:
        raise AssertionError(f"{work} is not done with its list") from outcome
    used = [each for each in listed(scene, work) if each in authorizer.decisive]
    found = {one: attempt(work, _in_memory(work, partial(_less, one))[0]) for one in used}
    # A listing of all topics may lack some that the work is not about.
    kept = {one: out for one, out in found.items() if out is not None or one in authorizer.required}
    return Trial(outcomes=kept, exact=authorizer.exact)


def _in_memory(work: Work, given: Callable[[list[Permission]], list[Permission]]) -> tuple[Scene, Authorizer]:
    kafka = InMemoryKafka()
    scene = work.scene("app", kafka, kafka.clock)
    authorizer = Authorizer(given(listed(scene, work)))
    scene.user = authorizer.cluster(kafka)
    return scene, authorizer


def needed_of_all(work: Work) -> set[NeededLine]:
    """Return the lines that the work needs of those that are listed for all purposes together."""
    settings = ApplicationSettings.parse("app", work.settings)
    lines = needed_lines(work.topology("app").plan("app"), settings, list(Purpose))
    every = [line.permission for line in lines]
    scene, authorizer = _in_memory(work, lambda _: every)
    outcome = attempt(work, scene)
    if outcome is not None:
        raise AssertionError(f"{work} is not done with all lists") from outcome
    return {
        line
        for line in lines
        if line.permission in authorizer.required
        and ({*line.serves} & {*work.purposes} or not _is_done_without(work, line.permission, every))
    }


def _is_done_without(work: Work, one: Permission, permissions: list[Permission]) -> bool:
    return attempt(work, _in_memory(work, lambda _: _less(one, permissions))[0]) is None


def _less(one: Permission, permissions: list[Permission]) -> list[Permission]:
    return [each for each in permissions if each != one]
