"""Poisons what the engine wrote, and draws bytes, texts and JSON that no engine writes."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from airflow_kstreams.batch.protocol.slice.metadata_records import MetadataRecord

#: JSON that a program may write in the place of any part.
PARTS = (
    *("null", "true", "-1", "0.5", "1e999", "NaN", "-9223372036854775809", "9223372036854775807"),
    *("1000000000000", "9" * 5_000, '""', '"\\ud800"', '"x-y"', '"0"', "[]", "{}", '{"0":1000000000}'),
    *('[1000000000,[1000000000],"linear"]', "[" * 50_000, '{"a-0":-5}', '{"a":{"b":1}}', '["in",1,2,3]'),
)
BYTES = (b"", b"\xff\xfe", b"0", b"1", b"-1", b"9" * 5_000, b"999999999999999999", b"done", b"[]", b"\x00")
HOLE = "\x00hole"


def changed_json(data: bytes, random: Random) -> bytes:
    """Return JSON with another part at some place."""
    whole = json.loads(data)
    at: Any = whole
    while True:
        places = [*at] if isinstance(at, dict) else [*range(len(at))]
        if not places:
            return random.choice(PARTS).encode()
        place = random.choice(places)
        if not isinstance(at[place], dict | list) or not at[place] or random.random() < 0.3:
            break
        at = at[place]
    at[place] = HOLE
    return json.dumps(whole).replace(json.dumps(HOLE), random.choice(PARTS)).encode()


def changed(data: bytes | None, random: Random) -> bytes | None:
    """Return other bytes."""
    if data and data[:1] in (b"{", b"[") and random.random() < 0.8:
        return changed_json(data, random)
    return random.choice((None, *BYTES)) if random.random() < 0.7 else (data or b"")[: random.randrange(9)]


def poisoned(record: MetadataRecord, random: Random) -> MetadataRecord:
    """Return a record with a change at one place."""
    headers = list(record.headers or ())
    what = random.choice(("value", "value", "key", "header", "header") if headers else ("value", "key"))
    if what == "value":
        return record._replace(value=changed(record.value, random))
    if what == "key":
        return record._replace(key=changed(record.key, random) or b"")
    place = random.randrange(len(headers))
    name, value = headers[place]
    other = changed(value, random)
    headers[place : place + 1] = [] if other is None else [(name, other)]
    return record._replace(headers=headers)


def drawn_bytes(random: Random) -> bytes:
    """Return bytes of any kind, most of them short."""
    kind = random.randrange(5)
    if kind == 0:
        return random.choice(BYTES)
    if kind == 1:
        return random.choice(PARTS).encode()
    if kind == 2:
        return random.randbytes(random.choice((1, 5, 9, 300)))
    if kind == 3:
        return drawn_text(random).encode(errors="surrogatepass")
    return random.randbytes(1) * random.choice((1, 1_000, 1_000_000))


#: Signs that something may treat in a way of its own.
_SIGNS = "ab0-_./\\'\"$%{}[]()<>&;:=#,* \t\n\r\x00\x1b\x7f\u202e\ufeff\ud800é\U0001f600"


def drawn_text(random: Random) -> str:
    """Return a text of any characters, most of them short."""
    again = random.choice((1, 1, 1, 1, 20_000))
    return "".join(random.choices(_SIGNS, k=random.randrange(12))) * again


def drawn_json(random: Random) -> bytes:
    """Return JSON with a shape of its own."""

    def value(depth: int) -> Any:
        kind = random.randrange(8 if depth < 4 else 6)
        if kind == 6:
            return [value(depth + 1) for _ in range(random.randrange(4))]
        if kind == 7:
            return {drawn_text(random)[:20]: value(depth + 1) for _ in range(random.randrange(4))}
        return (None, True, -1, 2**70, 1e300, drawn_text(random))[kind]

    return json.dumps(value(0)).encode()
