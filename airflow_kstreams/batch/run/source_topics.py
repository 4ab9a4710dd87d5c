"""Checks the topics of a topology and creates the engine's own.

User topics are never created here: a topic made with wrong retention or partition count loses data quietly,
so a missing one is named with the command that creates it.

Patterns: a begin that makes a new slice, or a continuous run, asks the broker for the names of all topics
that its user may see, and puts those that match into the plan. The plan is frozen with the completed marker,
so every attempt, and a driver that claims the slice, reads the same topics. A topic that is created
later enters with the next run, by the first-run policy (``first.run.offsets``). One that matched in the last
run and is gone is read no more, as if its name were taken out of the file; the run's warnings name it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from airflow_kstreams.batch.evidence.topic_owners import ever_written
from airflow_kstreams.batch.growing.grown_groups import Bound, bound_groups, contradicted_counts, known_growth
from airflow_kstreams.batch.ledger.facts import NOTHING_RECORDED, Assignment, GroupedPartitions
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.topics import (
    REPARTITION,
    ROOM_BYTES,
    changelog_settings,
    largest_read,
    limits_of,
    narrow_times,
    redating_topics,
    refuse_harmful_settings,
    small_topics,
    topic_limits,
    topic_spec,
    with_room,
)
from airflow_kstreams.batch.run.assignment import AskGroups, group_sources, refuse_regrouping, with_changelogs
from airflow_kstreams.batch.run.state_left import (
    in_question,
    left_behind,
    refuse_exchanged,
    refuse_left_behind,
    refuse_returned,
)
from airflow_kstreams.streams.errors import ConfigError, TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.commands import create_topics_command
from airflow_kstreams.streams.naming.topic_names import RETRY_ENDING, ProtocolTopics
from airflow_kstreams.streams.partitioning.topic_growth import partition_counts
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, TopicConfigs, TopicDescription, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topic_patterns import matching, pattern_of, refuse_overlaps
from airflow_kstreams.streams.topology.topology import has_dead_letters, refuse_dead_letter_topic

log = package_log(__name__)


def matched_plan(plan: TopologyPlan, admin: AdminPort, settings: ApplicationSettings) -> TopologyPlan:
    """Return a plan with the topics that its patterns match now.

    :raises TopologyError: no topic matches a pattern, two patterns match one topic, or one matches the
        dead-letter topic.
    """
    if not plan.patterns:
        return plan
    if has_dead_letters(plan, settings):
        letters = {settings.dead_letter_topic: "which takes its dead letters"}
        refuse_overlaps(plan.patterns, letters, plan.application_id)
    return plan.matched(admin.topic_names())


def with_matches(
    plan: TopologyPlan, admin: AdminPort, settings: ApplicationSettings, ledger: Ledger
) -> TopologyPlan:
    """Return a plan with the topics that its patterns match now, and log those that are new since the last
    run.

    :raises TopologyError: as :func:`matched_plan`.
    """
    plan = matched_plan(plan, admin, settings)
    known = read_before(plan, ledger)
    for topic, matches in plan.patterns.items():
        for name in matches:
            if known and name not in known:
                log.info(
                    "topic %s matches the pattern %r of a source since this run", name, pattern_of(topic)
                )
    return plan


def read_before(plan: TopologyPlan, ledger: Ledger) -> tuple[str, ...]:
    """Return the input topics of the last run that match patterns of a plan, sorted."""
    last = ledger.last()
    inputs = last.input_topics if last is not None else ()
    return tuple(
        sorted({name for topic in plan.patterns for name in matching(pattern_of(topic) or "", inputs)})
    )


def gone_warnings(plan: TopologyPlan, ledger: Ledger) -> tuple[str, ...]:
    """Return warnings that name the topics that matched in the last run and do not exist any more.

    :param plan: plan whose patterns are matched.
    """
    return tuple(
        f"topic {name} is gone, which matched a pattern of a source and was read by the last run: what it "
        "held behind that run's stop offsets was not read"
        for name in read_before(plan, ledger)
        if name not in plan.sources
    )


#: Raises if the broker's descriptions of the topics mean that records or state are lost.
RefuseLoss = Callable[[Mapping[str, TopicDescription]], None]
#: Raises if partition groups, by subtopology id, do not fit the state that earlier runs left, or the records
#: in the topics; the second argument has the groups that existing state depends on.
RefuseGroups = Callable[[Mapping[int, GroupedPartitions], Bound], None]


class CheckedTopics(NamedTuple):
    """The checked topics, before any is created.

    :param found: the broker's description of each topic that exists.
    :param counts: partition count of every source topic.
    :param grouped: subtopology id -> its partition groups.
    :param bound: subtopology id -> the groups that existing state depends on.
    :param left_behind: warnings of state that no store of the topology goes on with.
    :param protocol: the protocol's topics that exist.
    """

    found: Mapping[str, TopicDescription]
    counts: Mapping[str, int]
    grouped: Mapping[int, GroupedPartitions]
    bound: Bound
    left_behind: tuple[str, ...] = ()
    protocol: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopics:
    """The facts of the topics that begin freezes.

    :param partitions: partition count of every source topic.
    :param topic_ids: topic id of every source topic.
    :param output_ids: topic id of every topic that takes results.
    :param grouped: subtopology id -> its partition groups, one task each.
    :param bound: subtopology id -> the groups that existing state depends on.
    :param warnings: warnings for an operator.
    """

    partitions: Mapping[str, int]
    topic_ids: Mapping[str, str]
    grouped: Mapping[int, GroupedPartitions]
    output_ids: Mapping[str, str] = field(default_factory=dict)
    bound: Bound = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def tasks(self) -> dict[int, int]:
        """Number of tasks per subtopology id."""
        return {sub: len(entry.by_group) for sub, entry in self.grouped.items()}

    @property
    def changelog_ids(self) -> dict[str, str]:
        """Topic id of every changelog."""
        return {topic: id_ for entry in self.grouped.values() for topic, id_ in entry.changelogs.items()}

    def tasks_of(self, changelogs: Mapping[str, int]) -> dict[str, int]:
        """Return the number of partitions that each changelog has: one per task.

        :param changelogs: changelog topic -> id of the subtopology that owns it.
        """
        return {topic: len(self.grouped[sub].by_group) for topic, sub in changelogs.items()}

    def internal_ids(self, plan: TopologyPlan) -> dict[str, str]:
        """Topic id of every repartition topic and changelog."""
        return {topic: self.topic_ids[topic] for topic in plan.repartition_topics} | self.changelog_ids


def ensure_topics(
    admin: AdminPort,
    plan: TopologyPlan,
    settings: ApplicationSettings,
    checked: CheckedTopics,
    *,
    recorded: Assignment = NOTHING_RECORDED,
) -> SourceTopics:
    """Create the repartition topics and changelogs that are missing, and describe what is there.

    Nothing is looked up twice: settings of all topics come in one request, and where no topic had to be
    created, the descriptions are those that were checked. A topic that is deleted and made anew meanwhile
    then has another id than the run freezes, and is noticed wherever ids are compared.

    :param checked: the topics as :func:`check_topics` returned them, so that none is created unless all its
        checks hold.
    :param recorded: recorded groups that existing state depends on.
    :raises TopologyError: an internal topic does not fit the number of tasks.
    :raises ConfigError: an internal topic has settings by which records, or their times, would be lost.
    """
    found, counts, grouped, bound = checked[:4]
    tasks = {sub: len(entry.by_group) for sub, entry in grouped.items()}
    # Topics that exist and that hold records of the topology.
    held = {*plan.sources, *plan.outputs, *plan.changelogs} & found.keys()
    if has_dead_letters(plan, settings):
        held |= admin.describe_topics([settings.dead_letter_topic]).keys()
    all_configs = admin.topic_configs(held | ({*plan.repartition_topics} & found.keys()) | checked.protocol)
    refuse_harmful_settings(admin, plan, all_configs)
    configs = _of_topics(all_configs, held)
    limits = limits_of(configs)
    largest = largest_read(plan, limits)
    created = _create_internal(admin, plan, found, (counts, tasks), largest, settings)
    ensure_dead_letter_topic(admin, plan, settings)
    # This deletes nothing, and is refused if finish could not delete either: better now than after hours.
    admin.delete_records({TopicPartition(topic, 0): 0 for topic in plan.repartition_topics})
    described = {topic: found[topic] for topic in {*plan.sources, *plan.changelogs} & found.keys()}
    if created:
        described = admin.describe_topics({*plan.sources, *plan.changelogs})
    return SourceTopics(
        partitions={topic: counts[topic] for topic in plan.sources},
        topic_ids={topic: described[topic].topic_id for topic in plan.sources},
        output_ids={topic: found[topic].topic_id for topic in plan.outputs if topic not in described},
        grouped=with_changelogs(plan, grouped, described),
        bound=bound,
        warnings=(
            *small_topics(plan, settings, limits),
            *narrow_times(plan, settings, configs),
            *redating_topics(plan, configs),
            *checked.left_behind,
            *contradicted_counts(recorded, bound, settings.first_counts, found),
        ),
    )


def _of_topics(configs: TopicConfigs, topics: Collection[str]) -> TopicConfigs:
    """Return the settings of some topics."""
    return TopicConfigs(
        {topic: found for topic, found in configs.found.items() if topic in topics},
        {topic: refused for topic, refused in configs.refused.items() if topic in topics},
    )


def check_topics(
    admin: AdminPort,
    plan: TopologyPlan,
    settings: ApplicationSettings,
    *,
    groups: AskGroups | None = None,
    recorded: Assignment = NOTHING_RECORDED,
    refuse_loss: RefuseLoss | None = None,
    refuse_groups: RefuseGroups | None = None,
) -> CheckedTopics:
    """Check the user's topics, and group their partitions; nothing is created.

    :param groups: calls the user's own partition grouper.
    :param recorded: recorded groups that existing state depends on.
    :param refuse_loss: called with the broker's descriptions of the topics, before anything else is checked.
    :param refuse_groups: called with the partition groups, before they are compared with the recorded ones.
    :raises TopologyError: a topic is missing, co-partitioned topics have unequal counts, or the topology does
        not fit the state of earlier runs.
    """
    user_topics = ({*plan.sources, *plan.outputs} - {*plan.repartition_topics}) | {*plan.globals}
    former = {topic for entry in recorded.current for topic in entry.changelogs}
    protocol = {*ProtocolTopics(plan.application_id).protocol}
    asked = user_topics | {*plan.repartition_topics} | {*plan.changelogs} | former
    described = admin.describe_topics(asked | protocol)
    found = {topic: description for topic, description in described.items() if topic in asked}
    if refuse_loss is not None:
        refuse_loss(found)
    _refuse_missing(plan, user_topics, found)
    _refuse_alike(plan)
    checked = group_found(
        admin, plan, settings, found, groups=groups, recorded=recorded, refuse_groups=refuse_groups
    )
    return checked._replace(protocol=frozenset(protocol & described.keys()))


def group_found(
    admin: AdminPort,
    plan: TopologyPlan,
    settings: ApplicationSettings,
    found: Mapping[str, TopicDescription],
    *,
    groups: AskGroups | None = None,
    recorded: Assignment = NOTHING_RECORDED,
    refuse_groups: RefuseGroups | None = None,
) -> CheckedTopics:
    """Group the partitions of topics as they are, or as they would be, and make the checks of
    :func:`check_topics` that are about groups.

    :param found: the broker's descriptions of the topics that :func:`check_topics` asks for.
    :raises TopologyError: as for :func:`check_topics`.
    """
    bound = bound_groups(recorded, plan, found)
    known = known_growth(recorded, bound, settings.first_counts, plan, found)
    counts = partition_counts(
        plan,
        {name: described.partitions for name, described in found.items()},
        first={topic: growth.history[0] for topic, growth in known.items()},
        read=recorded.topics,
    )
    grouped = group_sources(plan, counts, groups, known=known, bound=bound, read=recorded.topics)
    if refuse_groups is not None:
        refuse_groups(grouped, bound)
    written = ever_written(admin, found, in_question(recorded, plan, found))
    refuse_left_behind(recorded, plan, found, written)
    refuse_exchanged(recorded, plan, found, written)
    refuse_returned(recorded, plan, found, written)
    refuse_regrouping(
        recorded,
        plan,
        with_changelogs(plan, grouped, found),
        keys_may_move=settings.growth_moves_keys == "warn",
    )
    for changelog, subtopology in plan.changelogs.items():
        if changelog in found:
            recorded_ids = bound[subtopology].changelogs if subtopology in bound else {}
            ours = recorded_ids.get(changelog) == found[changelog].topic_id
            tasks = len(grouped[subtopology].by_group)
            _refuse_other_count(recorded, plan, changelog, found[changelog], tasks, more=ours)
    warnings = left_behind(recorded, plan, found, written)
    return CheckedTopics(found, counts, grouped, bound, warnings)


def _refuse_other_count(
    recorded: Assignment,
    plan: TopologyPlan,
    changelog: str,
    description: TopicDescription,
    tasks: int,
    *,
    more: bool,
) -> None:
    """Refuse a changelog that lacks a partition for a task, or has state that no task would read.

    :param more: whether it may have more partitions: earlier runs have recorded its tasks, so that the other
        partitions are for processors to come.
    """
    if description.partitions != tasks and not (more and description.partitions > tasks):
        raise TopologyError(
            f"changelog {changelog} has {counted(description.partitions, 'partition')}, but subtopology "
            f"{plan.changelogs[changelog]} has {counted(tasks, 'task')}: their number was fixed by its "
            "first run",
            fix=f"group the partitions into {counted(description.partitions, 'group')} again, or start over "
            f"with empty state: {plan.start_over_command(recorded.topics)}",
        )


def _refuse_alike(plan: TopologyPlan) -> None:
    """Refuse topics of the engine's own whose names are another's to Kafka, which takes ``.`` for ``_``."""
    internal = {*plan.repartition_topics, *plan.changelogs}
    names: dict[str, str] = {}
    for topic in sorted({*plan.sources, *plan.outputs, *plan.changelogs}):
        other = names.setdefault(topic.replace(".", "_"), topic)
        if other != topic and not internal.isdisjoint((topic, other)):
            raise TopologyError(
                f"application {plan.application_id!r} needs topics {other} and {topic}, whose names "
                "differ only in . and _: Kafka has no room for both",
                fix="give one of the stores, or operators, that they are named after another name",
            )


def ensure_dead_letter_topic(admin: AdminPort, plan: TopologyPlan, settings: ApplicationSettings) -> None:
    """Create the dead-letter topic if records may go there and the user has not named one.

    A run that is taken up again asks for it, too: its settings may have changed since its slice began. The
    topic has one partition, so that dead letters keep the order in which a task met them.

    :raises ConfigError: the user has named one that does not exist.
    """
    if not has_dead_letters(plan, settings):
        return
    refuse_dead_letter_topic(plan, settings)
    topic = settings.dead_letter_topic
    if admin.describe_topics([topic]):
        return
    if settings.errors_dead_letter_queue_topic_name:
        raise ConfigError(
            f"the dead-letter topic {topic!r} does not exist",
            fix=f"create it with: {create_topics_command([topic])}; or leave "
            "errors.dead.letter.queue.topic.name out",
        )
    largest = largest_read(plan, topic_limits(admin, admin.describe_topics(plan.sources).keys()))
    # Repartition topics hold more than the inputs, and their records may be letters, too.
    configs = {**REPARTITION, **with_room(largest + ROOM_BYTES)}
    admin.create_topics([topic_spec(topic, 1, configs, settings)])


def _refuse_missing(plan: TopologyPlan, names: set[str], found: Mapping[str, TopicDescription]) -> None:
    missing = sorted(names - set(found))
    if not missing:
        return
    roles = {
        topic: role
        for role, topics in (
            ("output", plan.outputs),
            ("intermediate", plan.intermediates),
            ("input", plan.inputs),
            ("global table's", plan.globals),
        )
        for topic in topics
    }
    what = ", ".join(f"{roles[topic]} topic {topic!r}" for topic in missing)
    raise TopologyError(
        f"{what} of application {plan.application_id!r} {'does' if len(missing) == 1 else 'do'} not exist",
        fix=f"create {'it' if len(missing) == 1 else 'them'} with: {create_topics_command(missing)}",
    )


def _create_internal(
    admin: AdminPort,
    plan: TopologyPlan,
    found: Mapping[str, TopicDescription],
    sizes: tuple[Mapping[str, int], Mapping[int, int]],
    largest: int,
    settings: ApplicationSettings,
) -> bool:
    """Create the internal topics that are missing; return whether there were any."""
    counts, tasks = sizes
    room = with_room(largest)
    wanted = [
        topic_spec(topic, counts[topic], {**REPARTITION, **room}, settings)
        for topic in plan.repartition_topics
        if topic not in found
    ]
    # Parked records may be held twice: as their node got them, and as they were consumed.
    twice = with_room(2 * largest)
    wanted += [
        topic_spec(
            changelog,
            tasks[subtopology],
            {**(twice if changelog.endswith(RETRY_ENDING) else room), **changelog_settings(plan, changelog)},
            settings,
        )
        for changelog, subtopology in plan.changelogs.items()
        if changelog not in found
    ]
    if wanted:
        admin.create_topics(wanted)
    return bool(wanted)
