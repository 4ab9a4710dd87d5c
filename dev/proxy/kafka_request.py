"""Reads as much of a Kafka request as a fault needs to know: its api, its correlation id, whose transaction.

A frame is a length (int32) and that many bytes: the request header (api key int16, api version int16,
correlation id int32, client id as a nullable string, tagged fields in flexible versions), then the body. See
the Kafka protocol guide, "Request and Response Headers".
"""

from __future__ import annotations

from enum import IntEnum
from struct import unpack_from

import msgspec


class Api(IntEnum):
    """Api keys of the requests that faults are aimed at."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75


#: Error codes INVALID_PRODUCER_EPOCH and PRODUCER_FENCED: somebody has claimed the transactional id since.
FENCED = (47, 90)

#: Requests whose body begins with a transactional id, and the first version that writes it in the compact
#: way. AddPartitionsToTxn does so up to version 3 only; brokers alone speak the later ones.
_BEGINS_WITH_TRANSACTIONAL_ID = {
    Api.PRODUCE: 9,
    Api.INIT_PRODUCER_ID: 2,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.ADD_OFFSETS_TO_TXN: 3,
    Api.END_TXN: 3,
    Api.TXN_OFFSET_COMMIT: 3,
}
_PRODUCE_WITH_TRANSACTIONAL_ID = 3
_ADD_PARTITIONS_BY_BROKERS = 4


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame says.

    :param api: api key, also of an api that :class:`Api` does not name.
    :param transactional_id: empty where there is none.
    :param commits: of EndTxn: whether it commits; None for every other request.
    :param answered: whether the broker answers it; a Produce with acks=0 is not.
    """

    api: int
    version: int
    correlation_id: int
    transactional_id: str = ""
    commits: bool | None = None
    answered: bool = True


def parse_request(frame: bytes) -> Request:
    """Read a request without its length.

    :raises struct.error: it is no Kafka request.
    """
    api, version, correlation_id, client_length = unpack_from(">hhih", frame)
    at = 10 + max(client_length, 0)
    transactional_id, commits, answered = "", None, True
    compact_from = _BEGINS_WITH_TRANSACTIONAL_ID.get(api)
    by_brokers = api == Api.ADD_PARTITIONS_TO_TXN and version >= _ADD_PARTITIONS_BY_BROKERS
    too_old = api == Api.PRODUCE and version < _PRODUCE_WITH_TRANSACTIONAL_ID
    if compact_from is not None and not by_brokers and not too_old:
        if version >= compact_from:
            transactional_id, at = _compact_string(frame, _after_tags(frame, at))
        else:
            transactional_id, at = _string(frame, at)
    if api == Api.END_TXN:
        commits = frame[at + 10] != 0  # behind the producer's id (int64) and epoch (int16)
    elif api == Api.PRODUCE:
        answered = unpack_from(">h", frame, at)[0] != 0
    return Request(
        api=api,
        version=version,
        correlation_id=correlation_id,
        transactional_id=transactional_id,
        commits=commits,
        answered=answered,
    )


def end_txn_error(answer: bytes) -> int:
    """Return the error code in a broker's answer to a non-flexible EndTxn, without length: 0 is success."""
    code: int = unpack_from(">iih", answer)[2]  # behind correlation id and throttle time
    return code


def init_producer_id_error(answer: bytes) -> int:
    """Return the error code in an answer to a flexible InitProducerId (from version 2), without length."""
    code: int = unpack_from(">h", answer, _after_tags(answer, 4) + 4)[0]  # behind the throttle time
    return code


def txn_offset_commit_error(answer: bytes) -> int:
    """Return the first partition's error code in an answer to TxnOffsetCommit 3, without length."""
    _, at = _unsigned(answer, _after_tags(answer, 4) + 4)  # behind correlation id, tags, throttle time
    _, at = _compact_string(answer, at)
    _, at = _unsigned(answer, at)
    code: int = unpack_from(">ih", answer, at)[1]
    return code


def _string(frame: bytes, at: int) -> tuple[str, int]:
    (length,) = unpack_from(">h", frame, at)
    end = at + 2 + max(length, 0)
    return frame[at + 2 : end].decode(), end


def _compact_string(frame: bytes, at: int) -> tuple[str, int]:
    length, at = _unsigned(frame, at)  # its length plus one; 0 says null
    end = at + max(length - 1, 0)
    return frame[at:end].decode(), end


def _after_tags(frame: bytes, at: int) -> int:
    count, at = _unsigned(frame, at)
    for _ in range(count):
        _, at = _unsigned(frame, at)
        size, at = _unsigned(frame, at)
        at += size
    return at


def _unsigned(frame: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
