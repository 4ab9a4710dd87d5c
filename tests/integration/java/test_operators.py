"""Random input through each operator here and in Java's Kafka Streams: the same bytes, timestamps and order.

Each test says for which input that holds; ``test_differences.py`` shows what happens beyond it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.integration.java.cases import Case, Input, without_headers, without_passing_deletions
from tests.integration.java.peer import KafkaStreamsPeer
from tests.integration.java.topologies import NAMES, Topologies
from tests.support.examples import examples
from tests.support.programs.comparing import OF_ITS_OWN, Result, without_vain_deletions

pytestmark = pytest.mark.promise(
    "streams-meet-the-version-of-their-time", "foreign-key-joins-follow-both-sides", "same-as-kafka-streams"
)

#: Whatever the input is: without value, without key, late.
ONE_BY_ONE = ["filter", "filter_not", "map", "map_values", "flat_map", "flat_map_values", "select_key"]
ONE_BY_ONE += ["peek", "branch", "merge", "two_children", "repartition"]
ONE_BY_ONE += ["split", "set_headers", "set_timestamp", "process_values"]
ONE_BY_ONE += ["map_values_with_key", "flat_map_values_with_key"]
TABLES = ["count", "reduce", "aggregate", "group_by_count", "group_by_aggregate", "table"]
TABLES += ["count_join", "redated_count", "cogroup", "to_table", "rekeyed_to_table"]
#: Of records that delete no key which the table does not hold.
TABLES_OF_TABLES = ["table_filter", "table_filter_not", "table_filter_kept", "table_map_values"]
TABLES_OF_TABLES += ["table_map_values_filter", "table_to_stream_by_value", "table_group_count"]
TABLES_OF_TABLES += ["table_group_reduce", "table_group_aggregate", "tables_join", "tables_left_join"]
TABLES_OF_TABLES += ["tables_outer_join", "tables_outer_join_kept", "tables_join_filter"]
TABLES_OF_TABLES += ["tables_join_group", "table_map_values_with_key"]
#: Kafka Streams deletes keys that the result does not hold.
FOREIGN_KEY_JOINS = ["foreign_key_join", "foreign_key_left_join", "foreign_key_join_kept"]
FOREIGN_KEY_JOINS += ["foreign_key_join_group"]
TABLE_JOINS = ["table_join", "table_left_join", "rekeyed_table_join", "rekeyed_table_left_join"]
TABLE_JOINS += ["global_join", "global_left_join", "table_join_with_key", "table_left_join_with_key"]
TABLE_JOINS += ["global_join_with_key"]
#: With versions: no deletion has the time of a version.
VERSIONED = ["versioned_table", "versioned_to_table", "versioned_filter", "versioned_filter_kept"]
VERSIONED += ["versioned_filter_versions", "versioned_join", "versioned_left_join", "versioned_filter_join"]
VERSIONED += ["versioned_kept_join", "versioned_group_reduce", "versioned_filter_group"]
VERSIONED += ["versioned_tables_join", "versioned_tables_outer_join", "versioned_foreign_key_join"]
#: Of records with key and value.
TIME_WINDOWS = ["tumbling_count", "tumbling_reduce", "tumbling_aggregate", "hopping_count"]
TIME_WINDOWS += ["hopping_aggregate", "tumbling_suppress", "hopping_suppress"]
TIME_WINDOWS += ["redated_tumbling_count"]
#: Of records less late than the grace.
SLIDING_WINDOWS = ["sliding_count", "sliding_reduce", "sliding_aggregate"]
#: The same, unless a session closes at the very moment that a record brings.
SESSIONS = ["session_count", "session_reduce", "session_aggregate", "session_suppress"]
#: Of records not later than the grace.
STREAM_JOINS = ["join", "self_join", "rekeyed_join", "join_count", "join_with_key"]
#: Of records in the order of their times; pairs also of records not later than the grace.
OUTER_JOINS = ["left_join", "outer_join", "outer_join_with_key"]
#: By tests of their own, the last four in test_differences.py.
ALONE = ["filtered_tumbling_count", "cogroup_tumbling", "sliding_suppress", "dead_letter", "punctuated"]
ALONE += [
    "tables_of_one_table",
    "foreign_key_left_join_twice",
    "count_group",
    "suppress_group",
    "session_group",
    "sliding_group",
]
ALONE += ["changed_dead_letter", "written_dead_letter", "tumbling_emitted", "session_retained"]

_WITHOUT_VAIN_DELETIONS = {"versioned_filter_kept", "versioned_foreign_key_join"}
#: Whose table of ``other`` keeps no versions: a deletion in vain there comes through in Kafka Streams only.
_BESIDE_A_PLAIN_TABLE = {"versioned_tables_outer_join"}
_TWO_TOPICS = {"merge", "cogroup", "cogroup_tumbling", *TABLE_JOINS}
_TWO_TOPICS |= {"join", "rekeyed_join", "join_count", "join_with_key"}
_TWO_TOPICS |= {name for name in VERSIONED if "join" in name}
_TWO_TOPICS |= {*OUTER_JOINS, *FOREIGN_KEY_JOINS, *(name for name in TABLES_OF_TABLES if "join" in name)}
_EXAMPLES = settings(max_examples=examples(40), deadline=None)
#: Of stores that Java makes on disk.
_FEW = settings(max_examples=examples(15), deadline=None)

#: Whose results every topology with versions has some of.
_MEETING: list[Input] = [
    (topic, key, f"v{number}", number)
    for number, (topic, key) in enumerate((t, k) for k in ("a", "g0", "g1") for t in ("other", "in", "in"))
]
#: (topic, key, has a value, how much further than the last record, how much older than that).
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["in", "other"]),
        st.sampled_from(["a", "a", "b", "c", "ab", "g0", "g1", None]),
        st.sampled_from([True] * 7 + [False]),
        st.sampled_from([0, 0, 1, 1, 2, 5, 20]),
        st.sampled_from([0, 0, 0, 1, 3, 10, 30]),
    ),
    max_size=30,
)


@st.composite
def _records(
    draw: st.DrawFn, topology: str, *, late_ms: int = 1_000, nulls: bool = True, unit_ms: int = 1
) -> list[Input]:
    """Make input records.

    :param late_ms: how late they may be.
    :param nulls: whether some have no key or no value.
    :param unit_ms: of all times.
    """
    now_ms = draw(st.sampled_from([0, 5, 1_000])) * unit_ms
    records: list[Input] = []
    for number, (topic, key, valued, further, older) in enumerate(draw(_STEPS)):
        now_ms += further * unit_ms
        records.append(
            (
                topic if topology in _TWO_TOPICS else "in",
                key if nulls or key is not None else "c",
                f"v{number}" if valued or not nulls else None,
                max(0, now_ms - min(older * unit_ms, late_ms)),
            )
        )
    return records


def _assert_equal(case: Case, java: list[Result], python: list[Result]) -> None:
    assert python == java, case


def test_every_topology_is_compared() -> None:
    tested = [ONE_BY_ONE, TABLES, TABLES_OF_TABLES, TABLE_JOINS, TIME_WINDOWS, SLIDING_WINDOWS, SESSIONS]
    tested += [STREAM_JOINS, OUTER_JOINS, FOREIGN_KEY_JOINS, VERSIONED, ALONE]
    assert Counter(name for names in tested for name in names) == Counter(NAMES)


@pytest.mark.parametrize("topology", ["filter", "map", "flat_map_values", "select_key", "peek", "merge"])
def test_description_is_that_of_kafka_streams_when_no_node_has_a_store(
    topology: str, kafka_streams: KafkaStreamsPeer
) -> None:
    described = Topologies(parameters={}).build(topology).describe()
    assert described.rstrip() == kafka_streams.description(topology, {}).rstrip()


@pytest.mark.parametrize("topology", ONE_BY_ONE + TABLE_JOINS)
def test_results_are_those_of_kafka_streams_when_records_are_processed_one_by_one(
    topology: str, kafka_streams: KafkaStreamsPeer
) -> None:
    @_EXAMPLES
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        case = Case(topology=topology, records=data.draw(_records(topology)))
        _assert_equal(case, case.in_java(kafka_streams), case.in_python())

    compare()


@pytest.mark.parametrize("topology", VERSIONED)
def test_tables_with_versions_are_those_of_kafka_streams_when_no_deletion_has_the_time_of_a_version(
    topology: str, kafka_streams: KafkaStreamsPeer
) -> None:
    seen: Counter[str] = Counter()

    @_FEW
    @given(_records(topology), st.sampled_from([0, 3, 30]))
    @example([record for record in _MEETING if record[0] == "in" or topology in _TWO_TOPICS], 30)
    def compare(drawn: list[Input], history: int) -> None:
        records = _deleting_at_other_times(drawn)
        if topology in _BESIDE_A_PLAIN_TABLE:
            records = _without_vain_deletions(records, topics=["other"])
        case = Case(topology=topology, records=records, parameters={"history": history})
        java, python = case.in_java(kafka_streams), case.in_python()
        if topology in _WITHOUT_VAIN_DELETIONS:
            java, python = without_vain_deletions(java), without_vain_deletions(python)
        seen["results"] += len(java)
        _assert_equal(case, java, python)

    compare()
    assert seen["results"]


def _deleting_at_other_times(records: list[Input]) -> list[Input]:
    """Leave out deletions whose key has a record of the same time before."""
    times: set[tuple[str, str | None, int]] = set()
    kept: list[Input] = []
    for record in records:
        topic, key, value, time_ms = record
        if value is not None or (topic, key, time_ms) not in times:
            kept.append(record)
        times.add((topic, key, time_ms))
    return kept


def test_dead_letters_are_those_of_kafka_streams_when_a_function_fails(
    kafka_streams: KafkaStreamsPeer,
) -> None:
    def comparable(result: Result) -> Result:
        return result._replace(headers=tuple(pair for pair in result.headers if pair[0] not in OF_ITS_OWN))

    @_EXAMPLES
    @given(_records("dead_letter"))
    def compare(records: list[Input]) -> None:
        case = Case(topology="dead_letter", records=records)
        java, python = case.in_java(kafka_streams), case.in_python()
        _assert_equal(case, [*map(comparable, java)], [*map(comparable, python)])

    compare()


@pytest.mark.parametrize("topology", TABLES)
def test_changes_are_those_of_kafka_streams_when_a_table_is_not_cached(
    topology: str, kafka_streams: KafkaStreamsPeer
) -> None:
    @_EXAMPLES
    @given(st.data(), st.booleans())
    def compare(data: st.DataObject, deletes: bool) -> None:
        records = data.draw(_records(topology))
        case = Case(topology=topology, records=records, parameters={"deletes": deletes})
        _assert_equal(case, without_vain_deletions(case.in_java(kafka_streams)), case.in_python())

    compare()


@pytest.mark.parametrize("topology", TABLES_OF_TABLES)
def test_tables_of_tables_are_those_of_kafka_streams_when_no_deletion_is_in_vain(
    topology: str, kafka_streams: KafkaStreamsPeer
) -> None:
    @_EXAMPLES
    @given(st.data(), st.booleans())
    def compare(data: st.DataObject, deletes: bool) -> None:
        records = _without_vain_deletions(data.draw(_records(topology)))
        case = Case(topology=topology, records=records, parameters={"deletes": deletes})
        java = case.in_java(kafka_streams)
        if topology == "table_group_aggregate":
            # Its aggregator may delete a group that is not in the table.
            java = without_vain_deletions(java)
        _assert_equal(case, java, case.in_python())

    compare()


@pytest.mark.parametrize("topology", FOREIGN_KEY_JOINS)
def test_foreign_key_joins_are_those_of_kafka_streams_but_for_vain_deletions(
    topology: str, kafka_streams: KafkaStreamsPeer
) -> None:
    @_EXAMPLES
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        case = Case(topology=topology, records=_without_vain_deletions(data.draw(_records(topology))))
        _assert_equal(case, without_vain_deletions(case.in_java(kafka_streams)), case.in_python())

    compare()


def _without_vain_deletions(
    records: list[Input], *, topics: Collection[str] = ("in", "other")
) -> list[Input]:
    """Leave out records of topics that delete a key which has no value."""
    held: set[tuple[str, str | None]] = set()
    kept = []
    for topic, key, value, time_ms in records:
        if value is not None:
            held.add((topic, key))
        elif topic in topics and (topic, key) not in held:
            continue
        else:
            held.discard((topic, key))
        kept.append((topic, key, value, time_ms))
    return kept


@pytest.mark.parametrize("topology", TIME_WINDOWS)
def test_windows_are_those_of_kafka_streams_when_records_have_key_and_value(
    topology: str, kafka_streams: KafkaStreamsPeer
) -> None:
    @_EXAMPLES
    @given(st.data(), st.sampled_from([1, 5, 10]), st.sampled_from([0, 0, 3, 10, 100]), st.booleans())
    def compare(data: st.DataObject, size: int, grace: int, deletes: bool) -> None:
        records = data.draw(_records(topology, nulls=False))
        advance = data.draw(st.integers(1, size))
        parameters = {"size": size, "grace": grace, "advance": advance, "deletes": deletes}
        case = Case(topology=topology, records=records, parameters=parameters)
        java, python = case.in_java(kafka_streams), case.in_python()
        if topology.endswith("suppress"):
            java, python = without_headers(java), without_headers(python)
        _assert_equal(case, without_vain_deletions(java), python)

    compare()


def test_windows_are_those_of_kafka_streams_when_a_filter_passes_few_records_in_order(
    kafka_streams: KafkaStreamsPeer,
) -> None:
    @_EXAMPLES
    @given(_records("filtered_tumbling_count", late_ms=0, nulls=False), st.sampled_from([0, 3]))
    def compare(records: list[Input], grace: int) -> None:
        parameters = {"size": 5, "grace": grace}
        case = Case(topology="filtered_tumbling_count", records=records, parameters=parameters)
        _assert_equal(case, case.in_java(kafka_streams), case.in_python())

    compare()


def test_windows_of_cogrouped_streams_are_those_of_kafka_streams_when_no_record_is_later_than_the_grace(
    kafka_streams: KafkaStreamsPeer,
) -> None:
    @_EXAMPLES
    @given(st.data(), st.sampled_from([0, 3, 10]), st.booleans())
    def compare(data: st.DataObject, grace: int, deletes: bool) -> None:
        records = data.draw(_records("cogroup_tumbling", late_ms=grace, nulls=False))
        parameters = {"size": 5, "grace": grace, "deletes": deletes}
        case = Case(topology="cogroup_tumbling", records=records, parameters=parameters)
        _assert_equal(case, without_vain_deletions(case.in_java(kafka_streams)), case.in_python())

    compare()


@pytest.mark.parametrize("topology", SLIDING_WINDOWS)
def test_sliding_windows_are_those_of_kafka_streams_when_records_are_less_late_than_the_grace(
    topology: str, kafka_streams: KafkaStreamsPeer
) -> None:
    @_EXAMPLES
    @given(st.data(), st.sampled_from([1, 5, 10]), st.sampled_from([1, 3, 10, 100]), st.booleans())
    def compare(data: st.DataObject, size: int, grace: int, deletes: bool) -> None:
        # Java's store forgets a window that a later record needs: "sliding-late".
        records = data.draw(_records(topology, late_ms=grace - 1, nulls=False))
        parameters = {"size": size, "grace": grace, "deletes": deletes}
        case = Case(topology=topology, records=records, parameters=parameters)
        java = case.in_java(kafka_streams)
        known = partial(_before_forgetting, java)
        _assert_equal(case, known(without_vain_deletions(java)), known(case.in_python()))

    compare()


def _before_forgetting(java: Sequence[Result], results: Sequence[Result]) -> list[Result]:
    """Return the results of each key up to the first window of it that Java deletes: with the window its
    store forgets the record at the window's end ("sliding-deleted").
    """
    deleted = {(row.key or b"")[:-8]: row.after for row in reversed(java) if row.value is None}
    return [row for row in results if row.after <= deleted.get((row.key or b"")[:-8], row.after)]


def test_final_sliding_windows_are_those_of_kafka_streams_when_none_closes_at_a_records_moment(
    kafka_streams: KafkaStreamsPeer,
) -> None:
    @_EXAMPLES
    @given(st.data(), st.sampled_from([1, 5, 9]), st.sampled_from([1, 3, 21]))
    def compare(data: st.DataObject, size: int, grace: int) -> None:
        # Times are even, size and grace are odd, so no record comes at the very moment a window closes.
        drawn = data.draw(_records("sliding_suppress", late_ms=grace - 1, nulls=False, unit_ms=2))
        records = [(topic, key, value, 100 + time_ms) for topic, key, value, time_ms in drawn]
        case = Case(topology="sliding_suppress", records=records, parameters={"size": size, "grace": grace})
        java = without_headers(case.in_java(kafka_streams))
        _assert_equal(case, java, without_headers(case.in_python()))

    compare()


@pytest.mark.parametrize("topology", SESSIONS)
def test_sessions_are_those_of_kafka_streams_when_none_closes_at_a_records_moment(
    topology: str, kafka_streams: KafkaStreamsPeer
) -> None:
    def by_moment(result: Result) -> tuple[Any, ...]:
        return result.after, result.key

    @_EXAMPLES
    @given(st.data(), st.sampled_from([2, 6, 16]), st.sampled_from([1, 3, 21]), st.booleans())
    def compare(data: st.DataObject, gap: int, grace: int, deletes: bool) -> None:
        # Times are even and gap + grace is odd, so no record comes at the very moment a session closes.
        records = data.draw(_records(topology, nulls=False, unit_ms=2))
        parameters = {"gap": gap, "grace": grace, "deletes": deletes}
        case = Case(topology=topology, records=records, parameters=parameters)
        java = without_headers(without_vain_deletions(case.in_java(kafka_streams)))
        java = without_passing_deletions(java)
        python = without_headers(case.in_python())
        if topology == "session_suppress":
            java, python = sorted(java, key=by_moment), sorted(python, key=by_moment)
        _assert_equal(case, java, python)

    compare()


@pytest.mark.parametrize("topology", STREAM_JOINS)
def test_joins_are_those_of_kafka_streams_when_no_record_is_late(
    topology: str, kafka_streams: KafkaStreamsPeer
) -> None:
    sizes = st.sampled_from([1, 2, 5, 20])

    @_EXAMPLES
    @given(st.data(), sizes, sizes, st.sampled_from([0, 3, 10]))
    def compare(data: st.DataObject, left: int, right: int, grace: int) -> None:
        records = data.draw(_records(topology, late_ms=min(left, right) + grace - 1))
        parameters = {"left": left, "right": right, "grace": grace}
        case = Case(topology=topology, records=records, parameters=parameters)
        _assert_equal(case, case.in_java(kafka_streams), case.in_python())

    compare()


@pytest.mark.promise("joins-lose-no-pair-uncounted")
def test_pair_is_that_of_kafka_streams_when_stream_time_has_passed_the_first_ones_own_window(
    kafka_streams: KafkaStreamsPeer,
) -> None:
    records = [("in", "a", "v0", 1_000), ("in", "b", "v1", 1_150), ("other", "a", "v2", 1_090)]
    case = Case(topology="join", records=records, parameters={"left": 100, "right": 100, "grace": 0})
    java = without_headers(case.in_java(kafka_streams))
    assert [(result.after, result.value) for result in java] == [(2, b"v0+v2")]
    _assert_equal(case, java, without_headers(case.in_python()))


@pytest.mark.parametrize("topology", OUTER_JOINS)
def test_outer_joins_have_the_results_of_kafka_streams_when_records_come_in_order(
    topology: str, kafka_streams: KafkaStreamsPeer
) -> None:
    def in_any_order(results: list[Result]) -> list[Result]:
        return sorted((result._replace(after=0, headers=()) for result in results), key=str)

    sizes = st.sampled_from([1, 2, 5, 20])

    @_EXAMPLES
    @given(st.data(), sizes, sizes, st.sampled_from([0, 3, 10]))
    def compare(data: st.DataObject, left: int, right: int, grace: int) -> None:
        records = data.draw(_records(topology, late_ms=0))
        # Stream time far ahead closes every window, in Java in two steps.
        records += [("in", "end", "v98", 10_000), ("other", "end", "v99", 20_000)]
        parameters = {"left": left, "right": right, "grace": grace}
        case = Case(topology=topology, records=records, parameters=parameters)
        java, python = case.in_java(kafka_streams), case.in_python()
        _assert_equal(case, in_any_order(java), in_any_order(python))

    compare()


def test_element_without_partner_comes_ahead_of_the_results_of_the_record_that_ends_its_wait(
    kafka_streams: KafkaStreamsPeer,
) -> None:
    records = [("in", "c", "v0", 2), ("in", "a", "v1", 3), ("other", "a", "v2", 8)]
    case = Case(topology="outer_join", records=records, parameters={"left": 5, "right": 0, "grace": 0})
    java = without_headers(case.in_java(kafka_streams))
    assert [(result.after, result.value) for result in java] == [(2, b"v0+null"), (2, b"v1+v2")]
    _assert_equal(case, java, without_headers(case.in_python()))


@pytest.mark.parametrize("topology", OUTER_JOINS)
def test_outer_joins_have_the_pairs_of_kafka_streams_when_no_record_is_late(
    topology: str, kafka_streams: KafkaStreamsPeer
) -> None:
    def values(results: list[Result], *, alone: bool) -> list[tuple[Any, ...]]:
        """Return (key, left and right value, timestamp) of pairs, or of elements without partner."""
        rows = [(r.key, *(r.value or b"").split(b"+"), r.timestamp_ms) for r in results]
        return [row for row in rows if (b"null" in row) == alone]

    sizes = st.sampled_from([1, 2, 5, 20])

    @_EXAMPLES
    @given(st.data(), sizes, sizes, st.sampled_from([0, 3, 10]))
    def compare(data: st.DataObject, left: int, right: int, grace: int) -> None:
        records = data.draw(_records(topology, late_ms=min(left, right) + grace - 1))
        records += [("in", "end", "v98", 10_000), ("other", "end", "v99", 20_000)]
        parameters = {"left": left, "right": right, "grace": grace}
        case = Case(topology=topology, records=records, parameters=parameters)
        java, python = case.in_java(kafka_streams), case.in_python()
        pairs = values(python, alone=False)
        assert pairs == values(java, alone=False), case
        # Java also gives an element alone that finds its partner later: "left-join-too-early".
        ours, theirs = Counter(values(python, alone=True)), Counter(values(java, alone=True))
        paired = {value for _, *both, _ in pairs for value in both} | {b"null"}
        assert not ours - theirs, case
        assert all({*both} <= paired for _, *both, _ in theirs - ours), case

    compare()
