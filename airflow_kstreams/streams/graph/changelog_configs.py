"""Which settings a changelog topic may have.

A changelog is a table of the newest entry per key. It is compacted and nothing else: what a user wants to
expire is deleted by the store, with a tombstone, so that the store and its changelog agree. Its records carry
the entries' own timestamps, which may be of any time.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.naming.changelog_names import TOPIC_SETTINGS, is_topic_setting
from airflow_kstreams.streams.settings import nearest

#: Setting -> the only value it may have, and why.
_OWNED: Mapping[str, tuple[str, str]] = {
    "cleanup.policy": ("compact", "deleting by time or size would take entries from the store"),
    "retention.ms": ("-1", "entries must not expire while the store holds them"),
    "retention.bytes": ("-1", "entries must not expire while the store holds them"),
    "message.timestamp.type": ("CreateTime", "records carry the timestamps of the store's entries"),
    "message.timestamp.before.max.ms": (str(2**63 - 1), "entries may be of any time"),
    "message.timestamp.after.max.ms": (str(2**63 - 1), "entries may be of any time"),
}


def check_changelog_configs(store: str, configs: Mapping[str, str], *, logged: bool, where: str) -> None:
    """Refuse settings that no topic has, and those that would break a store's changelog.

    :param store: its name.
    :param configs: setting -> value.
    :param logged: whether the store has a changelog.
    :param where: the user's file and line.
    :raises TopologyError: there is no such setting, it may not have this value, or there is no changelog.
    """
    if configs and not logged:
        raise TopologyError(
            f"{where}: store {store!r} has changelog_configs, but logged=False: it has no changelog",
            fix="leave changelog_configs out, or log the store",
        )
    for name, value in configs.items():
        if not is_topic_setting(name):
            raise TopologyError(
                f"{where}: store {store!r} sets {name!r} in changelog_configs, which is no setting of a "
                "topic",
                fix=nearest(name, sorted(TOPIC_SETTINGS)),
            )
        allowed, reason = _OWNED.get(name, (str(value), ""))
        if str(value) != allowed:
            raise TopologyError(
                f"{where}: store {store!r} sets {name}={value} for its changelog, which must be {allowed}: "
                f"{reason}",
                fix=f"leave {name} out of changelog_configs",
            )
