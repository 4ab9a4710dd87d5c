"""Draws programs: well typed, connected, and of a form in which both engines must agree, result for result.

What is drawn is kept as *parts*: the results of steps, with what is known of them. Some knowledge is of
types; the rest says where this engine and Kafka Streams may differ, so that no program asks it. Each such
rule stands where it is kept, with its reason:

- *Stream time* (KIP-28). Here a node's stream time is that of the topics before it; in Kafka Streams it is
  that of the records that reached the node. They agree where a part is ``steady``: each record of its
  topics arrives. Where it is not, windows and joins are given so much grace (``LONG_MS``) that stream time
  decides nothing before the closers come.
- *Order across topics.* A record that reaches a node by two topics has no order there: tasks run side by
  side. So parts meet only if no input record can come by two of their topics (:meth:`World.may_meet`).
- *What time brings* comes before a record's own results here; in Kafka Streams, what a window gives comes
  when its table has its turn, so parts that time brings (``timed``) meet no part of the same input. Where
  another closer brings them (``at_end`` in ``facts.py``), they meet no other such part.
- *Outer joins* (``left-join-too-early``, ``left-join-late``, ``outer-join-moment``): results are compared
  in the end and in any order (``unordered``), and windows are short only where records come in the order of
  their times.
- *Emission of tables*: see ``operators.py``.
- *Timestamps*: an extractor that raises ends Kafka Streams, whatever the handlers say, and is left to
  ``deserialization.exception.handler`` here; so none does.
- *Dead letters* have the time and headers of the record that was consumed (``letters-as-consumed``), so
  records fail where these are the same in both engines, or are skipped (``failing_operators.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from airflow_kstreams.streams import TopologyError
from tests.support.programs.facts import Facts, facts_of
from tests.support.programs.features import FAILING, deep_in
from tests.support.programs.program import SINKS, UNDECODABLE, Program, Ref, Step

#: Grace, and size of windows, that no record passes before the closers do.
LONG_MS = 10_001
#: Grace that not even closers pass.
ENDLESS_MS = 1_000_000_001
#: How late a record may be, milliseconds.
LATEST_MS = 40
#: The topics that are read by a pattern.
PATTERNS = {"p-[0-9]": ("p-1", "p-2"), "q-[0-9]": ("q-1", "q-2")}
#: The inputs, with what their values are.
INPUTS = {"a": "text", "b": "text", "n": "number", "t": "text", "u": "text", "w": "number"}
INPUTS |= {"g": "text", "h": "number", "p-1": "text", "p-2": "text", "q-1": "number", "q-2": "number"}
#: Those that become global tables.
GLOBALS = ("g", "h")


#: What gets no name: windows are no nodes, a topic that is read twice has one name, and a repartition always
#: has its own.
_NAMELESS = {"tumbling_window", "hopping_window", "sliding_window", "session_window", "global_table"}
_NAMELESS |= {"stream", "stream_pattern", "repartition"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The result of a step.

    :param ref: which.
    :param kind: ``stream``, ``grouped``, ``windowed`` (windows of keys), ``table``, ``windows`` (a table) or
        ``grouped_table``.
    :param key: ``text``; of a stream from windows, the kind of windows as serdes are named in steps.
    :param value: ``text`` or ``number``.
    :param window: of ``windowed`` and ``windows``: as key, of the stream that it becomes.
    :param topics: what its records were last read from.
    :param null_keys: whether there may be records without key.
    :param null_values: whether there may be records without value.
    :param rekeyed: whether a group or join repartitions it.
    :param steady: whether each record of its topics gives one here, of its own time or a later one.
    :param punctual: whether its records are no later than those of the inputs are.
    :param timed: whether time brings its records.
    :param closed: whether closers reach it.
    :param unordered: whether its records have no order.
    :param single: whether no record of its topics gives several at once.
    :param redated: whether they have other times than those that stream time goes by.
    :param scattered: whether they lie in several partitions, in order for each key.
    :param vain: whether it may delete keys that it does not hold, in one of the engines.
    :param final: whether only the last value of each key is the same.
    :param derived: of tables: whether it is made of another one.
    :param typed: of tables: whether Kafka Streams knows the serde of its values.
    :param versions: of tables with versions: whether they are those of a ``topic`` or of a ``stream``.
    """

    ref: Ref
    kind: str = "stream"
    key: str = "text"
    value: str = "text"
    window: str = ""
    topics: frozenset[str] = frozenset()
    null_keys: bool = False
    null_values: bool = False
    rekeyed: bool = False
    steady: bool = True
    punctual: bool = True
    timed: bool = False
    closed: bool = True
    unordered: bool = False
    single: bool = True
    redated: bool = False
    scattered: bool = False
    vain: bool = False
    final: bool = False
    derived: bool = False
    typed: bool = True
    versions: str = ""

    @property
    def ends(self) -> bool:
        """Whether its results can only be written."""
        return self.kind == "stream" and (self.vain or self.final)


@dataclass(kw_only=True)
class World:
    """A program that is being drawn.

    :param random: decides everything.
    :param cached: whether its stores are.
    :param late: whether inputs are out of order.
    :param handler: of what fails.
    :param undecodable: whether some input cannot be read.
    """

    random: Random
    cached: bool
    late: bool
    handler: str
    undecodable: bool
    steps: list[Step] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    #: Of each topic, the inputs that its records come from.
    origins: dict[str, frozenset[str]] = field(default_factory=dict)
    #: Steps whose results were taken by others.
    taken: set[Ref] = field(default_factory=set)
    #: Of each topic or pattern that was read, where its timestamps come from, None for its records.
    timestamps: dict[str, dict[str, Any] | None] = field(default_factory=dict)

    # == what operators draw with

    def chance(self, of: float) -> bool:
        """Return whether something happens."""
        return self.random.random() < of

    def pick(self, *choices: Any) -> Any:
        """Return one of several."""
        return self.random.choice(choices)

    def step(self, operator: str, *of: Part, **arguments: Any) -> Ref:
        """Add a step, and return its (first) result."""
        if operator not in _NAMELESS and self.chance(0.3):
            arguments["name"] = f"named-{len(self.steps)}"
        self.steps.append(Step(operator=operator, of=tuple(part.ref for part in of), arguments=arguments))
        self.taken.update(part.ref for part in of)
        return len(self.steps) - 1, 0

    def add(self, part: Part) -> Part:
        """Remember a result."""
        self.parts.append(part)
        return part

    def topic(self, name: str, *parts: Part) -> frozenset[str]:
        """Return the topic that parts were written to, which is read from then on."""
        self.origins[name] = self.inputs(*parts)
        return frozenset({name})

    def inputs(self, *parts: Part) -> frozenset[str]:
        """Return the inputs that parts come from."""
        topics = frozenset(topic for part in parts for topic in part.topics)
        return frozenset(origin for topic in topics for origin in self.origins[topic])

    def some(self, kind: str, fits: Callable[[Part], bool] = lambda part: True) -> Part | None:
        """Return a part of a kind, most often one that nothing has taken yet, and of these a late one."""
        found = [part for part in self.parts if part.kind == kind and not part.ends and fits(part)]
        fresh = [part for part in found if part.ref not in self.taken]
        if fresh and self.chance(0.75):
            return fresh[-1] if self.chance(0.6) else self.random.choice(fresh)
        return self.random.choice(found) if found else None

    def may_meet(self, one: Part, other: Part) -> bool:
        """Return whether records of two parts have an order where they meet."""
        if any(part.unordered or part.scattered or part.final or part.ends for part in (one, other)):
            return False
        if (one.timed or other.timed) and self.inputs(one) & self.inputs(other):
            return False
        if one.timed and other.timed and (self.facts(one).at_end or self.facts(other).at_end):
            return False
        return not any(
            first != second and self.origins[first] & self.origins[second]
            for first in one.topics
            for second in other.topics
        )

    def facts(self, part: Part) -> Facts:
        """Return what is known of the step that gives a part."""
        return facts_of(self.steps, cached=self.cached)[part.ref[0]]

    def arguments_of(self, what: str) -> dict[str, Any]:
        """Draw the arguments of a function."""
        by, null = self.pick("key", "value", "both"), self.pick(0, 0, 0, 5, 7)
        match what:
            case "predicate":
                return {"by": by, "modulus": self.pick(2, 3), "rest": self.pick(0, 1)}
            case "key":
                return {"by": by, "count": self.pick(1, 2, 3, 5), "null": null}
            case "value":
                return {"gives": self.pick("text", "text", "number"), "add": self.pick(0, 1, 2), "null": null}
            case "copies":
                return {"least": self.pick(0, 0, 1), "modulus": self.pick(2, 3)}
        raise ValueError(what)

    def key_beside(self) -> dict[str, Any]:
        """Draw whether a mapper or joiner of values declares the key too, as a step's argument."""
        return {"keyed": True} if self.chance(0.5) else {}

    def arrivals(self, part: Part, topic: str, *, without_nulls: bool = False, by_time: bool = False) -> Part:
        """Return what a part is where it is grouped or joined: read from its own topic if it was rekeyed.

        :param topic: names it.
        :param by_time: whether by windows or joins of streams: then also if it was redated.
        :param without_nulls: whether records without key or value are left out before the topic.
        """
        if not (part.rekeyed or (by_time and part.redated)):
            return part
        arrived = replace(
            part, topics=self.topic(topic, part), steady=True, rekeyed=False, redated=False, single=True
        )
        return replace(arrived, null_keys=False, null_values=False) if without_nulls else arrived

    def timestamps_of(self, source: str, *policies: str) -> dict[str, Any]:
        """Draw where the timestamps of a topic or pattern come from, once for each, as a step's argument.

        :param policies: what may become of records without.
        """
        if source not in self.timestamps:
            invalid = self.pick(*policies)
            every = 0 if invalid == "fail" else self.pick(3, 4)
            drawn = {
                "invalid": invalid,
                "every": every,
                "unit": self.pick(2, 6),
                "modulus": self.pick(1, 2, 4),
            }
            self.timestamps[source] = drawn if self.chance(0.3) else None
        found = self.timestamps[source]
        return {} if found is None else {"timestamps": found}

    def grace_ms(self, steady: bool, *, least: int = 0) -> int:
        """Draw a grace: a short one only where stream time is the same in both engines."""
        if not steady:
            return LONG_MS
        return max(least, self.random.choice((0, 4, 20, 60, LONG_MS - 1)))


def draw_program(seed: int, focus: str) -> Program:
    """Return a program.

    :param seed: the same one gives the same program.
    :param focus: what it has at depth 3 or more, of ``SOUGHT``.
    """
    # Imported here: it draws with what stands above.
    from tests.support.programs.records import draw_records

    random = Random(seed)
    while True:
        world = World(
            random=random,
            cached=random.random() < 0.5,
            late=random.random() < 0.6,
            handler=random.choice(["skip", "dead-letter"]),
            undecodable=random.random() < 0.5,
        )
        if focus.startswith(("processing", "production")):
            world.handler = focus.partition(": ")[2]
        if not _grown(world, focus):
            continue
        records = tuple(draw_records(world))
        fails = any(step.operator in FAILING for step in world.steps)
        fails |= any(value == UNDECODABLE for _, _, value, _ in records)
        handler = world.handler if fails else ""
        program = Program(cached=world.cached, steps=tuple(world.steps), records=records, handler=handler)
        if _reaches(world, focus) and _stops(program):
            return program


def _grown(world: World, focus: str) -> bool:
    """Draw the steps of a program, and say whether they are complete."""
    from tests.support.programs.operators import BEGINNINGS, OPERATORS, SOUGHT, WEIGHTS, sought

    random = world.random
    for name in random.sample(BEGINNINGS, random.randint(1, 3)):
        OPERATORS[name].draw(world)
    if not any(part.kind == "stream" for part in world.parts):
        OPERATORS["stream"].draw(world)
    for _ in range(random.randint(2, 4)):
        OPERATORS[_any(random, WEIGHTS)].draw(world)
    for wanted in (focus, random.choice(SOUGHT), random.choice(SOUGHT)):
        for _ in range(8):
            if _reaches(world, wanted):
                break
            # What gives nothing to go on from makes nothing deeper.
            if not sought(wanted, world) or wanted in SINKS:
                OPERATORS[_any(random, WEIGHTS)].draw(world)
    for _ in range(random.randint(1, 3)):
        OPERATORS[_any(random, WEIGHTS)].draw(world)
    return _finish(world)


def _any(random: Random, weights: dict[str, int]) -> str:
    return random.choices([*weights], [*weights.values()])[0]


def _reaches(world: World, focus: str) -> bool:
    steps = tuple(world.steps)
    return focus in deep_in(Program(cached=world.cached, handler=world.handler, steps=steps, records=()))


def _stops(program: Program) -> bool:
    """Return whether a run of a program can stop: one that writes what it reads is refused."""
    from tests.support.programs.operators import build

    try:
        build(program)
    except TopologyError as error:
        if "can never stop" not in str(error):
            raise
        return False
    return True


def _finish(world: World) -> bool:
    """Complete what is begun, and write what nothing has taken; say whether that could be."""
    from tests.support.programs.operators import COMPLETING, OPERATORS

    for kind, operators in COMPLETING.items():
        while any(part.kind == kind and part.ref not in world.taken for part in world.parts):
            part = next(part for part in world.parts if part.kind == kind and part.ref not in world.taken)
            if not OPERATORS[world.pick(*operators)].extend(world, part):
                return False
    for part in [part for part in world.parts if part.kind == "stream"]:
        if part.ref not in world.taken or world.chance(0.1):
            OPERATORS[world.pick("send_to", "send_to", "send_to_by")].extend(world, part)
    return True


def goes_by_its_times(part: Part) -> bool:
    """Return whether windows see a part's own times, all of them, as stream time."""
    if part.scattered:
        return False
    return part.rekeyed or part.redated or (part.steady and not part.null_keys)


def steady_together(parts: Iterable[Part]) -> bool:
    """Return whether merged parts are steady: each of their topics arrives by one of them whole."""
    listed = [*parts]
    topics = {topic for part in listed for topic in part.topics}
    return topics == {topic for part in listed if part.steady for topic in part.topics}
