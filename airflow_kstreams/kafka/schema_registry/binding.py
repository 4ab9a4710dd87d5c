"""Binds a format to a topic: makes the registry's clients and the pair of functions a task calls, and sorts
their errors.

confluent-kafka's serializers and deserializers do the work, one pair for each topic and side of a task. They
are made at the first record, because a sink never reads and a source never writes; the client they share is
made when the task starts, so that a missing library or setting shows before the first record.

Rule of clients: the task that binds a serde makes the client, in the process that uses it; a client is never
pickled, and building a topology makes none. Tasks of one process share a client for each configuration, and
so its memory of schemas and ids: each is asked for once per process. So the client stays open when one of its
users closes it. A ``mock://`` registry lives as long as its client, so everything in one process that names
the same one shares it.

Rule of errors: a record's fault is raised as ``ValueError``, which the engine makes a ``RecordError`` that
the error policy may skip or dead-letter. Any other fault (registry away, credentials refused, an answer that
is no registry's, schema not registered, not compatible, broken or explosive) is one of the registry or the
configuration, is raised as ``KStreamsError`` and passes every policy: no record is ever skipped because a
registry was down. If a retry can help, it is a ``SchemaRegistryUnavailableError``, else a ``ConfigError``.
Which it is, is decided where it happens: :mod:`asked_registry` marks what fails in a request,
:mod:`schema_bounds` what fails in a schema.

Rule of texts: a registry may repeat what it was sent, credentials among it, in its errors and in schemas.
Each text passes ``without_secrets`` before it is cut or raised, and no error of the client is its cause.

Crash argument: registering a schema is not part of a task's transaction. It need not be: a registry gives the
same schema the same id again, so the attempt that resumes writes the same bytes.
"""

from __future__ import annotations

import importlib
import io
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from airflow_kstreams.kafka.configuration.registry_settings import PREFIX, client_config, registry_settings
from airflow_kstreams.kafka.configuration.secrets import without_secrets
from airflow_kstreams.kafka.schema_registry.answer_bounds import bound_answers
from airflow_kstreams.kafka.schema_registry.asked_registry import AskedRegistry, RegistryError
from airflow_kstreams.kafka.schema_registry.formats import (
    Deserializer,
    SchemaFormat,
    Serializer,
    json_schema_fault,
    unresolved_reference,
)
from airflow_kstreams.kafka.schema_registry.schema_bounds import BrokenSchemaError, fault_in
from airflow_kstreams.streams.errors import ConfigError, KStreamsError, SchemaRegistryUnavailableError
from airflow_kstreams.streams.hints.hidden_values import UnfitValueError, shown_text
from airflow_kstreams.streams.records.user_traceback import program_text
from airflow_kstreams.streams.secret_texts import shown_url
from airflow_kstreams.streams.serde.base import Serde, Side

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

#: Settings of :func:`configure` in this process, by the registry client's own names.
_settings: dict[str, str] = {}
_clients: dict[tuple[tuple[str, object], ...], SchemaRegistryClient] = {}
#: Tasks of one process bind side by side.
_lock = threading.Lock()
#: HTTP statuses that a retry can cure.
_PASSING = frozenset({408, 429, *range(500, 600)})
_REFUSED = frozenset({401, 403})
_NOT_FOUND = 404
_INCOMPATIBLE = 409
#: Names of subjects, under which a registry keeps the versions of a schema: ``<topic>-<side>``, ``<record>``
#: or ``<topic>-<record>``.
SubjectNames = Literal["topic", "record", "topic_record"]


class RegistryOptions(TypedDict, total=False):
    """The options of a registry's serdes.

    :param auto_register_schemas: whether the first record written to a topic registers the schema, as it does
        unless given. If not, it must be registered before.
    :param use_latest_version: whether to read and write by the newest schema registered for the topic, in
        place of the given one; nothing is registered then. Results depend on what is registered when a task
        starts, so a retried run may give other bytes.
    :param subject_names: rule for the names of the registry's subjects. ``topic``, unless given, gives
        ``<topic>-key`` and ``<topic>-value``, ``record`` the name of the record, ``topic_record`` both.
        Stores use the name of their changelog topic.
    """

    auto_register_schemas: bool
    use_latest_version: bool
    subject_names: SubjectNames


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySerde:
    """A serde of a schema registry, as a topology defines it; plain data.

    :param format: the schema.
    :param url: address of the registry, "" for the one that the client settings name.
    :param auto_register_schemas: whether a schema that the registry lacks is registered.
    :param use_latest_version: whether the newest registered schema is used in place of this one.
    :param subject_names: rule by which the registry's subjects are named.
    """

    format: SchemaFormat
    url: str
    auto_register_schemas: bool = True
    use_latest_version: bool = False
    subject_names: SubjectNames = "topic"

    @property
    def id(self) -> str:
        """Stable text for the topology hash: never an address or a credential."""
        parts = [self.format.fingerprint, *self.format.options]
        if self.use_latest_version:
            parts.append("latest version")
        elif not self.auto_register_schemas:
            parts.append("registered only")
        if self.subject_names != "topic":
            parts.append(f"{self.subject_names} subjects")
        return f"{self.format.name}({', '.join(parts)})"

    def unbound(self) -> Serde:
        """Return the serde for a topology; a task binds it to its topic before it uses it."""

        def refuse(_: Any) -> Any:
            raise ConfigError(
                f"the serde {self.id} is used without a topic, by which its schemas are registered",
                fix='bind it first: serde.bound("TOPIC", "value")',
            )

        return Serde(
            id=self.id,
            written_as=self.format.name,
            serialize=refuse,
            deserialize=refuse,
            for_topic=self.bound,
        )

    def bound(self, topic: str, side: Side) -> Serde:
        """Return the serde for one topic.

        :raises ConfigError: the extra is not installed, no registry is named, or its settings are refused.
        """
        bound = BoundSerde(self, client_of(self.url), topic, side)
        return Serde(id=self.id, serialize=bound.serialize, deserialize=bound.deserialize)


class BoundSerde:
    """A format bound to the keys or values of one topic, in one task.

    :param definition: the serde.
    :param client: the process's client of the registry.
    :param topic: name in Kafka.
    :param side: key or value.
    :raises ConfigError: the format's library is not installed.
    """

    def __init__(
        self, definition: RegistrySerde, client: SchemaRegistryClient, topic: str, side: Side
    ) -> None:
        from confluent_kafka.serialization import MessageField, SerializationContext

        self._definition = definition
        self._format = definition.format
        self._client: Any = AskedRegistry(client)
        self._where = f"{side}s of topic {topic!r}"
        self._context = SerializationContext(topic, MessageField(side))
        self._serializer: Serializer | None = None
        self._deserializer: Deserializer | None = None
        # A missing library is noticed when the task starts.
        try:
            importlib.import_module(self._format.library)
        except ImportError as error:
            raise missing_library(error) from None

    def serialize(self, value: Any) -> bytes:
        """Write a value in Confluent's wire format.

        :raises ValueError: the value does not fit the schema.
        :raises KStreamsError: the registry does not take the schema, or cannot be asked.
        """
        serializer = self._serializer or self._make_serializer()
        try:
            return serializer(value, self._context)
        except Exception as error:
            raise self._unwritten(value, error) from None

    def deserialize(self, data: bytes) -> Any:
        """Read a value from Confluent's wire format.

        :raises ValueError: the bytes are of another format or schema, or of one that was never registered.
        :raises KStreamsError: the registry cannot be asked.
        """
        deserializer = self._deserializer or self._make_deserializer()
        try:
            return deserializer(data, self._context)
        except Exception as error:
            raise self._unread(data, error) from None

    def _make_serializer(self) -> Serializer:
        definition = self._definition
        if not (self._format.has_schema or definition.use_latest_version):
            raise ConfigError(
                f"the serde {definition.id} has no schema to write the {self._where}",
                fix=f"give one: registry.{self._format.name}(schema)",
            )
        conf = {
            **self._conf(),
            "auto.register.schemas": definition.auto_register_schemas and not definition.use_latest_version,
        }
        self._refuse_missing_reference()
        try:
            self._serializer = self._format.serializer(self._client, conf)
        except Exception as error:
            raise self._refused_schema(error) from None
        return self._serializer

    def _make_deserializer(self) -> Deserializer:
        conf = {**self._conf(), "schema.id.deserializer": _read_id}
        self._refuse_missing_reference()
        try:
            self._deserializer = self._format.deserializer(self._client, conf)
        except Exception as error:
            raise self._refused_schema(error) from None
        return self._deserializer

    def _conf(self) -> dict[str, Any]:
        # The library's own choice would ask the registry for associations of topics first, which not every
        # registry knows.
        return {
            "subject.name.strategy.type": self._definition.subject_names.upper(),
            "use.latest.version": self._definition.use_latest_version,
        }

    def _unwritten(self, value: Any, error: Exception) -> Exception:
        """Return the error for a value that was not written."""
        if isinstance(error, KStreamsError):
            return error
        known = self._registry_fault(error)
        if known is not None:
            return known
        return UnfitValueError(
            f"a {type(value).__name__} is no value of {self._definition.id}: "
            f"{self._hidden(self._format.misfit(value, error))}"
        )

    def _unread(self, data: bytes, error: Exception) -> Exception:
        """Return the error for bytes that were not read."""
        if isinstance(error, KStreamsError):
            return error
        known = self._registry_fault(error)
        found = fault_in(error)
        # A schema of another format, which the bytes name, is broken in this one.
        if known is not None and not is_unknown_schema(error) and not isinstance(found, BrokenSchemaError):
            return known
        fault = self._schema_fault(data, error)
        if isinstance(fault, KStreamsError):
            return fault
        if known is not None and fault is None:
            return known
        reason = fault or json_schema_fault(error) or _said_without_values(error)
        return UnfitValueError(f"the bytes are no value of {self._definition.id}: {self._hidden(reason)}")

    def _schema_fault(self, data: bytes, error: Exception) -> str | KStreamsError | None:
        """Return the fault of the schema that bytes were written with, None if it has none.

        The registry is asked again: the error alone does not show which of several requests failed.
        """
        if isinstance(error, _NotFramed):
            return str(error)
        framed = len(data) >= 5 and data[0] == 0
        if not framed:
            return _not_framed(data) if data[:1] != b"\1" else None
        schema_id = int.from_bytes(data[1:5], "big")
        try:
            schema = self._client.get_schema(schema_id)
        except Exception as asked:
            if is_unknown_schema(asked):
                return f"the registry has no schema {schema_id}, found in the bytes"
            return self._registry_fault(asked)
        if schema.schema_type not in (None, self._format.type):
            return f"schema {schema_id} is of type {schema.schema_type}, expected {self._format.type}"
        return None

    def _refuse_missing_reference(self) -> None:
        """Refuse a text that is no whole schema, before it is registered."""
        definition = self._definition
        try:
            missing = self._format.missing_reference(latest=definition.use_latest_version)
        except Exception as error:
            raise self._refused_schema(error) from None
        if missing is not None:
            raise ConfigError(
                f"the schema given to the serde {definition.id} refers to {self._hidden(repr(missing))}, "
                "which its text does not define",
                fix="correct the reference, or put what it refers to into the text; or register the schema "
                "with its references, and leave the text out: "
                f"registry.{self._format.name}(use_latest_version=True)",
            )

    def _refused_schema(self, error: Exception) -> KStreamsError:
        if isinstance(error, ImportError):
            return missing_library(error)
        if not isinstance(fault_in(error), BrokenSchemaError):
            known = self._registry_fault(error)
            if known is not None:
                return known
        found = str(error) if isinstance(error, BrokenSchemaError) else _class_and_text(error)
        return ConfigError(
            f"the schema of the serde {self._definition.id} is not valid: {self._hidden(found)}",
            fix=f"mend the schema given to registry.{self._format.name}(...)",
        )

    def _registry_fault(self, error: Exception) -> KStreamsError | None:
        """Return the error for a fault of the registry or of a schema, None for any other."""
        what = f"{self._definition.id} for the {self._where}"
        reference = unresolved_reference(error)
        if reference is not None:
            return ConfigError(
                f"the schema of {what} refers to {self._hidden(repr(reference))}, which was not found",
                fix="put what it refers to into the schema, e.g. under $defs, or register it and name it "
                "among the schema's references",
            )
        found = fault_in(error)
        if isinstance(found, RegistryError):
            url = shown_url(str(self._client.config().get("url", "")))
            return registry_fault(found, url=url, what=what, said=self._hidden(_class_and_text(found.cause)))
        if found is not None:
            return ConfigError(
                f"a schema of {what} cannot be used: {self._hidden(str(found))}",
                fix="mend the schema and register it; or, where another program did, read the topic with "
                "serdes.bytes()",
            )
        return None

    def _hidden(self, text: str) -> str:
        """Return words of a registry, a schema or a library as one short line without secrets."""
        return " ".join(without_secrets(text, self._client.config()).split())[:300]


def _said_without_values(error: Exception) -> str:
    text = shown_text(error, _class_and_text(error), own=program_text(error))
    return text.removeprefix("Unfit").removeprefix("ValueError: ")


class _NotFramed(ValueError):
    """Bytes that do not begin as every value in Confluent's wire format does."""


def _not_framed(data: bytes) -> str:
    found = f"they begin with {data[:5].hex(' ')}" if data else "there are none"
    return (
        f"{found}, expected 00 and a schema's id, as schema registry serializers write them; read the topic "
        "with the serde it was written with, e.g. serdes.json()"
    )


def _read_id(payload: bytes, context: Any, schema_id: Any) -> io.BytesIO:
    """Read the schema's id at the beginning of a value; ids in headers are not looked for."""
    # An id follows 0, a GUID follows 1.
    if payload[0] > 1:
        raise _NotFramed(_not_framed(payload))
    rest: io.BytesIO = schema_id.from_bytes(io.BytesIO(payload))
    return rest


def configure(config: Mapping[str, str]) -> None:
    """Set this process's settings of schema registries; a host of tasks calls it before they start.

    Serdes that are bound already keep their client.

    :param config: the Kafka client's settings; only those that start with ``schema.registry.`` count, and
        they replace what was set before.
    :raises ConfigError: one of them is unknown or malformed.

    >>> from airflow_kstreams.kafka import schema_registry
    >>> schema_registry.configure({"schema.registry.url": "mock://demo"})
    >>> schema_registry.SchemaRegistry().client() is schema_registry.SchemaRegistry("mock://demo").client()
    True
    >>> schema_registry.configure({})
    """
    settings = registry_settings(config)
    with _lock:
        _settings.clear()
        _settings.update(settings)


def client_of(url: str) -> SchemaRegistryClient:
    """Return this process's client of a registry, without contacting the registry.

    :param url: the registry that the topology names, "" for the one that the settings name.
    :raises ConfigError: no registry is named, the client refuses a setting, or it is not installed.
    """
    with _lock:
        config = client_config(url, _settings)
        key = tuple(sorted(config.items()))
        if key not in _clients:
            client = make_client(config)
            # Its context manager calls this, too.
            client.close = _stay_open  # type: ignore[method-assign]
            _clients[key] = client
        return _clients[key]


def make_client(config: Mapping[str, object]) -> SchemaRegistryClient:
    """Return a client of its own, without contacting the registry.

    :param config: what :func:`~airflow_kstreams.kafka.configuration.registry_settings.client_config` returns.
    :raises ConfigError: the client refuses a setting, or is not installed.
    """
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise missing_library(error) from None
    try:
        client = SchemaRegistryClient.new_client({**config})
    except Exception as error:  # any error of the client, OpenSSL or the file system
        raise ConfigError(
            f"the schema registry's client refuses its settings: {type(error).__name__}: "
            f"{without_secrets(str(error), config)}",
            fix="correct the client settings that start with schema.registry.",
        ) from None
    bound_answers(client)
    return client


def _stay_open() -> None:
    """Close nothing: the client is the process's, and others use it."""


def missing_library(error: ImportError) -> ConfigError:
    """Build the error for a library that the extra would have brought."""
    return ConfigError(
        f"serdes of a schema registry need a library that is not installed here: {error.name or error}",
        fix="pip install 'airflow-kstreams[schema-registry]' wherever tasks run: on Spark's executors (or "
        "bring it by `airflow-kstreams pack --extras schema-registry`), and where topologies are tested",
    )


def registry_fault(error: RegistryError, *, url: str, what: str, said: str) -> KStreamsError:
    """Return the error for a fault of the registry or the configuration.

    :param url: address of the registry, as it may be shown.
    :param what: subject of the request, e.g. ``avro(...) for the values of topic 'flights'``.
    :param said: the client's error as text, without secrets.
    """
    cause = error.cause
    status = _status(cause)
    if status in _REFUSED:
        return ConfigError(
            f"the schema registry {url} refuses the credentials, asked for {what}: {said}",
            fix=f"set {PREFIX}basic.auth.user.info or {PREFIX}bearer.auth.* among the client settings, with "
            f"{PREFIX}url for this registry, and give the account read and write access",
        )
    if status in _PASSING or _is_transport_error(cause):
        return SchemaRegistryUnavailableError(
            f"the schema registry {url} did not answer, asked for {what}: {said}",
            fix=f"check that it runs and can be reached from Spark's executors ({PREFIX}url, {PREFIX}ssl.*, "
            f"{PREFIX}proxy), then retry the run",
        )
    if status is None:
        return SchemaRegistryUnavailableError(
            f"what answers at {url} is no schema registry, asked for {what}: {said}",
            fix=f"see to it that {PREFIX}url is the registry's own and that no login page or proxy answers "
            "in its place, then retry the run",
        )
    return ConfigError(f"the schema registry {url} does not take {what}: {said}", fix=_remedy(status, cause))


def is_unknown_schema(error: Exception) -> bool:
    """Return True if the registry answered that it holds no such schema."""
    found = fault_in(error)
    return (
        isinstance(found, RegistryError)
        and _status(found.cause) == _NOT_FOUND
        and _is_registrys_own(found.cause)
    )


def _class_and_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _status(error: Exception) -> int | None:
    """Return the HTTP status of an error of the client, None if no server said that it failed."""
    status: int | None = getattr(error, "http_status_code", None)
    if type(error).__name__ == "OAuthTokenError":
        answered = getattr(error, "status_code", None)
        passing = answered is None or answered in _PASSING
        status = 503 if passing else 401
    return status


def _remedy(status: int, error: Exception) -> str:
    if status == _NOT_FOUND and not _is_registrys_own(error):
        return f"that was no schema registry's answer: correct {PREFIX}url"
    if status == _NOT_FOUND:
        return "register the schema first, or leave auto_register_schemas on and use_latest_version off"
    if status == _INCOMPATIBLE:
        return (
            "change the schema so that it is compatible with the registered ones (give new fields a "
            "default), or change the subject's compatibility level"
        )
    return "mend the schema; the registry says what it does not accept"


def _is_registrys_own(error: Exception) -> bool:
    """Return True if an error holds a registry's own code, e.g. 40403, rather than some web server's."""
    code = getattr(error, "error_code", None)
    return isinstance(code, int) and code > 1000


def _is_transport_error(error: Exception) -> bool:
    # The client uses httpx2, or httpx where only that is installed; the watch has an error of its own.
    return isinstance(error, TimeoutError) or any(
        base.__name__ == "TransportError" and base.__module__.startswith("httpx")
        for base in type(error).__mro__
    )
