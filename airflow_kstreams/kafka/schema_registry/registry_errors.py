"""Turns errors of the registry's client into errors of this package, with a remedy.

Rule: these are faults of the registry or the configuration, never of a record (registry away, credentials
refused, schema not registered or not compatible). If a retry can help, the error is a
``SchemaRegistryUnavailableError``, else a ``ConfigError``.
"""

from __future__ import annotations

from airflow_kstreams.kafka.configuration.registry_settings import PREFIX
from airflow_kstreams.streams.errors import ConfigError, KStreamsError, SchemaRegistryUnavailableError

#: HTTP statuses that a retry can cure.
_PASSING = frozenset({408, 429, *range(500, 600)})
_REFUSED = frozenset({401, 403})
_NOT_FOUND = 404
_INCOMPATIBLE = 409


def registry_fault(error: Exception, *, url: str, what: str) -> KStreamsError | None:
    """Return the error for a fault of the registry or the configuration, None for any other.

    :param error: raised by the client, a serializer or a deserializer.
    :param url: address of the registry.
    :param what: subject of the request, e.g. ``avro(...) for the values of topic 'flights'``.
    """
    status = _status(error)
    said = one_line(error)
    if status in _REFUSED:
        return ConfigError(
            f"the schema registry {url} refuses the credentials, asked for {what}: {said}",
            fix=f"set {PREFIX}basic.auth.user.info or {PREFIX}bearer.auth.* among the client settings, with "
            f"{PREFIX}url for this registry, and give the account read and write access",
        )
    if status in _PASSING or _is_transport_error(error):
        return SchemaRegistryUnavailableError(
            f"the schema registry {url} did not answer, asked for {what}: {said}",
            fix=f"check that it runs and can be reached from Spark's executors ({PREFIX}url, {PREFIX}ssl.*, "
            f"{PREFIX}proxy), then retry the run",
        )
    if status is None:
        return None
    return ConfigError(f"the schema registry {url} does not take {what}: {said}", fix=_remedy(status, error))


def is_unknown_schema(error: Exception) -> bool:
    """Whether the registry answered that it holds no such schema."""
    return _status(error) == _NOT_FOUND and _is_registrys_own(error)


def one_line(error: Exception) -> str:
    """Return an error's class and text in one line of bounded length."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _status(error: Exception) -> int | None:
    """Return the HTTP status of an error of the client, None if it is no server's answer."""
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
    """Whether an error holds a registry's own code, e.g. 40403, rather than some web server's."""
    return int(getattr(error, "error_code", None) or -1) > 1000


def _is_transport_error(error: Exception) -> bool:
    # The client uses httpx2, or httpx where only that is installed.
    return any(
        base.__name__ == "TransportError" and base.__module__.startswith("httpx")
        for base in type(error).__mro__
    )
