"""Asks a schema registry, and makes each of its faults an error of its own.

Rule: a request to a registry holds schemas, subjects and ids, and no record. So whatever fails in one is
the registry's fault, never a record's: no answer, a login page in place of JSON, JSON of another shape or too
deep for its decoder, an answer that is too large or too slow (:mod:`answer_bounds`). The serializers call
:class:`AskedRegistry`, which raises :class:`RegistryError` for all of them; what fails elsewhere is the
schema's fault or the record's.

An answer that is no registry's is forgotten, since the client would repeat it to the next attempt of a task
in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_kstreams.kafka.schema_registry.answer_bounds import AnswerError

#: Methods whose answer need not hold the schema: the registry is given it.
_WITHOUT_SCHEMA = frozenset({"register_schema_full_response"})
#: An id has 4 bytes in a record, a version is a whole number of Java.
_LIMIT = 2**32


class RegistryError(Exception):
    """A request to the registry failed.

    :param cause: the error that the client raised.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class AskedRegistry:
    """confluent-kafka's client of a registry, whose faults are told from those of records.

    :param client: the client, which all tasks of this process share.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found) or name.startswith("_"):
            return found
        asked = _asked(self._client, name, found)
        # The next call finds it without this method.
        setattr(self, name, asked)
        return asked


def _asked(client: Any, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def ask(*args: Any, **kwargs: Any) -> Any:
        try:
            answer = method(*args, **kwargs)
            _check(answer, with_schema=name not in _WITHOUT_SCHEMA)
        except Exception as error:
            if not hasattr(error, "http_status_code"):
                client.clear_caches()
            raise RegistryError(error) from error
        return answer

    return ask


def _check(answer: Any, *, with_schema: bool) -> None:
    """Refuse an answer, a schema alone or as it is registered, with parts of another type.

    :raises AnswerError: it has some.
    """
    if hasattr(answer, "schema_id"):
        if with_schema:
            _check(answer.schema, with_schema=True)
        if not (_is_number(answer.schema_id) or _is_text(answer.guid)):
            raise AnswerError("an answer without a schema's id")
        if answer.version is not None and not _is_number(answer.version):
            raise AnswerError("an answer whose version is no whole number")
    elif hasattr(answer, "schema_str"):
        if not _is_text(answer.schema_str):
            raise AnswerError("an answer without a schema")
        if answer.schema_type is not None and not _is_text(answer.schema_type):
            raise AnswerError("an answer whose type of schema is no text")
        if not all(map(_is_reference, answer.references or ())):
            raise AnswerError("an answer whose schema names others in no known form")


def _is_reference(found: Any) -> bool:
    return _is_text(found.name) and _is_text(found.subject) and _is_number(found.version)


def _is_text(found: Any) -> bool:
    return isinstance(found, str)


def _is_number(found: Any) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and 0 <= found < _LIMIT
