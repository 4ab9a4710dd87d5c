"""Asks for the members of a consumer group in a process of its own.

librdkafka frees memory twice when a request of an admin client to a group's coordinator is given up or cannot
be sent (confluentinc/librdkafka issue 4605 and pull request 5397, both open with 2.16): the process dies by
SIGABRT, at once or later. A process that looks at groups may have more to do: a worker, a notebook. So a
child makes the only such request of this package. It takes the client settings from its stdin and has a time
limit; whatever becomes of it, its parent gets the members or an error.

Committed offsets need no such request, because a consumer asks for them
(:meth:`~airflow_kstreams.kafka.reader.BoundedReader.committed`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from airflow_kstreams.kafka.client_errors import attempt, kafka_error_of
from airflow_kstreams.kafka.configuration.code_settings import with_callback
from airflow_kstreams.streams.ports import GroupMember

#: Of the child, to start and to end.
_MARGIN_SECONDS = 10.0
_CHILD = "airflow_kstreams.kafka.group_description"


def members_of(group_id: str, client_config: Mapping[str, str], *, seconds: float) -> tuple[GroupMember, ...]:
    """Return the members of a consumer group, as its coordinator tells them.

    :param client_config: checked client settings.
    :param seconds: time limit of the request.
    :raises KafkaException: the broker refused or did not answer, or the client's library ended the child.
    """
    asked = {
        "group_id": group_id,
        "client_config": dict(client_config),
        "seconds": seconds,
        "path": sys.path,  # a setting may name a function of the deployment
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", _CHILD],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=seconds + _MARGIN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _error(KafkaError._TIMED_OUT, f"no answer within {seconds:g} s") from None
    if done.returncode != 0:
        last = next(iter(done.stderr.splitlines()[-1:]), "")
        ended = f"the process that asked ended with code {done.returncode} {last}"
        raise _error(KafkaError._FAIL, ended.rstrip())
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise _error(*answer["error"])
    return tuple(GroupMember(**member) for member in answer["members"])


def _error(code: int, text: str, retriable: bool = True) -> KafkaException:
    return KafkaException(KafkaError(code, text, retriable=retriable))


def _answer(group_id: str, client_config: Mapping[str, str], seconds: float) -> dict[str, Any]:
    client = AdminClient({**with_callback(client_config), "log_level": "0"})
    (future,) = client.describe_consumer_groups([group_id], request_timeout=seconds).values()
    found: list[Any] = []
    failed = attempt(lambda: found.append(future.result()))
    if failed is None:
        members = [
            GroupMember(member_id=one.member_id, client_id=one.client_id, host=one.host)
            for one in found[0].members
        ]
        return {"members": [asdict(member) for member in members]}
    error = kafka_error_of(failed)
    if error is None:
        raise failed
    return {"error": (error.code(), error.str(), error.retriable())}


def _main() -> None:
    asked = json.load(sys.stdin)
    sys.path[:] = asked["path"]
    answer = _answer(asked["group_id"], asked["client_config"], asked["seconds"])
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main()
