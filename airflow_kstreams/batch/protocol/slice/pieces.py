"""Splits values of the protocol that are larger than a record, and joins their pieces.

Rule: a value that fits is one record. A larger one is split: piece ``n`` has the key ``<key>#<n>``, and the
record of the key itself, which comes after all of them in the same transaction, holds their number and the
hash of the whole in headers. No topic name has a ``#``, so no other key of the protocol is like a piece's.

Invariant: a reader gets the value that was written, or learns that it has not got it. Readers of committed
records see all pieces or none. Compaction keeps each key's last record, so pieces of an older, longer value
may still be there: the number excludes them. A reader that reads while the cleaner works may miss pieces, or
get those of two values: the hash shows it, and it reads again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airflow_kstreams.streams.ports import Headers

#: Largest value of one record. A quarter of the broker's default ``max.message.bytes``, so that key, headers
#: and a topic with a smaller limit have room.
PIECE_BYTES = 256 * 1024

H_PIECES = "kstreams.pieces"
H_PIECES_HASH = "kstreams.pieces.sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitValue:
    """A value that was too large for a record.

    :param pieces: keys and values of the records that come before the one of the key itself.
    :param headers: of the key's own record; they describe the pieces.
    """

    pieces: tuple[tuple[bytes, bytes], ...]
    headers: Headers


def split(key: bytes, content: bytes) -> SplitValue | None:
    """Split a value; None if it fits into a record."""
    if len(content) <= PIECE_BYTES:
        return None
    parts = [content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]
    return SplitValue(
        pieces=tuple((piece_key(key, number), part) for number, part in enumerate(parts)),
        headers=[
            (H_PIECES, str(len(parts)).encode()),
            (H_PIECES_HASH, hashlib.sha256(content).hexdigest().encode()),
        ],
    )


def piece_key(key: bytes, number: int) -> bytes:
    """Return the key of a piece."""
    return b"%b#%d" % (key, number)


def pieces_of(headers: Mapping[str, bytes]) -> int:
    """Return into how many pieces a value was split, 0 if it is whole."""
    count = headers.get(H_PIECES, b"0")
    return int(count) if count.isdigit() else 0


def joined(key: bytes, headers: Mapping[str, bytes], piece: Callable[[bytes], bytes | None]) -> bytes | None:
    """Join the pieces of a value; None if pieces are missing, or are not those of this value.

    :param headers: of the record of the key itself.
    :param piece: returns the value of the last record before that one with a piece's key, None if none.
    """
    parts = [piece(piece_key(key, number)) for number in range(pieces_of(headers))]
    content = b"".join(part for part in parts if part is not None)
    whole = hashlib.sha256(content).hexdigest().encode() == headers.get(H_PIECES_HASH)
    return content if whole and None not in parts else None
