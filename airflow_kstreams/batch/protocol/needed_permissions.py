"""Lists the permissions that the Kafka user of an application needs: no more, and no less.

Rule: each list is enough by itself for the work that it is for; without any one of its permissions some of
that work fails and names what is missing, unless the list says what happens instead. Tests do all of the work
with each list, and without each of its permissions, on a broker with an authorizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from airflow_kstreams.batch.protocol.replay_records import replay_owner
from airflow_kstreams.batch.protocol.topics import internal_settings
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.permissions import (
    Operation,
    Permission,
    Resource,
    transactional_permission,
)
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics, catch_up_group, followers_group
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topic_patterns import pattern_of, prefix_of
from airflow_kstreams.streams.topology.topology import has_dead_letters

#: Topics in which the brokers keep committed offsets and the states of transactions.
BROKERS_OWN = ("__consumer_offsets", "__transaction_state")
_COPIED = "how far state is copied for more processors"
_UNSEEN = "status does not show which are on their way"
_NO_ROWS = "status does not show them"
_NO_MORE = "runs go on with the processors that there are"


def run_permissions(plan: TopologyPlan, settings: ApplicationSettings) -> tuple[Permission, ...]:
    """Return the permissions that runs need, one entry per operation and resource."""
    app = plan.application_id
    found = [
        *(_topic(topic, "input", Operation.READ) for topic in plan.inputs),
        *(_topic(topic, "global table", Operation.READ) for topic in plan.globals),
        *(_topic(topic, "output", Operation.WRITE) for topic in plan.outputs),
    ]
    for topic in plan.intermediates:
        if topic in plan.repartition_topics:
            is_list = topic == ProtocolTopics(app).table_files
            what = "list of the files for tables" if is_list else "repartition topic"
            found += _owned(topic, what)
            found.append(_topic(topic, f"{what}, emptied after each run", Operation.DELETE))
        else:
            found += [_topic(topic, "intermediate topic", each) for each in (Operation.READ, Operation.WRITE)]
    for topic in sorted(plan.changelogs):
        found += _owned(topic, "changelog")
    if has_dead_letters(plan, settings):
        topic = settings.dead_letter_topic
        if not settings.errors_dead_letter_queue_topic_name:
            found.append(_topic(topic, "dead letters", Operation.CREATE))
        found.append(_topic(topic, "dead letters", Operation.WRITE))
    own = ProtocolTopics(app)
    found += _owned(own.metadata, "metadata topic")
    found += _owned(own.ledger, "run ledger")
    internal = internal_settings(plan)
    found += [
        _settings(topic, changelog=topic in plan.changelogs, kept_locally=bool(settings.state_dir))
        for topic in internal
    ]
    letters = [settings.dead_letter_topic] if has_dead_letters(plan, settings) else []
    user_topics = dict.fromkeys([*plan.sources, *plan.outputs, *letters])
    found += [_limit(topic) for topic in user_topics if topic not in internal]
    if plan.changelogs:
        found.append(_group(catch_up_group(app), _COPIED, Operation.READ, _NO_MORE))
    if settings.backfill_of:
        live, without = ProtocolTopics(settings.backfill_of).ledger, "a run warns that it may lack records"
        found.append(_topic(live, "where the live runs' interval began", Operation.READ, without))
    own_group = _group(app, "committed offsets", Operation.READ)
    return _distinct([*found, own_group, transactional_permission(app)])


def watch_permissions(plan: TopologyPlan) -> tuple[Permission, ...]:
    """Return the permissions of sensors and other watchers, which write nothing."""
    app = plan.application_id
    own = ProtocolTopics(app)
    return (
        _topic(own.metadata, "the run under way: all but RunFinishedSensor", Operation.READ),
        _topic(own.ledger, "finished runs: status and all sensors", Operation.READ),
        *(
            _topic(topic, "records, committed offsets: all but RunFinishedSensor", Operation.READ)
            for topic in plan.inputs
        ),
        *(
            _topic(topic, "committed offsets: status, StopOffsetsReachedSensor", Operation.DESCRIBE)
            for topic in plan.intermediates
        ),
        *(
            [_topic(own.table_files, "rows listed for tables: status", Operation.READ, _NO_ROWS)]
            if plan.tables
            else []
        ),
        _group(app, "committed offsets: all but RunFinishedSensor", Operation.DESCRIBE),
        *(_topic(topic, _COPIED, Operation.DESCRIBE, _UNSEEN) for topic in sorted(plan.changelogs)),
        *([_group(catch_up_group(app), _COPIED, Operation.DESCRIBE, _UNSEEN)] if plan.changelogs else []),
    )


def follow_permissions(application_id: str) -> tuple[Permission, ...]:
    """Return the permissions of those that follow finished runs, under any name: ``FinishedRunsTrigger`` and
    ``new_runs``.
    """
    return (
        _topic(ProtocolTopics(application_id).ledger, "finished runs", Operation.READ),
        Permission(
            operation=Operation.READ,
            resource=Resource.GROUP,
            name=followers_group(application_id, ""),
            prefixed=True,
            reason="which runs a follower has seen",
        ),
    )


def explore_permissions(plan: TopologyPlan) -> tuple[Permission, ...]:
    """Return the permissions for a sample of real input."""
    own = {*plan.inputs, *plan.globals}
    user_topics = dict.fromkeys([*plan.sources, *plan.outputs])
    others = [topic for topic in user_topics if topic not in own and topic not in plan.repartition_topics]
    return (
        *(_topic(topic, "sampled", Operation.READ) for topic in plan.inputs),
        *(_topic(topic, "global table, read whole", Operation.READ) for topic in plan.globals),
        *(_topic(topic, "how many partitions it has", Operation.DESCRIBE) for topic in others),
    )


def state_permissions(plan: TopologyPlan) -> tuple[Permission, ...]:
    """Return the permissions for reading stores outside runs; the user need not be that of the runs."""
    own = ProtocolTopics(plan.application_id)
    return (
        _topic(own.metadata, "whether a run is under way", Operation.READ),
        _topic(own.ledger, "the run that finished last, and which task has which keys", Operation.READ),
        *(_topic(topic, "the entries of a store", Operation.READ) for topic in sorted(plan.changelogs)),
    )


def reset_permissions(plan: TopologyPlan) -> tuple[Permission, ...]:
    """Return the permissions for resets of an application; the user need not be that of the runs."""
    app, own = plan.application_id, ProtocolTopics(plan.application_id)
    internal = [*plan.repartition_topics, *sorted(plan.changelogs)]
    between = [topic for topic in plan.intermediates if topic not in plan.repartition_topics]
    return (
        *(_topic(topic, "input, whose offsets are set", Operation.READ) for topic in plan.inputs),
        *(_topic(topic, "intermediate topic, whose offsets are set", Operation.READ) for topic in between),
        *(_topic(topic, "output, whose writers are fenced", Operation.DESCRIBE) for topic in plan.outputs),
        *(_topic(topic, "deleted by a reset", Operation.DELETE) for topic in internal),
        *_owned(own.metadata, "metadata topic"),
        *(_topic(own.ledger, "run ledger", each) for each in (Operation.READ, Operation.WRITE)),
        _group(app, "committed offsets", Operation.READ),
        transactional_permission(app, "fences tasks and coordinator"),
    )


def replay_permissions(plan: TopologyPlan, settings: ApplicationSettings) -> tuple[Permission, ...]:
    """Return the permissions for a replay of dead letters; the user need not be that of the runs."""
    letters, own = settings.dead_letter_topic, ProtocolTopics(plan.application_id)
    owner = replay_owner(letters)
    return (
        _topic(letters, "dead letters", Operation.READ),
        _topic(own.metadata, "which topics the last run reads", Operation.READ),
        _topic(own.ledger, "which topics earlier runs have read", Operation.READ),
        *_owned(ProtocolTopics.replays(letters), "how far replays have come"),
        *(_topic(topic, "takes its dead letters back", Operation.WRITE) for topic in sorted(plan.sources)),
        _group(owner, "offsets of replays", Operation.READ),
        Permission(
            operation=Operation.WRITE,
            resource=Resource.TRANSACTIONAL_ID,
            name=owner,
            reason="transactions of replays",
        ),
    )


def expand_permissions(plan: TopologyPlan) -> tuple[Permission, ...]:
    """Return the permissions for growing an application's topics; the user need not be that of the runs."""
    own = ProtocolTopics(plan.application_id)
    growing = [topic for topic in plan.sources if topic not in plan.repartition_topics]
    others = [*plan.repartition_topics, *plan.outputs, *plan.globals, *sorted(plan.changelogs)]
    return (
        _topic(own.ledger, "what state depends on", Operation.READ),
        _topic(own.metadata, "topology of the last run", Operation.READ),
        *(_topic(topic, "looked at before a topic grows", Operation.DESCRIBE) for topic in others),
        _group(plan.application_id, "committed offsets", Operation.DESCRIBE),
        *(_topic(topic, "given more partitions; others need Describe", Operation.ALTER) for topic in growing),
    )


def expand_processors_permissions(plan: TopologyPlan) -> tuple[Permission, ...]:
    """Return the permissions for copying state to new processors; the user need not be that of the runs."""
    return (
        *_copy_permissions(plan),
        *(_topic(topic, "committed offsets", Operation.DESCRIBE) for topic in sorted(plan.sources)),
        *(
            _topic(topic, "given a partition for each new processor", Operation.ALTER)
            for topic in sorted(plan.changelogs)
        ),
        _group(plan.application_id, "committed offsets", Operation.DESCRIBE),
    )


def expand_abort_permissions(plan: TopologyPlan) -> tuple[Permission, ...]:
    """Return the permissions for giving up new processors; the user need not be that of the runs."""
    own = ProtocolTopics(plan.application_id)
    return (
        *_copy_permissions(plan),
        _topic(own.ledger, "fences a begin that would take them over", Operation.WRITE),
        transactional_permission(plan.application_id, "fences a begin that would take them over"),
    )


def _copy_permissions(plan: TopologyPlan) -> tuple[Permission, ...]:
    own, group = ProtocolTopics(plan.application_id), catch_up_group(plan.application_id)
    changelogs = {
        Operation.READ: "state that is copied",
        Operation.WRITE: "its copies",
        Operation.DESCRIBE_CONFIGS: "how long deletions are there to be copied",
    }
    return (
        _topic(own.ledger, "processors that there are", Operation.READ),
        _topic(own.metadata, "topology of the last run", Operation.READ),
        *(_topic(topic, why, each) for topic in sorted(plan.changelogs) for each, why in changelogs.items()),
        _group(group, "how far state is copied", Operation.READ),
        transactional_permission(group, "transactions of the copies"),
    )


def continuous_permissions(plan: TopologyPlan, settings: ApplicationSettings) -> tuple[Permission, ...]:
    """Return the permissions that continuous mode needs, and the batches before and after it."""
    metadata = ProtocolTopics(plan.application_id).metadata
    return (
        *run_permissions(plan, settings),
        _topic(metadata, "deleted when batch mode ends", Operation.DELETE),
    )


def doctor_permissions(plan: TopologyPlan) -> tuple[Permission, ...]:
    """Return the permissions that ``airflow-kstreams doctor`` needs for all checks; it writes nothing."""
    app, own = plan.application_id, ProtocolTopics(plan.application_id)
    sources = [topic for topic in plan.sources if topic not in plan.repartition_topics]
    others = [
        topic
        for topic in dict.fromkeys(
            [*plan.repartition_topics, *plan.outputs, *plan.globals, *sorted(plan.changelogs)]
        )
        if topic not in sources
    ]
    looked_at = [*sources, *others]
    return (
        _topic(own.metadata, "metadata topic", Operation.READ),
        _topic(own.ledger, "run ledger", Operation.READ),
        *(_topic(topic, "where its keys are, once it has grown", Operation.READ) for topic in sources),
        *(_topic(topic, "partitions and ends", Operation.DESCRIBE) for topic in others),
        *(
            _topic(topic, "its settings", Operation.DESCRIBE_CONFIGS)
            for topic in [*looked_at, own.metadata, own.ledger]
        ),
        *(
            _topic(topic, "offsets and transactions", each)
            for topic in BROKERS_OWN
            for each in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
        ),
        Permission(
            operation=Operation.DESCRIBE_CONFIGS, resource=Resource.CLUSTER, reason="settings of brokers"
        ),
        _group(app, "committed offsets", Operation.DESCRIBE),
        *([_group(catch_up_group(app), _COPIED, Operation.DESCRIBE)] if plan.changelogs else []),
    )


@contextmanager
def naming_permissions(needed: Iterable[Permission]) -> Iterator[None]:
    """Make errors of the block name the permission that the application needs.

    An application that may not even describe a topic is refused for that; to allow no more than that would
    not help.
    """
    try:
        yield
    except AccessDeniedError as error:
        missing = error.permission
        for permission in needed:
            if permission.covers(missing.operation, missing.resource, missing.name):
                raise error.naming(permission) from None
        raise


def _topic(name: str, reason: str, operation: Operation, without: str = "") -> Permission:
    name, prefixed = _named(name)
    return Permission(
        operation=operation,
        resource=Resource.TOPIC,
        name=name,
        prefixed=prefixed,
        reason=reason,
        without=without,
    )


def _group(name: str, reason: str, operation: Operation, without: str = "") -> Permission:
    return Permission(operation=operation, resource=Resource.GROUP, name=name, reason=reason, without=without)


def _named(topic: str) -> tuple[str, bool]:
    """Return an ACL's name for a topic, or for the topics that a pattern matches, and whether it is a prefix.

    An ACL takes a name, a prefix, or all topics.
    """
    pattern = pattern_of(topic)
    if pattern is None:
        return topic, False
    prefix = prefix_of(pattern)
    return (prefix, True) if prefix else ("*", False)


def _owned(topic: str, reason: str) -> list[Permission]:
    """Return the permissions for a topic that the engine creates, writes and reads."""
    return [_topic(topic, reason, each) for each in (Operation.CREATE, Operation.READ, Operation.WRITE)]


def _settings(topic: str, *, changelog: bool, kept_locally: bool) -> Permission:
    reason = "whether its settings would lose records or their times"
    without = "begin does not check the settings of internal topics"
    if changelog and kept_locally:
        reason += ", and whether local files of state.dir are still good"
        without += ", and stores are replayed from their changelogs"
    if changelog:
        without += f", and {_NO_MORE}"
    return _topic(topic, reason, Operation.DESCRIBE_CONFIGS, without)


def _limit(topic: str) -> Permission:
    without = "its max.message.bytes is taken to be the broker's default"
    return _topic(topic, "how large its records may be", Operation.DESCRIBE_CONFIGS, without)


def _distinct(permissions: Iterable[Permission]) -> tuple[Permission, ...]:
    by_what = {
        (each.resource, each.name, each.prefixed, each.operation): each
        for each in reversed(list(permissions))
    }
    return tuple(reversed(by_what.values()))
