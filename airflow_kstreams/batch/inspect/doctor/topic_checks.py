"""Checks the settings and replicas of topics. One finding names all topics that have the same fault.

Every attempt of a run must see the same global tables. So the topic of one is compacted, and what a run may
still read is not compacted away: ``min.compaction.lag.ms`` is longer than a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from airflow_kstreams.batch.inspect.doctor.findings import (
    DoctorView,
    for_each,
    names,
    number,
    set_topic,
)
from airflow_kstreams.batch.inspect.doctor.looks import Finding, error, not_permitted, ok, warning
from airflow_kstreams.batch.protocol.needed_permissions import BROKERS_OWN
from airflow_kstreams.batch.protocol.topics import harmful, internal_settings
from airflow_kstreams.batch.run.source_topics import check_topics
from airflow_kstreams.streams.errors import KafkaClientError, TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.time_texts import duration_text
from airflow_kstreams.streams.naming.commands import set_topic_command
from airflow_kstreams.streams.ports import TopicDescription

#: The broker's default ``retention.ms``.
_WEEK_MS = "604800000"
_LAG = "min.compaction.lag.ms"
#: Number of the last runs that are looked at; the longest one counts.
#: Length of a run that is assumed before there was one.
_FIRST_RUN_MS = 24 * 3_600_000


def _global_tables(seen: DoctorView) -> Iterator[Finding]:
    """Check the settings of the topics of global tables."""
    configs = seen.admin.topic_configs([t for t in seen.plan.globals if t in seen.topics]).found
    topics = sorted(configs)
    if not topics:
        return
    longest_ms = max((run.finished_ms - run.begun_ms for run in seen.latest), default=_FIRST_RUN_MS)
    deleting = [topic for topic in topics if _deletes(configs[topic])]
    if deleting:
        yield warning(
            "global tables",
            "table-records-deleted",
            f"records of {names(deleting)} are deleted when they are old or too many: entries leave the "
            "table without a deletion, and a run that needs them again fails",
            "; ".join(set_topic(topic, cleanup_policy="compact") for topic in deleting),
        )
    compacted = [t for t in topics if "compact" in configs[t].get("cleanup.policy", "")]
    short = [t for t in compacted if t not in deleting and int(configs[t].get(_LAG, 0)) <= longest_ms]
    if short:
        wanted_ms = 2 * max(longest_ms, 3_600_000)
        yield warning(
            "global tables",
            "table-compacted-early",
            f"{_LAG} of {names(short)} is not longer than a run, which took up to "
            f"{duration_text(longest_ms)}: a task that is repeated could see another table than the first "
            "attempt",
            "; ".join(set_topic(topic, min_compaction_lag_ms=str(wanted_ms)) for topic in short),
        )
    if not deleting and not short:
        yield ok("global tables", f"{names(topics)}: nothing is compacted away within a run")


def _deletes(configs: Mapping[str, str]) -> bool:
    """Return whether records are deleted when they are old, or too many."""
    limits = (configs.get("retention.ms", _WEEK_MS), configs.get("retention.bytes", "-1"))
    return "delete" in configs.get("cleanup.policy", "delete") and any(int(limit) >= 0 for limit in limits)


_UNCLEAN = "unclean.leader.election.enable"
_UNLIMITED = -1
#: A topic's default; below it ordinary clocks that differ are refused.
_AFTER_DEFAULT_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics of an application that exist, with the broker's descriptions and settings of them.

    :param configs: topic -> setting -> value; topics whose settings this user may not see are absent.
    """

    seen: DoctorView
    configs: Mapping[str, Mapping[str, str]]

    @property
    def found(self) -> Mapping[str, TopicDescription]:
        """Descriptions by name."""
        return self.seen.topics

    @property
    def intermediates(self) -> tuple[str, ...]:
        """The user's own topics that runs write and read."""
        plan = self.seen.plan
        return tuple(topic for topic in plan.intermediates if topic not in plan.repartition_topics)

    @property
    def internal(self) -> Mapping[str, Mapping[str, str]]:
        """The engine's own topics: name -> settings that it creates them with."""
        return internal_settings(self.seen.plan)

    @property
    def all(self) -> list[str]:
        """Every topic that exists."""
        plan = self.seen.plan
        user_topics = (*plan.inputs, *plan.globals, *self.intermediates, *plan.outputs)
        wanted = (*user_topics, *self.internal, *BROKERS_OWN)
        return [topic for topic in wanted if topic in self.found]

    def having(self, name: str, test: Callable[[str], bool]) -> list[str]:
        """Return the topics that have a setting whose value is known and passes a test."""
        return [t for t in self.all if name in self.configs.get(t, {}) and test(self.configs[t][name])]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTimes:
    """The distance of the records' times from the clock.

    :param oldest_ms: age of the oldest newest record of any input partition; None when no run has read one.
    :param ahead_ms: distance of the latest time from the clock, milliseconds into the future; 0 if none lies
        there.
    """

    oldest_ms: int | None = None
    ahead_ms: int = 0


def check(seen: DoctorView) -> Iterator[Finding]:
    """Check the topics of the application, and those in which the brokers keep offsets."""
    plan = seen.plan
    try:
        check_topics(
            seen.admin,
            plan,
            seen.subject.settings,
            groups=seen.subject.groups,
            recorded=seen.ledger.assignment,
        )
    except TopologyError as refused:
        yield error("topics", "topics-unfit", refused.cause, refused.fix)
    else:
        yield ok("topics", "inputs and outputs exist, partition counts and groups fit")
    configs, unseen = _configs(seen)
    if unseen:
        yield not_permitted(f"the settings of {counted(len(unseen), 'topic')}", unseen[0])
    topics = Topics(seen=seen, configs=configs)
    yield from _replication(topics)
    yield from _outputs(topics)
    yield from _internal(topics)
    yield from _global_tables(seen)


def _configs(seen: DoctorView) -> tuple[Mapping[str, Mapping[str, str]], list[KafkaClientError]]:
    """Return the settings of topics, and the errors for topics whose settings are missing."""
    configs = seen.admin.topic_configs(seen.topics)
    return configs.found, [refused for _, refused in sorted(configs.refused.items())]


def _record_times(seen: DoctorView) -> RecordTimes:
    """Return the distance from the clock of the newest input records that the last run read."""
    now_ms = seen.clock.now_ms()
    latest = [
        times.latest_ms
        for topic, left in seen.ledger.past.left.items()
        for times in left.times
        if times.latest_ms > 0 and topic in seen.plan.inputs
    ]
    if not latest:
        return RecordTimes()
    return RecordTimes(oldest_ms=max(0, now_ms - min(latest)), ahead_ms=max(0, max(latest) - now_ms))


def _replication(topics: Topics) -> Iterator[Finding]:
    """Find settings under which acknowledged records can be lost."""
    unclean = topics.having(_UNCLEAN, lambda value: value == "true")
    if unclean:
        yield error(
            "unclean leader election",
            "unclean-election",
            f"{_UNCLEAN}=true on {names(unclean)}: a replica that lags may become the leader, and "
            "acknowledged records are gone without a trace",
            for_each(unclean, lambda topic: set_topic(topic, unclean_leader_election_enable="false")),
        )
    else:
        yield ok("unclean leader election", f"{_UNCLEAN}=false; topics: {len(topics.all)}")
    single = [topic for topic in topics.all if topics.found[topic].replicas == 1]
    if single:
        yield warning(
            "replication factor",
            "one-replica",
            f"one replica only of {names(single)}: what its broker loses is lost",
            "give them three replicas (kafka-reassign-partitions.sh); new ones get as many as "
            "internal.replication.factor, or the brokers' default.replication.factor, says",
        )
    yield from _min_insync(topics, single)


def _min_insync(topics: Topics, single: list[str]) -> Iterator[Finding]:
    replicated = [t for t in topics.all if t not in single]
    kept = {t: number(topics.configs.get(t, {}), "min.insync.replicas") for t in topics.all}
    impossible = [t for t, least in kept.items() if least is not None and least > topics.found[t].replicas]
    one = [t for t in replicated if kept[t] == 1]
    every = [t for t in replicated if kept[t] == topics.found[t].replicas]
    if impossible:
        yield error(
            "min.insync.replicas",
            "too-few-replicas",
            f"more than there are replicas of {names(impossible)}: nothing can be written",
            for_each(impossible, lambda topic: set_topic(topic, min_insync_replicas="1")),
        )
    if one:
        yield warning(
            "min.insync.replicas",
            "one-replica-enough",
            f"1 with several replicas of {names(one)}: a record counts as written while one broker has it",
            for_each(one, lambda topic: set_topic(topic, min_insync_replicas="2")),
        )
    if every:
        yield warning(
            "min.insync.replicas",
            "every-replica-needed",
            f"as many as there are replicas of {names(every)}: one broker that is down stops every run",
            for_each(
                every,
                lambda topic: set_topic(topic, min_insync_replicas=str(topics.found[topic].replicas - 1)),
            ),
        )
    if not (impossible or one or every or single):
        yield ok("replication", f"replicas and min.insync.replicas fit; topics: {len(replicated)}")


def _outputs(topics: Topics) -> Iterator[Finding]:
    """Check that outputs accept and keep the records that runs write."""
    seen = topics.seen
    largest, times = seen.subject.producer_max_bytes, _record_times(seen)
    written = [t for t in (*seen.plan.outputs, *topics.intermediates) if t in topics.configs]
    findings = [each for t in written for each in _output(t, topics.configs[t], largest, times)]
    yield from findings
    if written and not findings:
        yield ok(
            "outputs", f"records of any size and time that runs have met are taken; topics: {len(written)}"
        )


def _output(
    topic: str, configs: Mapping[str, str], producer_max_bytes: int, times: RecordTimes
) -> Iterator[Finding]:
    largest = number(configs, "max.message.bytes")
    if largest is not None and largest < producer_max_bytes:
        yield warning(
            "message size",
            "records-too-large",
            f"{topic} takes records up to {counted(largest, 'byte')}, the producer sends up to "
            f"{producer_max_bytes} (message.max.bytes): a larger one fails the run",
            set_topic(topic, max_message_bytes=str(producer_max_bytes)),
        )
    if configs.get("message.timestamp.type") == "LogAppendTime":
        return
    before, after = (number(configs, f"message.timestamp.{side}.max.ms") for side in ("before", "after"))
    if before is not None and times.oldest_ms is not None and before < times.oldest_ms:
        yield error(
            "record times",
            "old-records-refused",
            f"{topic} refuses records older than {duration_text(before)}, inputs hold some of "
            f"{duration_text(times.oldest_ms)} ago",
            set_topic(topic, message_timestamp_before_max_ms=str(2**63 - 1)),
        )
    if after is not None and after < max(times.ahead_ms, _AFTER_DEFAULT_MS):
        level = error if after < times.ahead_ms else warning
        yield level(
            "record times",
            "early-records-refused",
            f"{topic} refuses records dated more than {duration_text(after)} ahead"
            + (f", inputs hold some dated {duration_text(times.ahead_ms)} ahead" if times.ahead_ms else ""),
            set_topic(topic, message_timestamp_after_max_ms=str(2**63 - 1)),
        )
    kept_ms = number(configs, "retention.ms")
    deletes = "delete" in configs.get("cleanup.policy", "delete")
    if (
        deletes
        and kept_ms not in (None, _UNLIMITED)
        and times.oldest_ms is not None
        and kept_ms < times.oldest_ms
    ):
        yield warning(
            "record times",
            "results-deleted",
            f"{topic} deletes records {duration_text(kept_ms)} after their own time, inputs hold some of "
            f"{duration_text(times.oldest_ms)} ago: their results are deleted as soon as they are written",
            set_topic(topic, retention_ms="-1"),
        )


def _internal(topics: Topics) -> Iterator[Finding]:
    """Compare the settings of the engine's own topics with those that it creates them with."""
    wrong: list[str] = []
    for topic, wanted in topics.internal.items():
        configs = topics.configs.get(topic)
        if configs is None:
            continue
        differing = {
            name: value for name, value in wanted.items() if name in configs and configs[name] != value
        }
        if differing:
            wrong.append(topic)
            fatal = harmful(wanted, configs)
            listed = ", ".join(
                f"{name}={configs[name]}, expected {value}" for name, value in sorted(differing.items())
            )
            level = error if fatal else warning
            yield level(
                "internal topics",
                "internal-settings",
                f"{topic} has {listed}"
                + (": records or their times get lost, so no run begins" if fatal else ""),
                set_topic_command(topic, differing),
            )
    present = [topic for topic in topics.internal if topic in topics.found]
    if present and not wrong:
        yield ok("internal topics", f"they are as the engine creates them; topics: {len(present)}")
