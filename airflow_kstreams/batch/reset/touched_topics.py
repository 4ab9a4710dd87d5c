"""Finds the topics that a reset touches: those that the application reads, and its own internal ones.

Rule: only topics whose name says that an application made them for itself are ever deleted,
``<app>-...-changelog`` and ``<app>-...-repartition``, and retry topics that runs have recorded: people name
topics of their own ``...-retry``. Application ids may be beginnings of one another
(``orders``, ``orders-eu``), so a name alone does not say whose topic it is. Topics that the application's own
runs recorded are its own; any other that another application may have made stays, unless the user names it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.naming.topic_names import (
    BETWEEN_ENDINGS,
    OWN_ENDINGS,
    PROTOCOL_ENDINGS,
    ProtocolTopics,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTopics:
    """The topics of an application that earlier runs recorded; all empty when there was no run.

    :param inputs: topics it reads and does not write.
    :param intermediates: topics of the user's that it writes and reads.
    :param outputs: topics it only writes.
    :param internal: repartition topics and changelogs, retry topics among them.
    """

    inputs: frozenset[str] = frozenset()
    intermediates: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    internal: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopics:
    """The topics that bear names of internal topics of an application.

    :param own: internal topics of the application, which may be deleted.
    :param ambiguous: topic that may belong to another application -> that application's id.
    """

    own: tuple[str, ...]
    ambiguous: Mapping[str, str]


def recorded_topics(slice_: Slice | None, ledger: Ledger) -> RecordedTopics:
    """Gather the topics of an application from the last slice and the ledger."""
    internal = {topic for entry in ledger.assignment.entries for topic in entry.changelogs}
    own = () if ledger.own_topics is None else ledger.own_topics.topics
    internal |= {topic for topic in own if topic.endswith(OWN_ENDINGS)}
    if slice_ is not None:
        plan = slice_.plan.topology
        internal |= {*plan.changelogs, *plan.repartition_topics}
        return RecordedTopics(
            inputs=frozenset(plan.inputs),
            intermediates=frozenset(plan.intermediates) - internal,
            outputs=frozenset(plan.outputs) - internal,
            internal=frozenset(internal),
        )
    last = ledger.newest_entry
    if last is None:
        return RecordedTopics(internal=frozenset(internal))
    inputs, read = frozenset(last.input_topics), last.source_topics
    named = ProtocolTopics(last.application_id)
    internal |= {topic for topic in read - inputs if named.is_internal(topic)}
    return RecordedTopics(
        inputs=inputs, intermediates=frozenset(read) - inputs - internal, internal=frozenset(internal)
    )


def internal_topics(
    application_id: str,
    recorded: RecordedTopics,
    *,
    topics: Collection[str],
    groups: Collection[str],
    user_topics: Collection[str],
) -> InternalTopics:
    """Find an application's internal topics.

    :param topics: names of all topics of the cluster.
    :param groups: ids of all consumer groups of the cluster.
    :param user_topics: topics that the user has named as inputs or intermediates; their names may be of any
        form.
    """
    users = {*user_topics, *recorded.inputs, *recorded.intermediates, *recorded.outputs}
    others = _other_applications(application_id, topics, groups)
    own: list[str] = []
    ambiguous: dict[str, str] = {}
    for topic in sorted(topics):
        named = ProtocolTopics(application_id).is_internal(topic)
        if topic in users or not (named or topic in recorded.internal):
            continue
        owner = next((other for other in others if topic.startswith(f"{other}-")), None)
        if owner is None or topic in recorded.internal:
            own.append(topic)
        else:
            ambiguous[topic] = owner
    return InternalTopics(own=tuple(own), ambiguous=ambiguous)


def chosen_topics(
    application_id: str, found: InternalTopics, recorded: Collection[str], asked: Collection[str]
) -> tuple[str, ...]:
    """Return the internal topics to delete, and to forget: all of the application's, or those the user asks
    for.

    :param recorded: internal topics that runs have recorded, whether they still exist or not.
    :raises ConfigError: a topic that was asked for is none of the application's.
    """
    for topic in asked:
        if topic not in found.own and topic not in found.ambiguous and topic not in recorded:
            raise ConfigError(
                f"there is no internal topic {topic!r} of application {application_id!r}",
                fix="see with --dry-run and without --internal-topics which ones there are",
            )
    return tuple(sorted(set(asked) or {*found.own, *recorded}))


def own_unread_topics(
    application_id: str, asked: Collection[str], *, own: Collection[str], users: Collection[str]
) -> tuple[str, ...]:
    """Return the repartition topics among those whose unread records are to be given up.

    :param own: internal topics that runs have recorded.
    :param users: the user's topics between subtopologies in which runs may have left records.
    :raises ConfigError: another topic is among them.
    """
    between = {topic for topic in own if topic.endswith(BETWEEN_ENDINGS)}
    for topic in asked:
        if topic not in between and topic not in users:
            raise ConfigError(
                f"runs of application {application_id!r} have left no unread records in topic {topic!r}",
                fix="correct --unread-topics: it takes topics between two subtopologies, as begin names them",
            )
    return tuple(sorted(between & {*asked}))


def refuse_unknown_topics(
    application_id: str,
    recorded: RecordedTopics,
    *,
    inputs: Collection[str],
    intermediates: Collection[str],
    committed: Collection[str],
) -> None:
    """Compare the topics that the user names with those that the last run read and wrote.

    :param committed: topics for which the group has committed offsets.
    :raises ConfigError: a topic is not read, or has another role.
    """
    for topic in sorted({*inputs} & {*intermediates}):
        raise ConfigError(f"topic {topic!r} is named as input and as intermediate topic", fix="name it once")
    if not recorded.inputs:
        return
    for option, named, right, other in (
        ("--input-topics", inputs, recorded.inputs, ("--intermediate-topics", recorded.intermediates)),
        ("--intermediate-topics", intermediates, recorded.intermediates, ("--input-topics", recorded.inputs)),
    ):
        for topic in sorted(set(named) - right):
            if topic in other[1]:
                raise ConfigError(
                    f"{option} names topic {topic!r}, which application {application_id!r} has among its "
                    f"{'intermediate' if other[0] == '--intermediate-topics' else 'input'} topics",
                    fix=f"name it by {other[0]}",
                )
            if topic not in committed:
                raise ConfigError(
                    f"application {application_id!r} does not read topic {topic!r}: its last run had the "
                    f"inputs {', '.join(sorted(recorded.inputs))}"
                    + (
                        f" and the intermediate topics {', '.join(sorted(recorded.intermediates))}"
                        if recorded.intermediates
                        else ""
                    ),
                    fix=f"correct {option}; a topic that no run has read yet needs no reset",
                )


def _other_applications(application_id: str, topics: Collection[str], groups: Collection[str]) -> list[str]:
    """Return the ids of the other applications, the longest first."""
    ids = {
        topic.removesuffix(ending)
        for topic in topics
        for ending in PROTOCOL_ENDINGS
        if topic.endswith(ending)
    }
    return sorted(({*groups} | ids) - {application_id, ""}, key=lambda name: (-len(name), name))
