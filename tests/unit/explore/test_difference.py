"""What differs between two explorations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.explore import Exploration, Sample, SampleRecord, explore
from airflow_kstreams.explore.difference import Result
from airflow_kstreams.streams import ConfigError, KStreamBuilder, Topology, serdes

NUMBERS = Sample(
    records=tuple(
        SampleRecord(topic="numbers", offset=n, key=b"k", value=str(n).encode(), timestamp_ms=n)
        for n in range(5)
    )
)


def topology(
    *, factor: int = 2, most: int | None = None, twice: bool = False, extra: bool = False
) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("numbers")
    if most is not None:
        stream = stream.filter(lambda _, value: value <= most)
    stream = stream.map_values(lambda value: factor * value)
    if twice:
        stream = stream.flat_map_values(lambda value: [value, value])
    stream.send_to("out")
    if extra:
        stream.send_to("extra")
    return builder.build()


def diff(**edited: Any) -> tuple[Exploration, Any]:
    before = explore(topology(), sample=NUMBERS)
    now = before.rerun(topology(**edited))
    return now, now.diff(before)


def test_nothing_differs_when_the_topology_is_the_same() -> None:
    _, found = diff()
    assert not found
    assert str(found) == "no difference to before"


def test_changed_records_are_paired_when_a_function_was_edited() -> None:
    now, found = diff(factor=3)
    source, mapped, sink = now.nodes
    assert found.at(source) is None
    changes = found.at(mapped).changes
    assert [(c.kind, c.origin, c.before.value, c.after.value) for c in changes] == [
        ("changed", f"numbers-0@{n}", str(2 * n), str(3 * n)) for n in range(1, 5)
    ]
    assert len(found.at(sink).of("changed")) == 4


def test_records_are_removed_when_a_filter_was_put_in_and_nodes_keep_their_counterparts() -> None:
    now, found = diff(most=2)
    _, filtered, mapped, sink = now.nodes
    assert found.at(filtered).before is None
    assert found.at(filtered).title == f"{filtered} (new)"
    assert mapped == "KSTREAM-MAPVALUES-0000000002"
    assert found.at(mapped).title == f"{mapped} (was KSTREAM-MAPVALUES-0000000001)"
    assert [c.origin for c in found.at(mapped).of("removed")] == ["numbers-0@3", "numbers-0@4"]
    assert found.at(mapped).of("changed") == ()
    assert len(found.at(sink).changes) == 2


def test_the_right_one_is_new_when_an_operator_was_put_in_behind_one_of_its_kind() -> None:
    before = explore(topology(most=3), sample=NUMBERS)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    filtered = (
        builder.stream("numbers").filter(lambda _, value: value <= 3).filter(lambda _, value: value > 0)
    )
    filtered.map_values(lambda value: 2 * value).send_to("out")
    found = before.rerun(builder.build()).diff(before)
    assert [one.title for one in found] == [
        "KSTREAM-FILTER-0000000002 (new)",
        "KSTREAM-MAPVALUES-0000000003 (was KSTREAM-MAPVALUES-0000000002)",
        "KSTREAM-SINK-0000000004 (was KSTREAM-SINK-0000000003)",
    ]


def test_a_node_is_gone_when_it_was_taken_out() -> None:
    before = explore(topology(most=2), sample=NUMBERS)
    found = before.rerun(topology()).diff(before)
    assert [one.title for one in found if one.name is None] == ["KSTREAM-FILTER-0000000001 (gone)"]


def test_records_are_added_when_a_node_forwards_more() -> None:
    now, found = diff(twice=True, extra=True)
    *_, out, extra = now.nodes
    assert [(c.kind, c.origin) for c in found.at(out).changes] == [
        ("added", f"numbers-0@{n}") for n in range(5)
    ]
    assert found.at(extra).before is None
    table = str(found)
    assert "(new)" in table
    assert "removed" in table


def test_a_difference_shows_before_and_now_when_printed() -> None:
    now, found = diff(factor=3)
    text = str(found.at(now.nodes[1]))
    assert "numbers-0@4" in text
    assert "8" in text
    assert "12" in text
    assert "<td" in found.at(now.nodes[1])._repr_html_()
    assert "<td" in found._repr_html_()


def test_a_result_compares_like_the_exploration_when_it_was_saved(tmp_path: Path) -> None:
    before = explore(topology(), sample=NUMBERS)
    before.result().save(tmp_path / "result")
    assert (tmp_path / "result").stat().st_mode & 0o077 == 0
    now = before.rerun(topology(factor=3, most=3))
    assert [*now.diff(Result.load(tmp_path / "result"))] == [*now.diff(before)]


def test_a_comparison_is_refused_when_the_samples_differ() -> None:
    now = explore(topology(), sample=NUMBERS)
    other = explore(topology(), sample=Sample(records=NUMBERS.records[:2]))
    with pytest.raises(ConfigError, match="different samples"):
        now.diff(other)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"sample":"x","nodes":{},"format":"other"}', b"\xff"])
def test_a_result_is_refused_when_it_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "result").write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        Result.load(tmp_path / "result")
