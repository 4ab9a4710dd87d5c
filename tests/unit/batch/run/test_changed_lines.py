"""Lines of a topology that move, come and go between two runs, on the in-memory Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.streams import (
    KStream,
    KStreamBuilder,
    Processor,
    SlidingWindow,
    StoreSpec,
    Topology,
    TumblingWindow,
    VersionedStoreSpec,
    serdes,
)
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory, other_way

pytestmark = pytest.mark.promise("lines-keep-their-state")

APP = "app"
WINDOW = SlidingWindow(size_ms=1_000)
UNLOGGED = StoreSpec(name="s", key_serde=serdes.string(), value_serde=serdes.int64(), logged=False)
Line = Callable[[KStreamBuilder], None]


def topology(*lines: Line) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    for line in lines:
        line(builder)
    return builder.build()


def taken(*arguments: Any) -> Any:
    return True


def counted(topic: str, **named: Any) -> Line:
    """``topic`` -> counted by key -> ``<topic>-out``."""

    def line(builder: KStreamBuilder) -> None:
        counts = builder.stream(topic).group_by_key().count(**named)
        counts.to_stream().send_to(f"{topic}-out", value_serde=serdes.json())

    return line


def copied(topic: str) -> Line:
    return lambda builder: builder.stream(topic).filter(taken).send_to("copies")


class Scene:
    def __init__(self) -> None:
        self.kafka = InMemoryKafka()
        for topic in ("a", "b", "t", "u", "a-b", "copies", "out", "a-out", "b-out", "a-b-out"):
            self.kafka.create_topic(topic)
        self.runs = self.read = 0

    def send(self, topic: str, value: bytes = b"1", *, at: int = 1_000) -> None:
        self.kafka.append(topic, value, b"k", timestamp_ms=at)

    def run(self, *lines: Line) -> RunSummary:
        app = Application(
            application_id=APP,
            topology=topology(*lines),
            on=self.kafka,
            clock=self.kafka.clock,
            settings={"settle.ms": 0},
        )
        self.runs += 1
        return app.run(f"run-{self.runs}")

    def refused(self, *lines: Line) -> TopologyError:
        with pytest.raises(TopologyError) as caught:
            self.run(*lines)
        return caught.value

    def out(self, topic: str) -> list[Any]:
        return [serdes.json().deserialize(value or b"") for value in self.kafka.values(topic)]


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(
    "lines",
    [
        (counted("b"), counted("a")),
        (counted("a-b"), counted("a"), counted("b")),
        (copied("b"), counted("a"), counted("b")),
        (counted("a", name="mine"), counted("b")),
    ],
    ids=["swapped", "a third in front", "a copy in front", "a node named"],
)
def test_counts_go_on_when_lines_move(scene: Scene, lines: tuple[Line, ...]) -> None:
    for _ in range(10):
        scene.send("a")
    scene.send("b")
    scene.run(counted("a"), counted("b"))
    scene.send("a")
    scene.send("b")
    assert scene.run(*lines).warnings == ()
    assert (scene.out("a-out")[-1], scene.out("b-out")[-1]) == (11, 2)


def folded(**named: Any) -> Line:
    return lambda b: (
        b.stream("a")
        .group_by(lambda k, v: k)
        .reduce(lambda old, new: old + new, **named)
        .to_stream()
        .send_to("out")
    )


def windowed(**named: Any) -> Line:
    def line(b: KStreamBuilder) -> None:
        counts = b.stream("a").group_by_key().windowed_by(TumblingWindow(size_ms=1_000_000)).count(**named)
        counts.to_stream(lambda window, count: window.key).send_to("out", value_serde=serdes.json())

    return line


def kept(**named: Any) -> Line:
    def line(b: KStreamBuilder) -> None:
        table = b.stream("a").to_table(**named)
        sums = table.group_by(lambda k, v: (k, v)).reduce(
            lambda old, new: old + new, lambda old, gone: old - gone, store="sums"
        )
        sums.to_stream().send_to("out")

    return line


def joined(**named: Any) -> Line:
    def line(b: KStreamBuilder) -> None:
        left, right = (b.stream(topic).with_window(WINDOW) for topic in "ab")
        left.join(right, lambda one, other: one + other, **named).send_to("out", value_serde=serdes.json())

    return line


#: A line without names, the same with a name of the user's, and what it gives of 1, 2 and 3: with its state,
#: and without.
PINNED: dict[str, tuple[Callable[..., Line], str, Any, Any]] = {
    "reduce": (folded, "store", 6, 3),
    "windows": (windowed, "store", 3, 1),
    "to_table": (kept, "store", 3, 8),
}


@pytest.mark.parametrize("kind", [*PINNED])
def test_store_that_got_another_name_is_refused_and_goes_on_with_the_pin(scene: Scene, kind: str) -> None:
    line, option, expected, _ = PINNED[kind]
    scene.send("a", b"1")
    scene.run(line())
    scene.send("a", b"2")
    scene.run(line())
    scene.send("a", b"3")
    refused = scene.refused(line(**{option: "mine"}))
    assert "would begin empty with 'mine'" in refused.cause
    pin = refused.fix.partition('store="')[2].partition('"')[0]
    scene.run(line(**{option: pin}))
    assert scene.out("out")[-1] == expected
    scene.run(line())
    assert scene.runs == 5, "the name that it has is the name of what it is"


def test_join_that_got_a_name_is_refused_and_goes_on_with_the_pin(scene: Scene) -> None:
    scene.send("a", b"1")
    scene.run(joined())
    scene.send("b", b"5")
    refused = scene.refused(joined(name="mine"))
    assert "app-a-b-join-left-changelog (join of a, b)" in refused.cause
    assert 'write name="a-b-join" where it is to go on' in refused.fix
    scene.run(joined(name="a-b-join"))
    assert scene.out("out") == [6]


def summed(value: Any, other: Any) -> Any:
    return (value or 0) + (other or 0)


def looked_up(table: Callable[[KStreamBuilder], Any]) -> Line:
    """Each record of ``b`` beside what a table holds."""
    return lambda b: (
        b.stream("b")
        .left_join(table(b), lambda value, kept: [value, kept])
        .send_to("out", value_serde=serdes.json())
    )


class Summing(Processor[Any, Any, Any, Any]):
    def __init__(self, store: str) -> None:
        self.store = store

    def init(self, context: Any) -> None:
        self.context, self.sums = context, context.state_store(self.store)

    def process(self, record: Any) -> None:
        total = summed(self.sums.get(record.key), record.value)
        self.sums.put(record.key, total)
        self.context.forward(record.key, total)


def of_processors(spec: StoreSpec) -> Line:
    return lambda b: (
        b.stream("a")
        .process(lambda: Summing(spec.name), spec)
        .send_to("out", key_serde=serdes.string(), value_serde=serdes.json())
    )


def json_store(name: str) -> StoreSpec:
    return StoreSpec(name=name, key_serde=serdes.string(), value_serde=serdes.json())


def versions_of(name: str) -> VersionedStoreSpec:
    return VersionedStoreSpec(
        name=name, key_serde=serdes.string(), value_serde=serdes.json(), history_ms=100_000
    )


#: A line whose store has a name of the user's, what the error says to write, and what it gives of a 1 in
#: ``a``, and in the next run a 2 in ``a`` and a 5 in ``b``.
RENAMED: dict[str, tuple[Callable[[str], Line], str, Any]] = {
    "fold": (lambda name: folded(store=name), 'store="old"', 3),
    "fold with a spec": (lambda name: folded(store=json_store(name)), 'StoreSpec(name="old", ...)', 3),
    "windows": (lambda name: windowed(store=name), 'store="old"', 2),
    "table of a stream": (
        lambda name: looked_up(lambda b: b.stream("t").to_table(store=name)),
        'store="old"',
        [5, 7],
    ),
    "table": (lambda name: looked_up(lambda b: b.table("t", store=name)), 'store="old"', [5, 7]),
    "table of versions": (
        lambda name: looked_up(lambda b: b.table("t", store=versions_of(name))),
        'StoreSpec(name="old", ...)',
        [5, 7],
    ),
    "derived table": (
        lambda name: looked_up(lambda b: b.table("t").map_values(lambda v: -v, store=name)),
        'store="old"',
        [5, -7],
    ),
    "joined tables": (
        lambda name: looked_up(lambda b: b.table("t").outer_join(b.table("u"), summed, store=name)),
        'store="old"',
        [5, 7],
    ),
    "fold of a table": (
        lambda name: looked_up(lambda b: b.table("t").group_by(lambda k, v: (k, v)).count(store=name)),
        'store="old"',
        [5, 1],
    ),
    "join": (lambda name: joined(name=name), 'name="old"', 6),
    "join by foreign key": (
        lambda name: looked_up(
            lambda b: (
                b.table("t")
                .left_join(b.table("u"), summed, foreign_key=lambda k, v: k, name=name)
                .map_values(lambda v: v, value_serde=serdes.json())
            )
        ),
        'name="old"',
        [5, 7],
    ),
    "processor": (lambda name: of_processors(json_store(name)), 'StoreSpec(name="old", ...)', 3),
}


@pytest.mark.parametrize("kind", [*RENAMED])
def test_renamed_store_is_refused_and_goes_on_under_the_name_of_before(scene: Scene, kind: str) -> None:
    line, pin, expected = RENAMED[kind]
    scene.send("a", b"1")
    scene.send("t", b"7")
    scene.run(line("old"))
    scene.send("a", b"2", at=5_000)
    scene.send("b", b"5", at=1_001)
    refused = scene.refused(line("new"))
    assert "has state in app-old" in refused.cause
    assert "would begin empty with 'new" in refused.cause
    assert f"to go on with the state, write {pin} where it is to go on; or" in refused.fix
    scene.run(line("old"))
    assert scene.out("out")[-1] == expected


@pytest.mark.parametrize("kind", [*RENAMED])
def test_renamed_store_begins_empty_when_its_state_was_given_up(scene: Scene, kind: str) -> None:
    line, _, expected = RENAMED[kind]
    scene.send("a", b"1")
    scene.send("t", b"7")
    scene.run(line("old"), counted("b", store="others"))
    scene.send("a", b"2", at=5_000)
    scene.send("b", b"5", at=1_001)
    accept_in_memory(scene.refused(line("new"), counted("b", store="others")), scene.kafka)
    scene.run(line("new"), counted("b", store="others"))
    assert scene.out("out")[-1:] != [expected]


def test_state_of_other_stores_goes_on_when_one_is_given_up(scene: Scene) -> None:
    for topic in "ab":
        scene.send(topic)
    scene.run(counted("a", store="old"), counted("b", store="others"))
    for topic in "ab":
        scene.send(topic)
    lines = counted("a", store="new"), counted("b", store="others")
    accept_in_memory(scene.refused(*lines), scene.kafka)
    scene.run(*lines)
    assert (scene.out("a-out"), scene.out("b-out")) == ([1, 1], [1, 2])


def test_store_that_loses_its_name_is_refused_and_goes_on_with_it(scene: Scene) -> None:
    scene.send("a")
    scene.run(counted("a", store="mine"))
    scene.send("a")
    refused = scene.refused(counted("a"))
    assert "app-mine-changelog (count of a)" in refused.cause
    assert 'write store="mine" where it is to go on' in refused.fix
    scene.run(counted("a", store="mine"))
    assert scene.out("a-out") == [1, 2]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (lambda b: counted_in(b.stream("a").filter(taken).peek(taken).map_values(lambda v: v)), 2),
        (lambda b: counted_in(b.stream("a").merge(b.stream("b"))), 3),
        (lambda b: counted_in(b.stream("b")), 2),
        (lambda b: counted_in(b.stream("a").through("copies")), 2),
    ],
    ids=["steps", "a second topic", "another topic", "behind a topic"],
)
def test_line_that_changed_under_the_users_name_goes_on(scene: Scene, changed: Line, expected: int) -> None:
    scene.send("a")
    scene.run(lambda b: counted_in(b.stream("a")))
    for topic in "ab":
        scene.send(topic)
    scene.run(changed, lambda b: b.stream("a").foreach(taken))
    assert scene.out("out") == [1, expected]


def counted_in(stream: KStream[Any, Any]) -> None:
    counts = stream.group_by_key().count(store="mine").to_stream()
    counts.send_to("out", value_serde=serdes.json())


def test_store_that_was_never_written_may_be_renamed(scene: Scene) -> None:
    scene.send("a")
    lines = copied("a"), counted("b", store="old")
    scene.run(*lines)
    scene.send("b")
    assert scene.run(copied("a"), counted("b", store="new")).warnings == ()
    assert scene.out("b-out") == [1]


def test_topic_of_a_global_table_may_be_any(scene: Scene) -> None:
    def line(topic: str) -> Line:
        return lambda b: (
            b.stream("a")
            .left_join(b.global_table(topic), lambda v, kept: [v, kept], key=lambda k, v: k)
            .send_to("out", value_serde=serdes.json())
        )

    scene.send("t", b"7")
    scene.send("u", b"8")
    scene.send("a")
    scene.run(line("t"))
    scene.send("a")
    scene.run(line("u"))
    assert scene.out("out") == [[1, 7], [1, 8]]


@pytest.mark.remedy("state_left.refuse_exchanged")
def test_exchanged_names_are_refused_and_each_goes_on_under_its_own(scene: Scene) -> None:
    lines = counted("a", store="one"), counted("b", store="two")
    for topic in "aab":
        scene.send(topic)
    scene.run(*lines)
    for topic in "ab":
        scene.send(topic)
    refused = scene.refused(counted("a", store="two"), counted("b", store="one"))
    assert (
        "app-two-changelog (count of b) as count of a, whose state is in app-one-changelog" in refused.cause
    )
    assert 'write store="one" for the count of a and store="two" for the count of b; or' in refused.fix
    scene.run(*lines)
    assert (scene.out("a-out"), scene.out("b-out")) == ([2, 3], [1, 2])


@pytest.mark.remedy("state_left.refuse_exchanged")
def test_exchanged_names_begin_empty_when_their_states_were_given_up(scene: Scene) -> None:
    for topic in "aab":
        scene.send(topic)
    scene.run(counted("a", store="one"), counted("b", store="two"))
    for topic in "ab":
        scene.send(topic)
    lines = counted("a", store="two"), counted("b", store="one")
    accept_in_memory(scene.refused(*lines), scene.kafka)
    scene.run(*lines)
    assert (scene.out("a-out"), scene.out("b-out")) == ([2, 1], [1, 1])


@pytest.mark.remedy("state_left.refuse_exchanged")
@pytest.mark.parametrize(
    ("before", "name", "pin"),
    [
        ((counted("b", store="two"),), "two", 'store="two"'),
        ((counted("b", store="two"),), "three", 'store="two"'),
        ((copied("b"),), "three", "another name"),
    ],
    ids=["exchanged", "a new name", "a new line"],
)
def test_name_of_a_line_with_state_is_refused_to_one_that_has_none(
    scene: Scene, before: tuple[Line, ...], name: str, pin: str
) -> None:
    scene.send("a")
    scene.run(counted("a", store="one"), *before)
    for topic in "ab":
        scene.send(topic)
    refused = scene.refused(counted("a", store=name), counted("b", store="one"))
    assert "app-one-changelog (count of a) as count of b, and leave it to no count of a" in refused.cause
    assert f'write {pin} for the count of b and store="one" for the count of a; or' in refused.fix
    scene.run(counted("a", store="one"), counted("b", store="two"))
    assert (scene.out("a-out"), scene.out("b-out")) == ([1, 2], [1])


def test_name_of_a_line_may_go_to_another_while_one_like_it_goes_on(scene: Scene) -> None:
    alike = counted("a", store="alike")
    scene.send("a")
    scene.run(counted("a", store="one"), alike)
    scene.send("b")
    scene.run(counted("b", store="one"), alike)
    assert scene.out("b-out") == [2]


def test_name_of_a_line_that_was_taken_out_is_not_that_of_another(scene: Scene) -> None:
    for topic in "ab":
        scene.send(topic)
    scene.run(counted("a", store="one"), counted("b", store="two"))
    scene.send("a")
    refused = scene.refused(counted("a", store="two"), copied("b"))
    assert (
        "app-two-changelog (count of b) as count of a, whose state is in app-one-changelog" in refused.cause
    )


@pytest.mark.remedy("state_left.refuse_left_behind")
def test_name_of_a_line_without_state_is_refused_to_one_whose_state_is_left_behind(scene: Scene) -> None:
    """A changelog that nothing was written to is there, and a store begins empty with it all the same."""
    scene.send("a")
    scene.run(counted("a", store="one"), counted("b", store="two"))
    scene.send("a")
    refused = scene.refused(counted("a", store="two"), copied("b"))
    assert "state in app-one-changelog (count of a)" in refused.cause
    assert "it would begin empty with 'two'" in refused.cause
    assert 'write store="one" where it is to go on' in refused.fix
    scene.run(counted("a", store="one"), copied("b"))
    assert scene.out("a-out") == [1, 2]


def test_join_whose_sides_are_exchanged_under_its_name_is_refused(scene: Scene) -> None:
    def other_way_round(b: KStreamBuilder) -> None:
        left, right = (b.stream(topic).with_window(WINDOW) for topic in "ba")
        left.join(right, summed, name="mine").send_to("out", value_serde=serdes.json())

    scene.send("a", b"1")
    scene.run(joined(name="mine"))
    scene.send("b", b"5")
    refused = scene.refused(other_way_round)
    assert "made as join of a, b, and its topology would read it as join of b, a" in refused.cause
    accept_in_memory(refused, scene.kafka)


def test_line_is_taken_out_with_a_warning_when_its_store_was_named(scene: Scene) -> None:
    scene.send("a")
    scene.send("b")
    scene.run(of_processors(json_store("sums")), counted("b", store="mine"))
    scene.send("a")
    warnings = scene.run(copied("a")).warnings
    assert any("app-mine-changelog holds state (count of b)" in each for each in warnings)
    assert any("app-sums-changelog holds state (store of a processor)" in each for each in warnings)


@pytest.mark.remedy("state_left.refuse_left_behind")
def test_state_is_given_up_by_the_printed_command(scene: Scene) -> None:
    scene.send("a", b"1")
    scene.run(joined())
    scene.send("b", b"5")
    refused = scene.refused(joined(name="mine"))
    accept_in_memory(refused, scene.kafka)
    scene.run(joined(name="mine"))
    assert scene.out("out") == []


def test_everything_is_processed_again_by_the_printed_command_when_an_input_is_new(scene: Scene) -> None:
    scene.send("a")
    scene.run(counted("a"))
    scene.send("b")
    lines = counted("a", store="mine"), counted("b")
    refused = scene.refused(*lines)
    assert "(or --input-topics a in place of" in refused.fix
    accept_in_memory(TopologyError("", fix=other_way(refused)), scene.kafka)
    scene.run(*lines)
    assert (scene.out("a-out"), scene.out("b-out")) == ([1, 1], [1])


@pytest.mark.parametrize(
    "other",
    [
        counted("b"),
        counted("b", store="a-sums"),
        lambda b: b.stream("a").group_by_key().reduce(lambda old, new: new).to_stream().send_to("out"),
        lambda b: (
            b.stream("a")
            .group_by_key()
            .count(
                store=StoreSpec(name="s", key_serde=serdes.string(), value_serde=serdes.int64(), logged=False)
            )
            .to_stream()
            .send_to("a-out", value_serde=serdes.json())
        ),
    ],
    ids=["of another topic", "named", "another fold", "not logged"],
)
def test_state_is_not_left_behind_when_another_store_begins_empty(scene: Scene, other: Line) -> None:
    scene.send("a")
    scene.run(counted("a"))
    scene.send("a")
    refused = scene.refused(other, copied("a"))
    assert "has state in app-a-count-changelog (count of a)" in refused.cause
    accept_in_memory(refused, scene.kafka)
    scene.run(other, copied("a"))


def test_pin_is_offered_only_to_what_can_go_on_with_the_state(scene: Scene) -> None:
    scene.send("a")
    scene.run(counted("a"))

    def lists(b: KStreamBuilder) -> None:
        b.stream("a").group_by_key().aggregate(list, lambda k, v, seen: [*seen, v])

    refused = scene.refused(lists)
    assert "store=" not in refused.fix
    assert "none of these could go on with that state" in refused.fix


@pytest.mark.parametrize(
    "others",
    [(copied("a"),), (copied("a"), counted("b")), (lambda b: b.table("b"), copied("a"))],
    ids=["nothing else", "what was there", "what is nothing like it"],
)
def test_line_is_taken_out_with_a_warning(scene: Scene, others: tuple[Line, ...]) -> None:
    scene.send("a")
    scene.send("b")
    scene.run(counted("a"), counted("b"))
    scene.send("a")
    scene.send("b")
    warnings = scene.run(*others).warnings
    assert any("app-a-count-changelog holds state (count of a)" in each for each in warnings)
    assert scene.out("a-out") == [1]
    scene.send("a")
    assert not any("app-a-count-changelog" in each for each in scene.run(*others).warnings), "said once"
    refused = scene.refused(counted("a"))
    assert "'a-count' of application 'app' was not in the topology" in refused.cause


def test_state_of_two_topics_is_not_that_of_one_that_is_called_alike(scene: Scene) -> None:
    def both(b: KStreamBuilder) -> None:
        counts = b.stream("a", "b").group_by_key().count()
        counts.to_stream().send_to("a-b-out", value_serde=serdes.json())

    scene.send("a")
    scene.run(both)
    scene.send("a-b")
    refused = scene.refused(counted("a-b"))
    assert "made as count of a, b, and its topology would read it as count of a-b" in refused.cause


def sliding(*, suppressed: bool, **named: Any) -> Line:
    def line(b: KStreamBuilder) -> None:
        window = SlidingWindow(size_ms=10, grace_ms=0)
        counts = b.stream("a").group_by_key().windowed_by(window).count(**named)
        shown = counts.suppress() if suppressed else counts
        shown.to_stream(lambda window, count: window.key).send_to("out", value_serde=serdes.json())

    return line


@pytest.mark.promise("changed-stores-are-refused")
@pytest.mark.parametrize("named", [{}, {"store": "mine"}])
@pytest.mark.parametrize("before", [True, False])
def test_sliding_windows_are_refused_when_the_closed_ones_would_be_missing(
    scene: Scene, before: bool, named: dict[str, Any]
) -> None:
    scene.send("a", at=1_000)
    scene.run(sliding(suppressed=before, **named))
    scene.send("a", at=1_001)
    refused = scene.refused(sliding(suppressed=not before, **named))
    assert "closed ones apart" in refused.cause


def test_groups_are_found_by_their_changelogs_when_lines_have_moved(scene: Scene) -> None:
    scene.send("a")
    scene.send("b")
    scene.run(counted("a"), counted("b"))
    assert scene.run(counted("b"), counted("a")).empty, "an empty run records no groups"
    moved = topology(counted("b"), counted("a")).plan(APP)
    recorded = read_ledger(scene.kafka, APP, clock=scene.kafka.clock).assignment
    assert recorded is not None
    found = {sub.sources: recorded.groups_of(sub.id, sub.changelogs.values()) for sub in moved.subtopologies}
    assert [(*entry.partitions,) for entry in found.values() if entry] == [*found] == [("b",), ("a",)]
    assert recorded.groups_of(0, ()) is None


@pytest.mark.parametrize(("store", "total"), [("tens", 67), (None, 22)])
def test_fold_takes_out_what_a_kept_table_gave_when_the_mapper_above_has_changed(
    store: str | None, total: int
) -> None:
    """Without a store, what the new mapper makes of the old value is taken out, as in Kafka Streams."""

    def summed(times: int) -> Line:
        def line(builder: KStreamBuilder) -> None:
            mapped = builder.table("a").map_values(lambda value: times * value, store=store)
            groups = mapped.group_by(lambda key, value: ("all", value))
            sums = groups.reduce(lambda total, value: total + value, lambda total, value: total - value)
            sums.to_stream().send_to("a-out")

        return line

    scene = Scene()
    for key, value in ((b"k", b"5"), (b"l", b"7")):
        scene.kafka.append("a", value, key)
    scene.run(summed(1))
    scene.kafka.append("a", b"6", b"k")
    scene.run(summed(10))
    assert scene.kafka.values("a-out")[-1] == str(total).encode()
