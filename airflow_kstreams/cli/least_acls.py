"""Finds the least ACLs that serve the work of a Kafka user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_kstreams.streams.naming.permissions import Permission
    from airflow_kstreams.streams.plan import TopologyPlan
    from airflow_kstreams.streams.settings import ApplicationSettings


class Purpose(StrEnum):
    """Task of the user."""

    RUN = "run"
    CONTINUOUS = "continuous"
    RESET = "reset"
    REPLAY = "replay"
    EXPAND = "expand"
    EXPAND_PROCESSORS = "expand-processors"
    EXPAND_ABORT = "expand-abort"
    DOCTOR = "doctor"
    STATE = "state"
    WATCH = "watch"
    FOLLOW = "follow"
    EXPLORE = "explore"


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededLine:
    """One ACL, and the work that fails without it.

    :param permission: the ACL; its reason is that of all the work.
    :param serves: the purposes that need it.
    """

    permission: Permission
    serves: tuple[Purpose, ...]

    def including(self, other: NeededLine) -> NeededLine:
        """Return this line for the work of another one, too, whose permission it includes."""
        reasons = dict.fromkeys([*self.permission.reason.split("; "), *other.permission.reason.split("; ")])
        without = ""
        if self.permission.without and other.permission.without:
            both = (self.permission.without, other.permission.without)
            without = "; ".join(dict.fromkeys(each for text in both for each in text.split("; ")))
        return NeededLine(
            permission=replace(self.permission, reason="; ".join(reasons), without=without),
            serves=tuple(each for each in Purpose if each in (*self.serves, *other.serves)),
        )


def needed_lines(
    plan: TopologyPlan, settings: ApplicationSettings, purposes: Sequence[Purpose]
) -> list[NeededLine]:
    """Return the ACLs of a user, by resource: none that another one includes, and each with the work that
    fails without it.
    """
    from airflow_kstreams.batch.protocol import needed_permissions as of

    makers = {
        Purpose.RUN: lambda: of.run_permissions(plan, settings),
        Purpose.CONTINUOUS: lambda: of.continuous_permissions(plan, settings),
        Purpose.RESET: lambda: of.reset_permissions(plan),
        Purpose.REPLAY: lambda: of.replay_permissions(plan, settings),
        Purpose.EXPAND: lambda: of.expand_permissions(plan),
        Purpose.EXPAND_PROCESSORS: lambda: of.expand_processors_permissions(plan),
        Purpose.EXPAND_ABORT: lambda: of.expand_abort_permissions(plan),
        Purpose.DOCTOR: lambda: of.doctor_permissions(plan),
        Purpose.STATE: lambda: of.state_permissions(plan),
        Purpose.WATCH: lambda: of.watch_permissions(plan),
        Purpose.FOLLOW: lambda: of.follow_permissions(plan.application_id),
        Purpose.EXPLORE: lambda: of.explore_permissions(plan),
    }
    found: dict[tuple[object, ...], NeededLine] = {}
    for purpose in dict.fromkeys(purposes):
        for permission in makers[purpose]():
            line = NeededLine(permission=permission, serves=(purpose,))
            key = (permission.operation, *_resource(line))
            found[key] = found[key].including(line) if key in found else line
    least = {
        key: line
        for key, line in found.items()
        if not any(one is not line and one.permission.includes(line.permission) for one in found.values())
    }
    for key, line in found.items():
        including = [each for each, one in least.items() if one.permission.includes(line.permission)]
        # Work that two lines allow goes on without either of them.
        if key not in least and len(including) == 1:
            least[including[0]] = least[including[0]].including(line)
    resources = list(dict.fromkeys(map(_resource, least.values())))
    return sorted(least.values(), key=lambda line: resources.index(_resource(line)))


def _resource(line: NeededLine) -> tuple[object, ...]:
    return line.permission.resource, line.permission.name, line.permission.prefixed
