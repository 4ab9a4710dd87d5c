"""Tells an application that a cluster knows from a misspelt id, of which the cluster holds nothing.

Rule: an application is known by its committed offsets, its metadata topic, its ledger or its dead-letter
topic. A reset, which lists the internal topics, knows one by those, too, and raises the same error. The ids
in the remedy are those of applications that have a ledger.

Commands refuse an unknown id, doctor unless its first run is said to come. Where one may still come, for
sensors, it is said together with the ids that are spelt alike.
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

    :raises ConfigError: the id is unknown; the text gives the known ids that are spelt alike.
    """
    topics = admin.topic_names()
    if not has_topics(application_id, topics) and application_id not in admin.group_ids():
        raise unknown_application(application_id, topics)


def has_topics(application_id: str, topics: Collection[str]) -> bool:
    """Tell whether one of the topics that runs of an application make first is there.

    :param topics: names of all topics of the cluster.
    """
    own = ProtocolTopics(application_id)
    return not {*own.protocol, own.dead_letters}.isdisjoint(topics)


def unknown_application(application_id: str, topics: Collection[str]) -> ConfigError:
    """Return the error of an application id of which the cluster holds nothing.

    :param topics: names of all topics of the cluster.
    """
    return ConfigError(
        f"there is no application {application_id!r} on this cluster: no committed offsets, no metadata "
        "topic, no ledger, no internal topics",
        fix=f"correct --application-id{ids_alike(application_id, topics)} or --bootstrap-server, or run it "
        "first; airflow-kstreams status --all lists those that have run",
    )


def ids_alike(application_id: str, topics: Collection[str]) -> str:
    """Return the ids of known applications that are spelt alike as a question in brackets, empty without any.

    :param topics: names of all topics of the cluster.
    """
    known = [topic.removesuffix(_LEDGER) for topic in sorted(topics) if topic.endswith(_LEDGER)]
    close = difflib.get_close_matches(application_id, known, n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
