"""What the files of operators share: what an operator is, and the topology that is being built."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from airflow_kstreams.streams import KStreamBuilder, Serde, StoreSpec, VersionedStoreSpec, serdes, timestamps
from airflow_kstreams.streams.timestamps import TimestampExtractor
from tests.support.programs import functions
from tests.support.programs.drawing import Part, World
from tests.support.programs.facts import FOREIGN_KEY_JOINS, LOOKUPS
from tests.support.programs.program import Step

TEXT = serdes.string()

STREAM = ("stream",)


@dataclass(kw_only=True)
class Building:
    """A topology that is being built.

    :param cached: whether its stores are.
    :ivar joins: how many joins it has.
    :param seen: gets (step, key, value) of what ``peek`` and ``foreach`` see, as texts.
    """

    cached: bool
    seen: list[tuple[int, str, str]] = field(default_factory=list)
    builder: KStreamBuilder = field(default_factory=KStreamBuilder)
    number: int = 0
    joins: int = 0

    def spec(self, value: str, history_ms: int | None = None) -> StoreSpec:
        """Return the store of the step that is being built.

        :param history_ms: of its versions; None if it keeps none.
        """
        name, serde = f"s{self.number}", serde_of(value)
        if history_ms is not None:
            return VersionedStoreSpec(name=name, key_serde=TEXT, value_serde=serde, history_ms=history_ms)
        return StoreSpec(name=name, key_serde=TEXT, value_serde=serde, cached=self.cached)

    def join_name(self, arguments: dict[str, Any]) -> dict[str, str]:
        """Return the name of the join that is being built, as an option: only the first join goes without, as
        two of the same topics would have one name. A step that has a name gives it itself.
        """
        self.joins += 1
        return {} if self.joins == 1 or "name" in arguments else {"name": f"j{self.number}"}

    def see(self) -> Callable[[Any, Any], None]:
        """Return an action that remembers what it sees."""
        number, seen = self.number, self.seen

        def look(key: Any, value: Any) -> None:
            seen.append((number, functions.shown(key), functions.shown(value)))

        return look


class Naming:
    """What a step is built of, where the step has a name: the first call that takes a name gets it.

    :param of: a builder, stream or table.
    """

    def __init__(self, of: Any, name: str) -> None:
        self._of = of
        self._name = name

    def __getattr__(self, call: str) -> Callable[..., Any]:
        method = getattr(self._of, call)
        if "name" in inspect.signature(method).parameters:
            return partial(method, name=self._name)
        return lambda *arguments, **options: Naming(method(*arguments, **options), self._name)


def serde_of(name: str) -> Serde:
    """Return the serde that a step names."""
    kind, _, size = name.partition(":")
    match kind:
        case "text":
            return TEXT
        case "number":
            return serdes.int64()
        case "windows":
            return serdes.time_windowed(TEXT, int(size))
        case "sessions":
            return serdes.session_windowed(TEXT)
    raise ValueError(name)


def serdes_of(arguments: dict[str, Any]) -> dict[str, Serde]:
    """Return the serdes that a step names, as arguments."""
    return {"key_serde": serde_of(arguments["key"]), "value_serde": serde_of(arguments["value"])}


def timestamps_in(arguments: dict[str, Any]) -> TimestampExtractor | None:
    """Return where a source's timestamps come from, None for its records."""
    found = arguments.get("timestamps")
    return found and timestamps.extract(functions.extractor(found), invalid=found["invalid"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator.

    :param takes: the kinds of part that it extends; none for a source.
    :param extend: adds the step to a part, and says whether it could.
    :param build: makes the step's result of what it takes; a list if there are several.
    :param weight: how often it is drawn.
    """

    takes: tuple[str, ...]
    extend: Callable[[World, Any], bool]
    build: Callable[..., Any]
    weight: int = 2

    def draw(self, world: World) -> bool:
        """Add the step to some part, and what must come before, and say whether that could be."""
        # Imported here: the operators are made of what stands here.
        from tests.support.programs.operators import MAKERS, OPERATORS

        if not self.takes:
            return self.extend(world, None)
        kind = world.pick(*self.takes)
        part = world.some(kind)
        if part is None or (kind != "stream" and world.chance(0.5)):
            OPERATORS[world.pick(*MAKERS[kind])].draw(world)
            part = world.some(kind, lambda part: part.ref not in world.taken) or part
        return part is not None and self.extend(world, part)


def may_be_folded(world: World, part: Part) -> bool:
    """Return whether Kafka Streams can build one more fold of a group.

    All folds of a group with a name read one topic there, and each new one puts off when that topic, and what
    is behind it, is built: later than joins that look into a table of an earlier fold, which fails.

    :param part: the group, or its windows.
    """
    group = part.ref[0]
    if "_window" in world.steps[group].operator:
        group = world.steps[group].of[0][0]
    if "name" not in world.steps[group].arguments or not (part.rekeyed or part.kind == "grouped_table"):
        return True
    behind = {group}
    for number, step in enumerate(world.steps):
        if any(parent in behind for parent, _ in step.of):
            behind.add(number)
    tables = [step.of[1:] if step.operator in LOOKUPS else step.of for step in world.steps if _looks_up(step)]
    return not any(number in behind for of in tables for number, _ in of)


def _looks_up(step: Step) -> bool:
    return step.operator in LOOKUPS | FOREIGN_KEY_JOINS


def mapped(part: Part, key: dict[str, Any] | None, value: dict[str, Any] | None, **others: Any) -> Part:
    """Return what a part is behind functions.

    :param key: the arguments of what makes its keys, None if they stay.
    :param value: the same of its values.
    """
    if key is not None:
        others |= {"key": "text", "rekeyed": True, "null_keys": key["null"] > 0}
        # Equal keys may come from several partitions now.
        others |= {"unordered": part.unordered or part.scattered, "scattered": False}
    if value is not None:
        others |= {"value": value["gives"], "null_values": value["null"] > 0}
    return replace(part, **others)
