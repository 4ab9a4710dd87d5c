"""Defines the tree of errors of this package, and names the extra to install where a library is missing.

Every error has typed fields, survives pickling (errors cross from Spark executors to the driver), and prints
one printable line of cause and one of remedy, or both broken into short lines for a log. Each class calls for
a recovery:

==================================  =====================================================================
error                               recovery
==================================  =====================================================================
``ConfigError``                     fix a setting; a retry cannot help
``MissingExtraError``               install the extra that it names; a retry cannot help
``TopologyError``                   fix the application file; a retry cannot help
``OrphanedRecordsError``            finish or give up what is parked, then change the topology
``RecordError``                     fix the function, the data or the error policy, then retry the same run
``TaskFencedError``                 none here: a newer attempt owns the task; Spark may retry
``TaskCorruptedError``              drop local state and restore from the changelog
``TransactionAbortedError``         abort, drop local state, resume from the committed offsets
``TaskStateError``                  report it: the engine has a defect; a retry starts the task anew
``CallsStuckError``                 mend the function that blocks; another attempt has other threads
``StateStoreError``                 restore from the changelog
``StoreSerdeError``                 give the store a serde that fits its values; a retry cannot help
``RunError``                        do what its text says, then retry the same run
``RunBusyError``                    retry later, another owner holds the lease
``DataLossError``                   decide: restore the topic or accept the gap
``StopOffsetUnreachableError``      retry once the broker serves the missing offsets
``UpstreamNotDoneError``            run the upstream subtopology again
``RecordsParkedError``              the next run works on them; a retry looks again
``RunSupersededError``              none here: a newer attempt owns the run
``InvariantError``                  report it: the engine is wrong; nothing was committed
``SparkSessionError``               retry the run: another driver opens another session
``KilledError``                     retry: it goes on where the work was
``ExecutorSetupError``              bring this package to the executors; a retry cannot help
``KafkaClientError``                ``retriable`` says whether a retry can help
``SuspectWriterError``              make another writer of the id; a retry does
``AccessDeniedError``               give the permission it names; a retry cannot help before
``SchemaRegistryUnavailableError``  retry once the registry answers; no record is at fault
``TableMovedError``                 look at the table again; nothing was committed
``TableUnavailableError``           look at the table again; what was asked for may have been done
``LargeRewriteError``               let the operator that runs the topology do it: finish may not
``TableRefusedError``               decide: a person changed the table, or it cannot do what is asked for
``BadLineError``                    mend the line that it names, or leave such lines out
``BrokerError``                     mend what it names, then start the broker again
``PublicationError``                do what its text says: it names the line from which to go on
==================================  =====================================================================
"""

from __future__ import annotations

import copyreg
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from airflow_kstreams.streams.naming import permissions
from airflow_kstreams.streams.printable import broken, printable, printable_lines

#: Codes of a KafkaClientError for records that cannot be unpacked, or unpack to more than a look may take.
UNREADABLE = frozenset({"_BAD_COMPRESSION", "LOOK_MEMORY"})
#: Beginning of a line that carries an error, :meth:`KStreamsError.to_dict` in JSON, to another process.
ERROR_MARKER = "KSTREAMS-ERROR "


@dataclass(kw_only=True, eq=False, repr=False)
class KStreamsError(Exception):
    """Base of all errors of this package.

    :param cause: one line: the event, its place, the finding and the expectation.
    :param fix: one line: the remedy.
    :param trace: traceback through the user's functions, several lines, to print before the cause; empty if
        none is on it.
    """

    #: What names the error in texts, logs and the reference; empty for a class that only groups others.
    own_code: ClassVar[str] = ""
    #: True if a retry without a change can succeed.
    retriable: ClassVar[bool] = True
    cause: str = field(kw_only=False)
    fix: str = ""
    trace: str = ""
    #: Columns at which lines of its text are broken; 0: cause and remedy are a line each.
    _columns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.cause, self.fix = printable(self.cause), printable(self.fix)
        self.trace = printable_lines(self.trace)
        super().__init__(self.cause)

    def __str__(self) -> str:
        return self._broken() if self._columns else self._in_two_lines()

    def _in_two_lines(self) -> str:
        return f"{self.trace}\n{self._said()}" if self.trace else self._said()

    def _said(self) -> str:
        return f"{self.coded_cause}\nWhat to do: {self.fix}" if self.fix else self.coded_cause

    def _broken(self) -> str:
        parts = (f"{self.type_name}: {self.coded_cause}", self.trace, self.fix and f"What to do: {self.fix}")
        return "\n".join(broken(part, self._columns) for part in parts if part)

    @property
    def type_name(self) -> str:
        """Its class, in the process that raised it."""
        return type(self).__name__

    @property
    def code(self) -> str:
        """What names it in texts, logs and the reference: ``KS-RUN-002``."""
        return type(self).own_code

    @property
    def coded_cause(self) -> str:
        """Its cause and its code, in one line."""
        return with_code(self.cause, self.code)

    def broken_at(self, columns: int) -> Self:
        """Let its text be read where lines are cut at the edge: class and cause, then the user's traceback,
        last the remedy, in lines of so many columns at most.

        :return: the error itself.
        """
        self._columns = columns
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), self.cause), self.__dict__  # type: ignore[attr-defined]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form, for crossing process boundaries as text."""
        return {
            "type": self.type_name,
            "code": self.code,
            "cause": self.cause,
            "fix": self.fix,
            "retriable": self.is_retriable,
            **({"trace": self.trace} if self.trace else {}),
        }

    @property
    def is_retriable(self) -> bool:
        """True if a retry without a change can succeed."""
        return type(self).retriable


def with_code(cause: str, code: str) -> str:
    """Return a cause with the code of its error behind it, in one line.

    >>> with_code("run r-7 is at work", "KS-RUN-002")
    'run r-7 is at work [KS-RUN-002]'
    """
    return f"{cause} [{code}]" if code else cause


class ConfigError(KStreamsError):
    """A setting is unknown, owned by the engine, malformed or contradictory."""

    own_code: ClassVar[str] = "KS-APP-001"
    retriable: ClassVar[bool] = False


class MissingExtraError(ConfigError, ImportError):
    """A library is not installed that comes with an extra of this package; one line, as an import's error."""

    own_code: ClassVar[str] = "KS-APP-002"

    def _in_two_lines(self) -> str:
        return f"{self.coded_cause}: {self.fix}"


class TopologyError(KStreamsError):
    """The topology, or the application file that defines it, is wrong."""

    own_code: ClassVar[str] = "KS-APP-003"
    retriable: ClassVar[bool] = False


@dataclass(kw_only=True, eq=False, repr=False)
class OrphanedRecordsError(TopologyError):
    """The topology would never process records that earlier runs have parked.

    :param node: the node of their retry topic.
    :param count: their number; None if it is not known.
    """

    own_code: ClassVar[str] = "KS-APP-004"
    node: str
    count: int | None


@dataclass(kw_only=True, eq=False, repr=False)
class RecordError(KStreamsError):
    """One record could not be deserialized, processed or delivered.

    :param topic: topic of the record; the output topic when delivery failed.
    :param partition: partition of the record.
    :param offset: offset of the record, -1 when it has none yet.
    :param node: name of the topology node at which it failed.
    :param contents: id of a record's content that the broker refused for its size or time -> the reason;
        empty for any other error.
    """

    own_code: ClassVar[str] = "KS-TASK-001"
    topic: str
    partition: int
    offset: int
    node: str
    contents: Mapping[str, str] = field(default_factory=dict)


def record_refused(
    topic: str, partition: int, why: str, *, contents: Mapping[str, str] | None = None
) -> RecordError:
    """Return the error of a record that the client or the broker refuses for itself, e.g. for its size.

    :param topic: topic of the record.
    :param partition: partition of the record; -1 if none was chosen yet.
    :param why: Kafka's name of the error, and the fault.
    :param contents: as for :class:`RecordError`.
    """
    return RecordError(
        f"a record sent to {topic}{'' if partition < 0 else f'-{partition}'} was refused: {why}",
        fix="change what the topology sends, or the topic's limits (max.message.bytes, message.timestamp.*, "
        "cleanup.policy=compact needs keys); then retry the run",
        topic=topic,
        partition=partition,
        offset=-1,
        node="",
        contents=contents or {},
    )


@dataclass(kw_only=True, eq=False, repr=False)
class TaskError(KStreamsError):
    """A task failed.

    :param task_id: the task, printed as ``<subtopology>_<group>``.
    """

    task_id: str


class TaskFencedError(TaskError):
    """Another attempt of the task claimed its transactional id, or the broker timed its transaction out."""

    own_code: ClassVar[str] = "KS-TASK-002"


class TaskCorruptedError(TaskError):
    """Local state cannot be trusted any more."""

    own_code: ClassVar[str] = "KS-TASK-003"


class TransactionAbortedError(TaskError):
    """The broker or the client asked for the transaction to be aborted."""

    own_code: ClassVar[str] = "KS-TASK-004"


class TaskStateError(TaskError):
    """A task was to take a step that its state does not allow."""

    own_code: ClassVar[str] = "KS-TASK-005"


class CallsStuckError(TaskError):
    """Calls that never return block the task, or hold the memory of its process."""

    own_code: ClassVar[str] = "KS-TASK-006"


class StateStoreError(KStreamsError):
    """A state store could not be read, written or restored."""

    own_code: ClassVar[str] = "KS-STATE-001"


class StoreSerdeError(StateStoreError):
    """The value serde of a store does not take a value, or does not give it back unchanged."""

    own_code: ClassVar[str] = "KS-STATE-002"
    retriable: ClassVar[bool] = False


@dataclass(kw_only=True, eq=False, repr=False)
class RunError(KStreamsError):
    """A run failed as a whole.

    :param run_id: the run.
    """

    own_code: ClassVar[str] = "KS-RUN-001"
    run_id: str


@dataclass(kw_only=True, eq=False, repr=False)
class RunBusyError(RunError):
    """Another owner works on this application: it took or renewed the lease.

    :param run_id: the run that was refused; empty if a command was.
    :param owner: the owner of the lease; empty if no lease is in the way.
    :param owner_run_id: the run the owner works on.
    """

    own_code: ClassVar[str] = "KS-RUN-002"
    run_id: str = ""
    owner: str = ""
    owner_run_id: str = ""


class RecordsParkedError(RunError):
    """A run is finished and its results are committed, but records that it left parked are not processed
    yet.
    """

    own_code: ClassVar[str] = "KS-RUN-003"


class RunSupersededError(RunError):
    """A newer attempt has claimed this run; this process must not write any more."""

    own_code: ClassVar[str] = "KS-RUN-004"


class InvariantError(KStreamsError):
    """The engine, a client or the broker broke what every commit promises; the commit was not made.

    :param invariant: the statement that must hold.
    :param where: the task or step that was about to commit.
    """

    own_code: ClassVar[str] = "KS-RUN-008"
    retriable: ClassVar[bool] = False
    invariant: str
    where: str

    def __init__(self, invariant: str, found: str, *, where: str) -> None:
        super().__init__(
            f"{where}: broken invariant: {invariant}: {found}; nothing of this was committed",
            fix="keep this line, the logs and the topics, and report the error: this is a mistake of "
            "airflow-kstreams, or a log lost records that were acknowledged (look for an unclean leader "
            "election); run again only when it is explained",
        )
        self.invariant, self.where = invariant, where


class SparkSessionError(KStreamsError):
    """Spark's session did not open, or its JVM is gone; this driver cannot go on, but another one can resume
    the run.
    """

    own_code: ClassVar[str] = "KS-SPARK-001"


class KilledError(KStreamsError):
    """The work was ended on request, before it was done."""

    own_code: ClassVar[str] = "KS-RUN-009"


class ExecutorSetupError(KStreamsError):
    """An executor cannot run tasks: this package is missing or of another version, or its Python does not
    fit.
    """

    own_code: ClassVar[str] = "KS-SPARK-002"
    retriable: ClassVar[bool] = False


class DataLossError(RunError):
    """Input of the run is gone, its topic was replaced, or the records of the runs' progress contradict each
    other.
    """

    own_code: ClassVar[str] = "KS-RUN-005"
    retriable: ClassVar[bool] = False


class StopOffsetUnreachableError(RunError):
    """A partition stopped advancing before its stop offset."""

    own_code: ClassVar[str] = "KS-RUN-006"


class UpstreamNotDoneError(RunError):
    """An intermediate topic has no stop offsets yet, because tasks that write it are not done."""

    own_code: ClassVar[str] = "KS-RUN-007"


@dataclass(kw_only=True, eq=False, repr=False)
class KafkaClientError(KStreamsError):
    """The Kafka client reported an error.

    :param kafka_code: the client's name of the error, e.g. ``_TRANSPORT``.
    :param retriable_code: True if a retry can help, according to the client.
    :param fatal: True if the client instance is unusable from now on.
    """

    own_code: ClassVar[str] = "KS-KAFKA-001"
    kafka_code: str
    retriable_code: bool = False
    fatal: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form, with Kafka's code."""
        return {**super().to_dict(), "kafka_code": self.kafka_code}

    @property
    def is_retriable(self) -> bool:
        """True if a retry without a change can succeed.

        It can if the client says so, and if the error was fatal: that ends only one client instance, and
        every attempt makes new ones.
        """
        return self.retriable_code or self.fatal


class SuspectWriterError(KafkaClientError):
    """A writer may have repeated a request, so it begins no other transaction. Nothing of that was written.

    :param transactional_id: the writer's id.
    """

    own_code: ClassVar[str] = "KS-KAFKA-002"

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            f"writer {transactional_id} may have repeated a request and begins no other transaction",
            fix="make a new writer with the same transactional id",
            kafka_code="_STATE",
            retriable_code=True,
        )


class AccessDeniedError(KafkaClientError):
    """The broker's ACLs refuse this user a request that a run needs.

    :param what: the refused action.
    :param where: the bootstrap servers.
    :param permission: the missing permission.
    :param principal: the refused user, e.g. ``User:orders``; empty when only the broker knows it.
    """

    own_code: ClassVar[str] = "KS-KAFKA-003"
    what: str
    where: str
    permission: permissions.Permission
    principal: str

    def __init__(
        self, *, what: str, where: str, permission: permissions.Permission, principal: str, kafka_code: str
    ) -> None:
        super().__init__(
            f"{what} at {where}: not authorized: {principal or 'this user'} needs the permission {permission}"
            + (f" ({permission.reason})" if permission.reason else ""),
            fix="have an administrator run: "
            + permissions.acl_command([permission], principal=principal, bootstrap=where)
            + " (airflow-kstreams acls APP.py --application-id ID prints all that a run needs)",
            kafka_code=kafka_code,
        )
        self.what, self.where, self.permission, self.principal = what, where, permission, principal

    def naming(self, permission: permissions.Permission) -> AccessDeniedError:
        """Return this error for a permission that includes the missing one."""
        return AccessDeniedError(
            what=self.what,
            where=self.where,
            permission=permission,
            principal=self.principal,
            kafka_code=self.kafka_code,
        )


class SchemaRegistryUnavailableError(KStreamsError):
    """A schema registry that a serde needs did not answer; no record is at fault."""

    own_code: ClassVar[str] = "KS-KAFKA-004"


class TableMovedError(KStreamsError):
    """A table is not in the state that a commit was made for, so nothing was committed."""

    own_code: ClassVar[str] = "KS-TABLE-001"


class TableUnavailableError(KStreamsError):
    """A catalogue or storage did not answer, or answered that it cannot for now. What was asked for may have
    been done all the same.
    """

    own_code: ClassVar[str] = "KS-TABLE-002"


class LargeRewriteError(KStreamsError):
    """An upsert would rewrite more bytes of a table than this process may. Nothing was committed."""

    own_code: ClassVar[str] = "KS-TABLE-003"


class TableRefusedError(KStreamsError):
    """A table is not as its runs have left it, or cannot do what is asked for; or its catalogue or storage
    refuses that. A retry cannot help.
    """

    own_code: ClassVar[str] = "KS-TABLE-004"
    retriable = False


@dataclass(kw_only=True, eq=False, repr=False)
class ReportedError(KStreamsError):
    """An error that another process (a Spark driver, the loader of application files, a trigger) reported as
    JSON.

    :param error_type: the error's class in that process.
    :param retriable_there: True if a retry can help, according to that process.
    :param trace: traceback through the user's functions in that process.
    :param code_there: the error's code in that process; empty for one that is not of this package.
    :param kafka_code: Kafka's name of the error in that process; empty for any other error.
    """

    error_type: str
    retriable_there: bool
    code_there: str = ""
    kafka_code: str = ""

    @property
    def is_retriable(self) -> bool:
        """True if a retry without a change can succeed."""
        return self.retriable_there

    def _in_two_lines(self) -> str:
        said = f"{self.error_type}: {self._said()}"
        return f"{self.trace}\n{said}" if self.trace else said

    @property
    def type_name(self) -> str:
        """Its class, in the process that raised it."""
        return self.error_type

    @property
    def code(self) -> str:
        """Its code, in the process that raised it."""
        return self.code_there

    def to_dict(self) -> dict[str, Any]:
        """Return the report unchanged."""
        return {**super().to_dict(), **({"kafka_code": self.kafka_code} if self.kafka_code else {})}

    @classmethod
    def from_dict(cls, reported: Mapping[str, Any]) -> ReportedError:
        """Build the error from the result of ``KStreamsError.to_dict``.

        :param reported: the report; an error without these fields is unknown and retriable.
        """
        return cls(
            str(reported.get("cause", "no cause given")),
            fix=str(reported.get("fix", "")),
            error_type=str(reported.get("type", "KStreamsError")),
            retriable_there=bool(reported.get("retriable", True)),
            trace=str(reported.get("trace", "")),
            code_there=str(reported.get("code", "")),
            kafka_code=str(reported.get("kafka_code", "")),
        )


def reported_in(line: str) -> ReportedError | None:
    """Return the error in a line of output, None if there is none."""
    _, marker, payload = line.partition(ERROR_MARKER)
    if not marker:
        return None
    try:
        reported = json.loads(payload)
    except ValueError:
        return None
    return ReportedError.from_dict(reported) if isinstance(reported, dict) else None


def unwritable(
    path: str | Path, error: OSError, *, fix: str = "name a file in a folder that you may write"
) -> ConfigError:
    """Describe a file of the user's that cannot be written.

    :param path: path of the file.
    :param error: the system's error.
    :param fix: the remedy.
    """
    return ConfigError(f"{str(path)!r} cannot be written: {error.strerror}", fix=fix)


def require(extra: str, *modules: str, what: str) -> None:
    """Check that modules are installed, without importing them; packages above a nested module are imported.

    :param extra: name of the extra of this package that installs them.
    :param modules: names of the modules.
    :param what: the part that needs them, for the message.
    :raises MissingExtraError: a module is not installed.
    """
    for module in modules:
        try:
            found = importlib.util.find_spec(module) is not None
        except ImportError:  # a package above it is missing
            found = False
        if not found:
            raise MissingExtraError(
                f"{what} needs {module}, which is not installed here",
                fix=f"pip install 'airflow-kstreams[{extra}]'",
            )
