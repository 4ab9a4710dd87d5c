"""Tells an application that a cluster knows from a misspelt id, of which the cluster holds nothing.

Rule: an application is known by its committed offsets, its metadata topic, its ledger or its dead-letter
topic. A reset, which lists the internal topics, knows one by those, too, and raises the same error. The ids
in the remedy are those of applications that have a ledger.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import AdminPort

_LEDGER = ProtocolTopics("").ledger


def refuse_unknown_application(admin: AdminPort, application_id: str) -> None:
    """Refuse an application id of which the cluster has neither topics nor offsets.

    :raises ConfigError: with the known ids that are spelt alike.
    """
    topics, own = admin.topic_names(), ProtocolTopics(application_id)
    if not topics.intersection((*own.protocol, own.dead_letters)) and application_id not in admin.group_ids():
        raise unknown_application(application_id, topics)


def unknown_application(application_id: str, topics: Collection[str]) -> ConfigError:
    """Return the error of an application id of which the cluster holds nothing.

    :param topics: names of all topics of the cluster.
    """
    known = [topic.removesuffix(_LEDGER) for topic in sorted(topics) if topic.endswith(_LEDGER)]
    close = difflib.get_close_matches(application_id, known, n=3, cutoff=0.6)
    alike = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
    return ConfigError(
        f"there is no application {application_id!r} on this cluster: no committed offsets, no metadata "
        "topic, no ledger, no internal topics",
        fix=f"correct --application-id{alike} or --bootstrap-server",
    )
