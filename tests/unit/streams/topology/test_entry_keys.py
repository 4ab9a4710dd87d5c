from __future__ import annotations

import pytest

from airflow_kstreams.streams import KStreamBuilder, Serde, StoreSpec, TumblingWindow, serdes
from airflow_kstreams.streams.plan import EntryKeys

OWN = Serde(id="string-folded", serialize=lambda key: key.lower().encode(), deserialize=bytes.decode)
OWN_JSON = Serde(id="json-sorted", serialize=serdes.json().serialize, deserialize=serdes.json().deserialize)


def _keys(key_serde: Serde, *, rekeyed: bool = False, windowed: bool = False) -> EntryKeys:
    builder = KStreamBuilder(default_key_serde=key_serde, default_value_serde=serdes.string())
    stream = builder.stream("in")
    grouped = stream.group_by(lambda key, value: key) if rekeyed else stream.group_by_key()
    store = StoreSpec(name="kept", key_serde=key_serde, value_serde=serdes.int64())
    if windowed:
        grouped.windowed_by(TumblingWindow(size_ms=10)).count(store=store)
    else:
        grouped.count(store=store)
    found = [sub.entry_keys for sub in builder.build().plan("app").subtopologies]
    return next(keys["app-kept-changelog"] for keys in found if keys)


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize(
    ("key_serde", "rekeyed", "fit"),
    [
        (serdes.string(), False, True),
        (serdes.int64(), False, True),
        (serdes.json(), False, False),
        (serdes.json(), True, True),
        (serdes.json(dict[str, int]), True, True),
        (serdes.msgpack(), True, True),
        (OWN, False, False),
        (OWN, True, False),
        (OWN_JSON, True, False),
    ],
)
def test_keys_tell_their_partition_when_their_format_has_one_form_of_each(
    key_serde: Serde, rekeyed: bool, fit: bool, windowed: bool
) -> None:
    keys = _keys(key_serde, rekeyed=rekeyed, windowed=windowed)
    assert (keys.unfit == "") is fit
    if not fit:
        assert key_serde.id in keys.unfit
    elif windowed:
        assert keys.placing(b"key" + bytes(8)) == b"key"
