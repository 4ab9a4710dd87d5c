"""Asks for the members of a consumer group in a process of its own.

librdkafka frees memory twice when a request of an admin client to a group's coordinator is given up or cannot
be sent (confluentinc/librdkafka issue 4605 and pull request 5397, both open with 2.16): the process dies by
SIGABRT, at once or later. So a child (:class:`~airflow_kstreams.kafka.child_process.ChildProcess`) makes the
only such request of this package.

Committed offsets need no such request, because a consumer asks for them
(:meth:`~airflow_kstreams.kafka.reader.BoundedReader.committed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from airflow_kstreams.kafka.child_process import ChildEndedError, ChildProcess, Parent
from airflow_kstreams.kafka.client_errors import attempt, kafka_error_of
from airflow_kstreams.kafka.configuration.code_settings import with_callback
from airflow_kstreams.streams.plan import msgpack_decoder
from airflow_kstreams.streams.ports import GroupMember

#: Of the child, to start and to end.
_MARGIN_SECONDS = 10.0
_CHILD = "airflow_kstreams.kafka.group_description"


class _GroupAnswer(msgspec.Struct):
    members: list[GroupMember] = []
    error: tuple[int, str, bool] | None = None


_ANSWERS = msgpack_decoder(_GroupAnswer)


def members_of(group_id: str, client_config: Mapping[str, str], *, seconds: float) -> tuple[GroupMember, ...]:
    """Return the members of a consumer group, as its coordinator tells them.

    :param client_config: checked client settings.
    :param seconds: time limit of the request.
    :raises KafkaException: the broker refused or did not answer, or the client's library ended the child.
    """
    asked = {"group_id": group_id, "client_config": dict(client_config), "seconds": seconds}
    with closing(ChildProcess(_CHILD)) as child:
        try:
            answer = child.ask(asked, _ANSWERS.decode, seconds=seconds + _MARGIN_SECONDS)
        except TimeoutError:
            raise _error(KafkaError._TIMED_OUT, f"no answer within {seconds:g} s") from None
        except ChildEndedError as ended:
            raise _error(KafkaError._FAIL, f"the process that asked {ended}") from None
    if answer.error is not None:
        raise _error(*answer.error)
    return tuple(answer.members)


def _error(code: int, text: str, retriable: bool = True) -> KafkaException:
    return KafkaException(KafkaError(code, text, retriable=retriable))


def _answer(group_id: str, client_config: Mapping[str, str], seconds: float) -> _GroupAnswer:
    client = AdminClient({**with_callback(client_config), "log_level": "0"})
    (future,) = client.describe_consumer_groups([group_id], request_timeout=seconds).values()
    found: list[Any] = []
    failed = attempt(lambda: found.append(future.result()))
    if failed is None:
        members = [
            GroupMember(member_id=one.member_id, client_id=one.client_id, host=one.host)
            for one in found[0].members
        ]
        return _GroupAnswer(members=members)
    error = kafka_error_of(failed)
    if error is None:
        raise failed
    return _GroupAnswer(error=(error.code(), error.str(), error.retriable()))


if __name__ == "__main__":
    parent = Parent()
    for asked in parent.messages():
        parent.answer(_answer(**asked))
