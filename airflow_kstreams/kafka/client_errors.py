"""Turns errors of the Kafka client into errors of this package; no other module does.

Every client call goes through :func:`guarded`. It has a bare ``except:`` because the client can raise a
``KafkaError`` that is no subclass of ``BaseException`` (seen in confluent-kafka 2.16.1 from ``flush`` and
``poll`` of a fenced producer), which ``except Exception`` misses. The new error is raised after the handler
has ended, so that such an object never becomes the context of a real exception.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from confluent_kafka import KafkaError, KafkaException

from airflow_kstreams.kafka.listener import ListenerFinding
from airflow_kstreams.streams.errors import AccessDeniedError, ConfigError, KafkaClientError, KStreamsError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.permissions import Permission
from airflow_kstreams.streams.ports import TopicPartition

P = ParamSpec("P")
R = TypeVar("R")

#: No broker answered.
UNREACHABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._WAIT_COORD,
    }
)
#: Another client claimed the transactional id, or the broker timed the transaction out.
FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_CREDENTIALS = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})
_TOPIC_MISSING = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
#: Remedy for a topic or partition that is not there.
NO_SUCH = "create the topic, or the partition that it lacks, or correct the name"
#: The broker's ACLs say no.
FORBIDDEN = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
#: Texts of the broker or the client about refused credentials, with their remedies.
_CREDENTIALS_FIXES: Mapping[str, str] = {
    "Unsupported SASL mechanism": "set sasl.mechanism to one that the broker supports",
    "not valid in current SASL state": "this listener takes no login: set security.protocol to SSL or "
    "PLAINTEXT, or bootstrap.servers to the port of the listener for logins",
    "Authentication failed": "correct sasl.username and sasl.password",
    "certificate verify failed": "set ssl.ca.location to the PEM file of the authority that signed the "
    "broker's certificate, and bootstrap.servers to a name that the certificate holds",
}
_LOGIN_BY_NAME = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_POSITION_LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
#: Codes that the client does not call retriable although trying again later can help.
_PASSING = UNREACHABLE | {
    KafkaError._RETRY,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._QUEUE_FULL,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    # Errors of a record's delivery while the cluster is busy; delivery reports never say "retriable".
    KafkaError._MSG_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.KAFKA_STORAGE_ERROR,
}


def guarded(what: str, where: str, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call the client and convert every error that it raises.

    :param what: the action, e.g. ``"reading committed offsets"``.
    :param where: the cluster or client, e.g. the bootstrap servers.
    :param call: the client's method.
    :raises KafkaClientError: the client failed.
    """
    error: Any
    try:
        return call(*args, **kwargs)
    except (KStreamsError, KeyboardInterrupt, SystemExit):
        raise
    except:  # noqa: E722 - see the module's docstring
        error = sys.exc_info()[1]
    raise convert(error, what=what, where=where)


class CallOverdueError(Exception):
    """A call of the client has not returned in time.

    :param seconds: the call's time limit.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} s")


def attempt(call: Callable[..., Any], *args: Any) -> Any:
    """Call the client and return the error that it raised, None if it succeeded.

    The error comes without its traceback, which holds this call's frame and so the client: the client would
    live as long as the error, with its threads, and with a queue of statistics that grows because no call
    empties it.
    """
    try:
        call(*args)
    except (KeyboardInterrupt, SystemExit):
        raise
    except:  # noqa: E722 - see the module's docstring
        error: Any = sys.exc_info()[1]
        return error.with_traceback(None) if isinstance(error, BaseException) else error
    return None


def kafka_error_of(error: Any) -> KafkaError | None:
    """Return the client's error object inside an error, None if there is none."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    return None


def convert(error: Any, *, what: str, where: str) -> KStreamsError:
    """Turn an error that the client raised or returned into an error of this package."""
    if isinstance(error, KStreamsError):
        return error
    if isinstance(error, CallOverdueError):
        return unreachable(where, f"{what}: {error}", kafka_code="_TIMED_OUT")
    kafka_error = kafka_error_of(error)
    if kafka_error is not None:
        return from_kafka_error(kafka_error, what=what, where=where)
    return KafkaClientError(
        f"{what} at {where}: {type(error).__name__}: {_one_line(str(error))}",
        fix="this is no answer of the broker: run it again, and report it if it comes again",
        kafka_code=type(error).__name__,
    )


def from_kafka_error(error: KafkaError, *, what: str, where: str) -> KafkaClientError:
    """Map one error object of the client.

    Code that knows the permission of a refused request uses :class:`Access` instead.
    """
    code = error.code()
    name = error.name()
    text = _one_line(error.str())
    fatal = (error.fatal() or code == KafkaError._FATAL) and code not in FORBIDDEN
    if code in _CREDENTIALS:
        return wrong_credentials(where, text)
    if code in UNREACHABLE and not fatal:
        return unreachable(where, f"{what}: {text}", kafka_code=name)
    cause, fix = _explain(code, f"{what} at {where}", text)
    return KafkaClientError(
        cause,
        fix=fix,
        kafka_code=name,
        retriable_code=not fatal and (error.retriable() or code in _PASSING),
        fatal=fatal,
    )


class Access:
    """Turns "not authorized", which names nothing, into an error that names the permission.

    :param client_config: settings of the client that was refused.
    """

    __slots__ = ("_principal", "_where")

    def __init__(self, client_config: Mapping[str, str]) -> None:
        self._where = client_config.get("bootstrap.servers", "?")
        self._principal = principal_of(client_config)

    def denied(self, error: KafkaError, what: str, permission: Permission) -> AccessDeniedError | None:
        """Return the error for a request that lacked a permission, None for any other error.

        :param permission: the permission that the request needs.
        """
        if error.code() not in FORBIDDEN:
            return None
        return AccessDeniedError(
            what=what,
            where=self._where,
            permission=permission,
            principal=self._principal,
            kafka_code=error.name(),
        )


def principal_of(client_config: Mapping[str, str]) -> str:
    """Return the principal of a client by Kafka's default rules; empty when only the broker knows it."""
    protocol = client_config.get("security.protocol", "plaintext").upper()
    mechanism = client_config.get("sasl.mechanism", client_config.get("sasl.mechanisms", "")).upper()
    user = client_config.get("sasl.username", "")
    if protocol.startswith("SASL") and mechanism in _LOGIN_BY_NAME and user:
        return f"User:{user}"
    return "User:ANONYMOUS" if protocol == "PLAINTEXT" else ""


def _explain(code: int, prefix: str, text: str) -> tuple[str, str]:
    if code in _TOPIC_MISSING:
        return f"{prefix}: no such topic or partition: {text}", NO_SUCH
    if code in FORBIDDEN:
        return (
            f"{prefix}: not authorized: {text}",
            "ask the cluster's administrator for the missing permission",
        )
    if code in _POSITION_LOST:
        return (
            f"{prefix}: the position to read from is not in the log: {text}",
            "records were deleted, or the topic was created again: restore it, or have reading go on at the "
            "log's start: airflow-kstreams reset --application-id ... --accept TOPIC:PARTITION --to-earliest",
        )
    if code in FENCED:
        return (
            f"{prefix}: fenced, or its transaction timed out: {text}",
            "nothing: a newer attempt owns this transactional id",
        )
    return f"{prefix}: {text}", "see the cause; a retry helps when the broker was only busy"


def unreadable_batch(
    error: KafkaError, place: tuple[str, int, int], *, limit: str
) -> KafkaClientError | None:
    """Return the error for a batch of records that the client cannot unpack, None for any other error.

    :param place: topic, partition number and offset of the batch's first record.
    :param limit: the client's ``receive.message.max.bytes``, which bounds what a batch of zstd unpacks to.
    """
    if error.code() != KafkaError._BAD_COMPRESSION:
        return None
    topic, number, offset = place
    return KafkaClientError(
        f"{topic}-{number}@{offset}: the batch of records that begins there cannot be unpacked: it is "
        f"damaged, or unpacks to more than the {limit} bytes of receive.message.max.bytes: "
        f"{_one_line(error.str())}",
        fix="no retry helps: if the batch may be as large, raise receive.message.max.bytes in the client "
        "settings to three times its size, and run it again; else give up its records, with those before it "
        f"that no run has committed, and have reading go on behind them: airflow-kstreams reset "
        f"--application-id ... --accept {topic}:{number} --to-offset OFFSET",
        kafka_code=error.name(),
    )


def too_much_unpacked(
    places: str, first: TopicPartition | None, *, limit: int, variable: str, detail: str
) -> KafkaClientError:
    """Build the error for records that unpack to more than a look may take.

    :param places: the partitions that were read, each with the offset that comes next.
    :param first: the first of them.
    :param limit: bytes that one fetch of a look may take.
    :param variable: the environment variable that sets them.
    :param detail: what the process that read has come to.
    """
    accepted = "TOPIC:PARTITION" if first is None else f"{first.topic}:{first.partition}"
    return KafkaClientError(
        f"{places}: what was fetched there unpacks to more than the {counted(limit, 'byte')} that a look "
        f"may take: {detail}",
        fix=f"no retry helps: raise {variable} where this process runs to four times the size that it "
        "unpacks to, and run it again; else give up its records, with those before it that no run has "
        "committed, and have reading go on behind them: "
        f"airflow-kstreams reset --application-id ... --accept {accepted} --to-offset OFFSET",
        kafka_code="LOOK_MEMORY",
    )


def unreachable(where: str, detail: str, *, kafka_code: str = "_TRANSPORT") -> KafkaClientError:
    """Build the error for a cluster that does not answer."""
    return KafkaClientError(
        f"broker unreachable at {where}: {_one_line(detail)}",
        fix="check bootstrap.servers and that the broker runs and can be reached from here",
        kafka_code=kafka_code,
        retriable_code=True,
    )


def wrong_credentials(where: str, detail: str) -> KafkaClientError:
    """Build the error for refused credentials."""
    fix = (
        "correct security.protocol, sasl.mechanism and what this mechanism takes (sasl.username and "
        "sasl.password, or what gives its tokens or tickets), or the TLS files"
    )
    for sign, remedy in _CREDENTIALS_FIXES.items():
        if sign in detail:
            fix = remedy
            break
    return KafkaClientError(
        f"the broker at {where} refused the credentials: {_one_line(detail)}",
        fix=fix,
        kafka_code="_AUTHENTICATION",
    )


def wrong_listener(where: str, finding: ListenerFinding) -> KafkaClientError:
    """Build the error for settings that do not fit the listener."""
    return KafkaClientError(
        f"no connection to {where}: {_one_line(finding.cause)}", fix=finding.fix, kafka_code="_SSL"
    )


def timeout_refused(transactional_id: str, timeout_ms: int) -> ConfigError:
    """Build the error for a transaction timeout above the broker's limit."""
    return ConfigError(
        f"transaction.timeout.ms = {timeout_ms} of {transactional_id} exceeds the broker's limit "
        "transaction.max.timeout.ms",
        fix=(
            "lower the application setting transaction.timeout.ms, or raise the broker's "
            "transaction.max.timeout.ms"
        ),
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
