"""The plan of merges keeps the number of a run's files in each partition of a table bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from airflow_kstreams.batch.run.tables import merge_plan
from airflow_kstreams.batch.run.tables.merge_plan import Merge, planned_merges
from airflow_kstreams.streams.tables.table_port import ColumnFacts, FileFacts

TARGET = 100
SIZES = st.integers(min_value=1, max_value=3 * TARGET)


def listed(sizes: Sequence[int], *, partition: object = "a", first: int = 0) -> dict[int, FileFacts]:
    return {
        first + 2 * number: FileFacts(
            path=f"{partition}-{number}", size=size, rows=number + 1, partition=(partition,)
        )
        for number, size in enumerate(sizes)
    }


def together(merges: list[Merge], files: dict[int, FileFacts]) -> list[list[int]]:
    """Return the sizes of the files that are put together, merge by merge."""
    return [[files[place].size for place in merge.files] for merge in merges]


@given(st.dictionaries(st.sampled_from("abc"), st.lists(SIZES, max_size=15)), st.integers(1, 2 * TARGET))
def test_each_partition_has_few_files_when_its_merges_are_made(
    partitions: dict[str, list[int]], target: int
) -> None:
    files: dict[int, FileFacts] = {}
    for partition, sizes in partitions.items():
        files |= listed(sizes, partition=partition, first=1_000 * len(files))
    merges = planned_merges("t", files, target_bytes=target)
    merged = [place for merge in merges for place in merge.files]
    assert max(Counter(merged).values(), default=1) == 1
    for merge in merges:
        assert len({file.partition for file in merge.files.values()}) == 1
        assert len(merge.files) > 1
        assert merge.size < 2 * target
        assert all(merge.files[place] is files[place] for place in merge.files)
    left = Counter(file.partition for place, file in files.items() if place not in {*merged})
    made = Counter(next(iter(merge.files.values())).partition for merge in merges)
    for partition, sizes in partitions.items():
        assert left[(partition,)] + made[(partition,)] <= -(-sum(sizes) // target) + 1
        small = [place for place, file in files.items() if file.partition == (partition,)]
        alone = [p for p in small if p not in {*merged} and 2 * files[p].size < target]
        assert len(alone) <= 1


def test_files_of_half_the_target_are_left_alone_when_they_are_few() -> None:
    files = listed([60, 10, 300, 20, 70])
    assert together(planned_merges("t", files, target_bytes=TARGET), files) == [[10, 20]]


def test_files_of_half_the_target_are_merged_smallest_first_when_they_are_many() -> None:
    files = listed([60, 61, 62, 63, 64, 65, 66, 67, 68, 69])
    # 645 bytes may be 8 files. How many files six of them make is known by their bytes alone: at most 4.
    assert together(planned_merges("t", files, target_bytes=TARGET), files) == [[60, 61], [62, 63], [64, 65]]


def test_nothing_is_merged_when_a_partition_has_one_small_file() -> None:
    assert planned_merges("t", listed([10]) | listed([10], partition="b", first=1), target_bytes=TARGET) == []
    assert planned_merges("t", {}) == []


def test_target_is_128_mib_when_the_table_does_not_say_one() -> None:
    half = 64 * 1024 * 1024
    files = listed([half - 1, half - 1, half, half])
    assert together(planned_merges("t", files), files) == [[half - 1, half - 1]]


def test_files_are_put_together_in_the_order_of_their_rows_when_the_table_is_sorted() -> None:
    files = listed([40, 40, 40, 40, 40, 40, 10])
    lower = [6, 2, 5, 1, 4, 3, None]
    sorted_files = {
        place: FileFacts(file.path, file.size, file.rows, file.partition, {"n": ColumnFacts(0, value, 9)})
        for (place, file), value in zip(files.items(), lower, strict=True)
    }
    merges = planned_merges("t", sorted_files, target_bytes=TARGET, sort_by=("n",))
    found = [[file.columns["n"].lower for file in merge.files.values()] for merge in merges]
    assert found == [[1, 2, 3], [4, 5, 6]]


def test_record_that_names_merged_files_stays_small_when_files_are_tiny() -> None:
    with patch.object(merge_plan, "_MOST_FILES", 10):
        assert [len(merge.files) for merge in planned_merges("t", listed([1] * 12))] == [10, 2]
