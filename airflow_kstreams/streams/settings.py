"""Application settings: Kafka Streams' dotted names, each with unit, default and the reason for that default.

Client settings (librdkafka's names) are checked by
``airflow_kstreams.kafka.configuration.client_settings``; a name that is neither is refused with the nearest
known one.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.hints import java_names
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One application setting.

    :param default: value of a setting that the user does not give.
    :param kind: ``int``, ``float``, ``str``, or the tuple of allowed strings.
    :param minimum: smallest allowed number.
    :param maximum: largest allowed number; None for any.
    :param doc: unit, meaning, and the reason for the default.
    """

    default: Any
    kind: type[int] | type[float] | type[str] | tuple[str, ...]
    doc: str
    minimum: int = 0
    maximum: int | None = None


def _setting(default: T, *, doc: str, minimum: int = 0, maximum: int | None = None) -> T:
    """Declare an application setting as an attribute; see :class:`Setting`."""
    return field(default=default, metadata={"doc": doc, "minimum": minimum, "maximum": maximum})


#: An hour, milliseconds. A run that meets a dead driver's lease waits for as long as the lease lasts.
LONGEST_LEASE_MS = 3_600_000
_APPLICATION_ID = re.compile(r"[A-Za-z0-9._-]{1,200}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationSettings:
    """Checked application settings, made by ``parse``; attributes are the dotted names with underscores.

    An attribute's type gives the allowed values: whole or decimal numbers, any text, or the texts of a
    ``Literal``.
    """

    application_id: str
    processing_guarantee: Literal["at_least_once", "exactly_once"] = _setting(
        "at_least_once",
        doc="KIP-129's default, by name; exactly_once is what the documentation recommends.",
    )
    autostop_at: Literal["", "eol", "interval_end", "interval"] = _setting(
        "",
        doc="KIP-95: where a run stops. eol freezes each partition's end when the run begins: an incremental "
        "batch, and what the Airflow operators set by themselves. interval_end freezes the first record that "
        "is dated at or past the end of the run's data interval, if there is one; it and what lies behind it "
        "go to the next run. interval is what the operators set in a backfill: from the first record of the "
        "data interval to the end, of which exactly the records dated in the interval are processed. Unset, "
        "the application runs continuously, until SIGTERM: the default, because it is the specification's.",
    )
    stream_time_advance: Literal["", "none", "cut", "wall_clock_of_begin"] = _setting(
        "",
        doc="Stream time to which the end of a run brings a task that has read all: the end of the run's "
        "data interval (cut), or the moment at which the run began (wall_clock_of_begin), at most "
        "max.timestamp.ahead.ms past the newest record, so that windows which ended before it, less grace, "
        "are published by this run, on quiet partitions too; none leaves it where records have brought it. "
        "Empty means cut where autostop.at is interval_end or interval, since such runs have read everything "
        "that is dated before, else none; wall_clock_of_begin is refused with these two.",
    )
    stream_time_advance_also: str = _setting(
        "",
        doc="Source topics whose timestamps are extracted from values, topics behind set_timestamp, and "
        "nodes with retry topics, as NAME,NAME, that are not to keep the end of a run from advancing stream "
        "time. Empty, because their records may be dated before any moment and would come late then.",
    )
    output_topics: str = _setting(
        "",
        doc="Other topics to write than the ones the topology names, as NAME=OTHER,NAME=OTHER; NAME alone "
        "keeps its own. A table is named table:NAME, and OTHER is its identifier or URI. If given, every "
        "topic and table that is written must be named, as in a backfill, which must not write into live "
        "ones unasked. Empty means the topics and tables that the topology names.",
    )
    backfill_of: str = _setting(
        "",
        doc="Application id of the live application whose data intervals a backfill processes again; the "
        "operators set it. Its ledger says where they began in the log, and by which partition counts keys "
        "lie. Empty where there is none: a backfill then warns where records of its interval may be gone.",
    )
    backfill_runs: Literal["one", "in_order"] = _setting(
        "in_order",
        doc="Whether a backfill's application has one run, as the operators say where intervals are "
        "processed side by side: then its marks in tables are dropped when that is finished. Several runs in "
        "order need them.",
    )
    backfill_replace: Literal["", "interval"] = _setting(
        "",
        doc="What a backfill's rows replace in the tables that it writes: interval takes out what these have "
        "of its data interval, in the commit that adds its rows. Other runs add theirs. Empty adds a "
        "backfill's rows beside what is there, too.",
    )
    commit_interval_ms: int = _setting(
        5_000,
        minimum=1,
        doc="Milliseconds between commits of a task; one with cached results commits at its next commit "
        "point then. Five seconds keeps commits rare in a batch and a transaction far below the broker's "
        "limit.",
    )
    commit_every_records: int = _setting(
        0,
        doc="Consumed records between two commit points, each of which is committed. Cached results are "
        "emitted at these points and at the end only, which makes them deterministic. 0 = such points every "
        "100,000 records for tasks with cached results (often enough to stay below the transaction timeout, "
        "seldom enough to fold many updates of a key into one), of which those are committed that "
        "commit.interval.ms makes due, or 100,000 changes that wait to be logged; and none for other tasks: "
        "they commit by commit.interval.ms alone. 1 gives one transaction per record.",
    )
    buffered_records_per_partition: int = _setting(
        1_000,
        minimum=1,
        doc="Records a partition's queue must hold before the task chooses among several partitions; Kafka "
        "Streams' default.",
    )
    deserialization_exception_handler: Literal["fail", "skip", "dead-letter"] = _setting(
        "fail",
        doc="Reaction to a record that cannot be decoded: fail (Kafka Streams' default: nothing is "
        "lost), skip (logged and counted), or dead-letter.",
    )
    processing_exception_handler: Literal["fail", "skip", "dead-letter"] = _setting(
        "fail",
        doc="Reaction to a record that a function of the topology, or a sink's serde, refuses: fail, "
        "skip at that node, or dead-letter.",
    )
    production_exception_handler: Literal["fail", "skip", "dead-letter"] = _setting(
        "fail",
        doc="Reaction to a result that its topic refuses for a fault of the record, such as its size: fail, "
        "skip (logged and counted), or dead-letter, which sends the record that it came from. Another "
        "attempt leaves out what the broker has refused, after an abort. Changelogs are never left out.",
    )
    errors_dead_letter_queue_topic_name: str = _setting(
        "",
        doc="Topic for dead letters, which must exist; empty means <application id>-dead-letter, which the "
        "engine creates.",
    )
    num_stream_threads: int = _setting(
        1, minimum=1, doc="Threads a Spark task slot may use to run its tasks side by side."
    )
    num_threads_per_task: int = _setting(
        1,
        minimum=1,
        doc="KIP-311: threads of one task. With more than one, the functions of operators without state, "
        "processors that say threads = True, and asynchronous nodes with threads=True run on them, several "
        "records at a time; what leaves the task is the same. A Spark task slot runs num.stream.threads // "
        "num.threads.per.task tasks at once, the first of them with the threads that are left over. Worth it "
        "where functions wait: Python computes in one thread at a time.",
    )
    max_waiting_results: int = _setting(
        0,
        doc="Records of a task that may be chosen and not released: they wait for a call of their own, or "
        "of a record before them. 0 = 20 times the largest max_in_flight of its asynchronous nodes, so "
        "that one slow call does not stop the rest.",
    )
    max_waiting_bytes: int = _setting(
        64 * 1024 * 1024,
        minimum=1,
        doc="Bytes that those records may take up, with their results and changes of state, as estimated. "
        "64 MiB beside the client's own queues. One record is always taken.",
    )
    retry_run_budget_ms: int = _setting(
        30_000,
        doc="Milliseconds that a task stays once its inputs are at their stop, to call records again that "
        "are parked in its retry topics; what is left stays parked until the next run. Also for how long a "
        "call of order partition is repeated where its record is. Half a minute outlasts a service that "
        "restarts. 0 = a task calls once what is due when it gets there, and leaves.",
    )
    idempotency_key_prefix: str = _setting(
        "",
        doc="Start of the idempotency keys of calls. Empty means the application id; in a backfill that of "
        "backfill.of, so that effects which the live runs have made are not made again. Another prefix gives "
        "every call a new key: all effects are made again.",
    )
    max_timestamp_ahead_ms: int = _setting(
        86_400_000,
        minimum=-1,
        doc="Milliseconds that a record may be dated ahead of the moment at which the slice was frozen; in a "
        "backfill, of its interval's end; in continuous mode, and in topics that the topology writes, of the "
        "wall clock. One dated later never moves stream time nor holds an interval's cut. A task that goes "
        "by stream time gives it to processing.exception.handler; any other processes and counts it. One day "
        "leaves room for wrong clocks and time zones, and finds dates in microseconds. -1 = no bound.",
    )
    max_late_share: float = _setting(
        1.0,
        maximum=1,
        doc="Share, 0 to 1, of the records that a run reads from its input topics which may be dropped "
        "because they come after the end of their window and its grace. Judged when the run is finished. "
        "1 = no limit, the default: how many are too many only the user knows.",
    )
    late_share_exceeded: Literal["warn", "fail"] = _setting(
        "warn",
        doc="Reaction to a run that drops a larger share of its records as late than max.late.share: "
        "warn, or fail without retry before the run is finished. Its results are committed by then; with a "
        "larger share, or warn, a retry finishes it.",
    )
    suspicion_quiet_times: float = _setting(
        3.0,
        minimum=1,
        doc="Looks (runs, lag) call it odd if nothing new came, or no run took what waits, for longer than "
        "so many times the longest pause between two of the last ten runs. Three leaves room for a weekend "
        "after working days.",
    )
    suspicion_records_times: float = _setting(
        5.0,
        minimum=1,
        doc="Looks call a run odd if it read more than so many times the records of the middle one of the "
        "last ten runs, or fewer than one part in so many. Five leaves room for nights and days.",
    )
    suspicion_lost_share: float = _setting(
        0.01,
        maximum=1,
        doc="Looks call a run odd if a larger share of its records than this, 0 to 1, was late, parked or "
        "dead-lettered, and more than twice the share of the last ten runs. One in a hundred: single bad "
        "records are no news.",
    )
    first_run_offsets: Literal["earliest", "latest"] = _setting(
        "earliest",
        doc="Where the very first run starts on a partition without a committed offset. earliest loses "
        "nothing.",
    )
    finished_with_other_topology: Literal["warn", "fail"] = _setting(
        "warn",
        doc="Reaction to a cleared run that another topology of the same DAG has finished: warn, and process "
        "nothing (a cleared run must not fail because the file was mended since), or fail without retry. The "
        "text names the ways to process its records again.",
    )
    initial_partitions: str = _setting(
        "",
        doc="Partition counts with which the producers of input topics began, TOPIC=N,TOPIC=N, of topics "
        "that had grown before the application first read them. A subtopology with state so begins with N "
        "tasks, and reads what the topic's first partitions hold before what came later. Growth that comes "
        "later is noticed by itself.",
    )
    growth_moves_keys: Literal["fail", "warn"] = _setting(
        "fail",
        doc="What to do when an input of a subtopology with state has gained partitions so that Kafka's "
        "default partitioner, which takes a key's hash modulo their number, gives keys to other partition "
        "groups than those with their state: begin fails, or only warns. Set warn only if the producers "
        "place keys in another way and each stays in its group.",
    )
    acceptable_recovery_lag: int = _setting(
        10_000,
        doc="Changelog records that each new processor may lack at the takeover of its keys, which a run's "
        "begin makes after it has copied them. Kafka Streams' name and default.",
    )
    settle_ms: int = _setting(
        5_000,
        doc="Milliseconds begin waits for the last stable offset to reach the high watermark it first read: "
        "a commit returns before its markers are written.",
    )
    lease_ms: int = _setting(
        30_000,
        minimum=3_000,
        maximum=LONGEST_LEASE_MS,
        doc="Milliseconds a driver's lease lasts unless renewed (every third of it). Long enough to survive "
        "a garbage collection, short enough that the next run need not wait a minute after a crash: another "
        "run that meets the lease watches for so long whether it is renewed.",
    )
    ledger_details_kept: int = _setting(
        100,
        minimum=1,
        doc="Number of runs of which the ledger keeps the details of each task and the offsets of each "
        "partition. A hundred hourly runs are four days, long enough for users to ask. What identifies a "
        "run, and its totals, are kept for good.",
    )
    transaction_timeout_ms: int = _setting(
        120_000,
        minimum=10_000,
        doc="Milliseconds after which the broker aborts a task's transaction. Must be twice "
        "commit.interval.ms or more in exactly_once, and exceed the time between two commit points; compared "
        "with the broker's transaction.max.timeout.ms when a run or a task begins.",
    )
    run_stall_timeout_ms: int = _setting(
        900_000,
        minimum=1_000,
        doc="Milliseconds without progress after which a run fails with StopOffsetUnreachableError, or with "
        "CallsStuckError while it is inside one call of a user's function. The default is the broker's "
        "longest transaction.",
    )
    client_timeout_ms: int = _setting(
        30_000,
        minimum=1_000,
        doc="Milliseconds any single request to the broker may take before it fails with a clear error.",
    )
    task_max_attempts: int = _setting(
        5,
        minimum=1,
        doc="How often one task attempt aborts and resumes by itself on non-fatal errors before Spark sees a "
        "failure.",
    )
    state_dir: str = _setting(
        "",
        doc="Folder on the executors' own disks for the files of RocksDB stores, left from run to run so "
        "that a store need not be replayed from the beginning. Empty means the executor's scratch folder, "
        "from which nothing survives the task: a run must work on machines it has never seen.",
    )
    table_open_files: int = _setting(
        8,
        minimum=1,
        doc="Files that a task has open at most for each table that it writes to. A row of another partition "
        "closes the one that was written to the longest time ago. Each open file takes some megabytes; more "
        "of them make fewer and larger files where rows of many partitions come in turns.",
    )
    internal_replication_factor: int = _setting(
        -1,
        minimum=-1,
        doc="Replicas of topics the engine creates; -1 takes the broker's default.",
    )

    @property
    def tasks_at_once(self) -> int:
        """Number of tasks that a Spark task slot runs side by side."""
        return self.num_stream_threads // self.num_threads_per_task

    def of_task(self, number: int) -> ApplicationSettings:
        """Return the settings of one of the tasks of a slot: the first has the threads that are left over.

        :param number: number of the task in its slot, from 0.
        """
        over = self.num_stream_threads % self.num_threads_per_task
        if number or not over:
            return self
        return replace(self, num_threads_per_task=self.num_threads_per_task + over)

    @property
    def key_prefix(self) -> str:
        """The start of idempotency keys."""
        return self.idempotency_key_prefix or self.backfill_of or self.application_id

    @property
    def continuous(self) -> bool:
        """True if the application runs until a signal stops it, rather than to frozen stop offsets."""
        return not self.autostop_at

    @property
    def by_interval(self) -> bool:
        """True if the data interval bounds the slice of a run."""
        return self.autostop_at in ("interval_end", "interval")

    @property
    def advances_to(self) -> Literal["none", "cut", "wall_clock_of_begin"]:
        """The way in which the end of a run advances stream time."""
        return self.stream_time_advance or ("cut" if self.by_interval else "none")

    @property
    def advanced_also(self) -> frozenset[str]:
        """Topics and nodes that do not keep the end of a run from advancing stream time."""
        return frozenset(name.strip() for name in self.stream_time_advance_also.split(",") if name.strip())

    @property
    def keeps_to_interval(self) -> bool:
        """True if a run processes exactly the records that are dated in its data interval."""
        return self.autostop_at == "interval"

    @property
    def outputs(self) -> dict[str, str] | None:
        """Topic's name in the topology -> name of the topic to write; None if topics keep their names."""
        return _outputs(self.output_topics) if self.output_topics else None

    @property
    def first_counts(self) -> dict[str, int]:
        """Topic of ``initial.partitions`` -> its first partition count."""
        return _first_counts(self.initial_partitions)

    @property
    def exactly_once(self) -> bool:
        """True if outputs, state, offsets and notifications commit in one transaction."""
        return self.processing_guarantee == "exactly_once"

    @property
    def dead_letters(self) -> bool:
        """True if some records may go to the dead-letter topic."""
        return "dead-letter" in (
            self.deserialization_exception_handler,
            self.processing_exception_handler,
            self.production_exception_handler,
        )

    @property
    def dead_letter_topic(self) -> str:
        """Real name of the dead-letter topic."""
        own = ProtocolTopics(self.application_id).dead_letters
        return self.errors_dead_letter_queue_topic_name or own

    @classmethod
    def parse(cls, application_id: str, settings: Mapping[str, object] | None = None) -> ApplicationSettings:
        """Check settings given by their dotted names.

        :param application_id: id of which the names of group, internal topics and transactional ids are made.
        :param settings: dotted name -> value; numbers may come as text.
        :raises ConfigError: a name is unknown (the nearest known one is named), or a value does not fit.
        """
        check_application_id(application_id)
        if settings is not None and not isinstance(settings, Mapping):
            raise ConfigError(
                f"the settings are of type {type(settings).__name__}, expected values by dotted names",
                fix='give e.g. {"commit.every.records": 1000}',
            )
        given = {name.replace(".", "_"): _checked(name, value) for name, value in (settings or {}).items()}
        checked = cls(application_id=application_id, **given)
        _outputs(checked.output_topics)
        _first_counts(checked.initial_partitions)
        if checked.backfill_of:
            check_application_id(checked.backfill_of)
            if not checked.keeps_to_interval or checked.backfill_of == application_id:
                why = "that is itself" if checked.keeps_to_interval else "it is no backfill"
                raise ConfigError(
                    f"setting 'backfill.of' of application {application_id!r} is {checked.backfill_of!r}, "
                    f"and {why}",
                    fix="leave it out; or give the backfill an id of its own and autostop.at=interval",
                )
        if checked.num_stream_threads < checked.num_threads_per_task:
            raise ConfigError(
                f"num.stream.threads is {checked.num_stream_threads}, less than num.threads.per.task, "
                f"{checked.num_threads_per_task}: not one task would have its threads",
                fix="raise num.stream.threads to num.threads.per.task or a multiple of it",
            )
        return checked

    def to_dict(self) -> dict[str, str | int | float]:
        """Return the settings that differ from their defaults, by dotted name."""
        result: dict[str, str | int | float] = {}
        for name, setting in SETTINGS.items():
            value = getattr(self, name.replace(".", "_"))
            if value != setting.default:
                result[name] = value
        return result

    def of_look(self, look_ms: int) -> ApplicationSettings:
        """Return the settings of a look that takes so many milliseconds at most.

        :param look_ms: largest time of all requests together; half of it for each, so that a broker that
            never answers differs from one that answers late.
        """
        return self.parse(self.application_id, {**self.to_dict(), "client.timeout.ms": look_ms // 2})


_TYPES = get_type_hints(ApplicationSettings)
#: Dotted name -> the setting.
SETTINGS: Mapping[str, Setting] = {
    each.name.replace("_", "."): Setting(
        default=each.default, kind=get_args(_TYPES[each.name]) or _TYPES[each.name], **each.metadata
    )
    for each in fields(ApplicationSettings)
    if each.metadata
}


def check_application_id(application_id: str) -> None:
    """Refuse an application id that could not name topics.

    :raises ConfigError: it is empty, too long, or holds other characters than letters, digits, dot, dash,
        underscore.
    """
    if not _APPLICATION_ID.match(application_id or ""):
        raise ConfigError(
            f"application id {application_id!r} cannot name Kafka topics",
            fix="use 1 to 200 letters, digits, dots, dashes and underscores",
        )


def nearest(name: str, known: Mapping[str, object] | list[str]) -> str:
    """Return a hint that names the known setting nearest to a misspelt one."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "see the settings reference for the known names"


def _outputs(text: str) -> dict[str, str]:
    """Read the setting ``output.topics``.

    :raises ConfigError: it is not ``NAME=OTHER,NAME,...``, or names a topic twice.
    """
    outputs: dict[str, str] = {}
    for entry in text.split(",") if text else ():
        name, equals, other = (part.strip() for part in entry.partition("="))
        if not name or (equals and not other) or name in outputs:
            raise ConfigError(
                f"setting 'output.topics' is {text!r}: {entry.strip()!r} names no topic, or one twice",
                fix="write NAME=OTHER,NAME=OTHER with each topic once; NAME alone keeps its own name",
            )
        outputs[name] = other or name
    return outputs


def _first_counts(text: str) -> dict[str, int]:
    """Read the setting ``initial.partitions``.

    :raises ConfigError: it is not ``TOPIC=N,TOPIC=N``, or names a topic twice.
    """
    counts: dict[str, int] = {}
    for entry in text.split(",") if text else ():
        topic, _, count = (part.strip() for part in entry.partition("="))
        if not topic or topic in counts or not count.isdecimal() or int(count) < 1:
            raise ConfigError(
                f"setting 'initial.partitions' is {text!r}: {entry.strip()!r} is no topic with its first "
                "partition count, or names a topic twice",
                fix="write TOPIC=N,TOPIC=N with each topic once, N from 1 on",
            )
        counts[topic] = int(count)
    return counts


def _first_sentence(setting: Setting) -> str:
    return setting.doc.partition(". ")[0].rstrip(".")


def _such_a_number(setting: Setting) -> str:
    return f"give such a number ({_first_sentence(setting)})"


def _number(name: str, value: object, setting: Setting) -> int | float:
    whole = setting.kind is int
    try:
        number = int(str(value)) if whole else float(str(value))
    except ValueError:
        kind = "whole" if whole else "decimal"
        raise ConfigError(
            f"setting {name!r} must be a {kind} number, got {value!r}", fix=_such_a_number(setting)
        ) from None
    if setting.maximum is not None and not setting.minimum <= number <= setting.maximum:
        raise ConfigError(
            f"setting {name!r} must be from {setting.minimum} to {setting.maximum}, got {number}",
            fix=_such_a_number(setting),
        )
    if number < setting.minimum:
        raise ConfigError(
            f"setting {name!r} must be {setting.minimum} or more, got {number}", fix=_such_a_number(setting)
        )
    return number


def _checked(name: str, value: object) -> Any:
    setting = SETTINGS.get(name)
    if setting is None:
        answer = java_names.SETTINGS.get(name)
        raise ConfigError(f"unknown setting {name!r}", fix=answer or nearest(name, SETTINGS))
    if setting.kind in (int, float):
        return _number(name, value, setting)
    if value is None and (setting.kind is str or (isinstance(setting.kind, tuple) and "" in setting.kind)):
        return ""  # as Kafka's own null: not set
    if setting.kind is str:
        if isinstance(value, bool) or not isinstance(value, str | int | os.PathLike):
            raise ConfigError(
                f"setting {name!r} must be a text, got {value!r:.200}", fix=f'write {{"{name}": "..."}}'
            )
        return str(value)
    if isinstance(setting.kind, tuple) and value not in setting.kind:
        allowed = ", ".join(kind or "'' (unset)" for kind in setting.kind)
        ours = java_names.VALUES_OF_SETTINGS.get(name, {}).get(str(value))
        fix = f"choose one of {allowed} ({_first_sentence(setting)})"
        if ours:
            fix = f"write {ours}, which is what Kafka Streams calls {value}"
        elif callable(value):
            fix = f"give one of {allowed} as text: a class or function of your own is no value of a setting"
        raise ConfigError(f"setting {name!r} must be one of {allowed}, got {value!r}", fix=fix)
    return value
