"""Whatever is piped in, and over however many partitions: the counts are those of a plain count, and each
task's store is the fold of its changelog partition.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.examples import examples

WORDS = st.text(alphabet="abc", min_size=1, max_size=3)


def word_counts() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    words = builder.stream("lines").flat_map(lambda key, line: [(word, 1) for word in line])
    words.group_by_key().count(store="words").to_stream().send_to("counts")
    return builder.build()


@settings(max_examples=examples(60), deadline=None)
@given(
    lines=st.lists(st.tuples(st.lists(WORDS, max_size=5), st.integers(0, 50)), max_size=12),
    read=st.integers(1, 3),
    written=st.integers(1, 5),
)
def test_counts_are_right_and_stores_are_their_changelogs_when_records_are_spread_anyhow(
    lines: list[tuple[list[str], int]], read: int, written: int
) -> None:
    expected = Counter(word for line, _ in lines for word in line)
    partitions = {"lines": read, "words-repartition": written}

    def placed(word: str) -> int:
        return partition_of_key(word.encode(), written, written)

    with TopologyTestDriver(word_counts(), application_id="app", partitions=partitions) as driver:
        for number, (line, timestamp_ms) in enumerate(lines):
            driver.pipe_input(
                "lines", key=None, value=line, timestamp_ms=timestamp_ms, partition=number % read
            )
        folds: list[dict[Any, Any]] = [{} for _ in range(written)]
        for change in driver.read_output("app-words-changelog"):
            folds[change.partition][change.key] = change.value
        stores = [dict(driver.store("words", partition=group).all()) for group in range(written)]
        assert stores == folds
        assert stores == [
            {word: n for word, n in expected.items() if placed(word) == group} for group in range(written)
        ]
        # Every record is a commit of its own, so every step of every count is seen.
        seen = Counter((record.key, record.value) for record in driver.read_output("counts"))
        assert seen == Counter((word, n) for word, total in expected.items() for n in range(1, total + 1))
