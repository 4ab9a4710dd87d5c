"""Asks for the description of a consumer group in a process of its own.

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


class GroupAnswer(msgspec.Struct):
    """The coordinator's answer.

    :param members: the members of the group.
    :param operations: what the user may do with the group, by the client's names.
    :param error: number, text and whether a retry may help.
    """

    members: list[GroupMember] = []
    operations: list[str] = []
    error: tuple[int, str, bool] | None = None


_ANSWERS = msgpack_decoder(GroupAnswer)


def describe_group(group_id: str, client_config: Mapping[str, str], *, seconds: float) -> GroupAnswer:
    """Return a consumer group's description, as its coordinator gives it.

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
    return answer


def _error(code: int, text: str, retriable: bool = True) -> KafkaException:
    return KafkaException(KafkaError(code, text, retriable=retriable))


def _answer(group_id: str, client_config: Mapping[str, str], seconds: float) -> GroupAnswer:
    client = AdminClient({**with_callback(client_config), "log_level": "0"})
    (future,) = client.describe_consumer_groups(
        [group_id], include_authorized_operations=True, request_timeout=seconds
    ).values()
    found: list[Any] = []
    failed = attempt(lambda: found.append(future.result()))
    if failed is None:
        members = [
            GroupMember(member_id=one.member_id, client_id=one.client_id, host=one.host)
            for one in found[0].members
        ]
        return GroupAnswer(
            members=members, operations=[each.name for each in found[0].authorized_operations or ()]
        )
    error = kafka_error_of(failed)
    if error is None:
        raise failed
    return GroupAnswer(error=(error.code(), error.str(), error.retriable()))


if __name__ == "__main__":
    parent = Parent()
    for asked in parent.messages():
        parent.answer(_answer(**asked))
