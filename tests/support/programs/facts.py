"""What of a program's results is compared, step by step, and follows from the steps alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.programs.features import FAILING
from tests.support.programs.program import SOURCES, TABLE_SOURCES, TABLES, Program, Step

#: Results come in one order; those of each key do; they come in any order.
IN_ORDER, BY_KEY, IN_ANY_ORDER = range(3)

#: What makes new keys, so that those of one key may come from several others.
REKEYING = {"map", "flat_map", "select_key", "group_by", "to_stream_by", "table_group_by"}
_TABLES_JOINS = {"tables_join", "tables_left_join", "tables_outer_join"}
FOREIGN_KEY_JOINS = {"foreign_key_join", "foreign_key_left_join"}
#: Streams that are joined with tables: results come from the stream alone.
LOOKUPS = {"table_join", "table_left_join", "global_join", "global_left_join"}
LOOKUPS |= {"versioned_join", "versioned_left_join"}
#: What passes time and headers of a record on as they are.
_AS_CONSUMED = {"filter", "filter_not", "map", "map_values", "flat_map", "flat_map_values", "select_key"}
_AS_CONSUMED |= {"peek", "branch", "split", "merge", "process_values", "with_context", "failing", *LOOKUPS}
#: What writes a topic and reads it again.
_READ_AGAIN = {"through", "repartition"}
#: What does so on its way, always or where keys are new.
_WRITING = {*_READ_AGAIN, "table_group_by", *FOREIGN_KEY_JOINS}
_WRITING_NEW_KEYS = {"group_by_key", "group_by", "to_table", "versioned_to_table"}
_WRITING_NEW_KEYS |= {name for name in LOOKUPS if not name.startswith("global")}
#: What passes old values on where it keeps nothing.
_OF_TABLES = {"table_filter", "table_filter_not", "table_map_values", "table_transform_values", "suppress"}
#: What keeps its results in a store, always.
_KEEPING = {
    "table",
    "versioned_table",
    "versioned_to_table",
    "count",
    "reduce",
    "aggregate",
    "cogroup",
    "to_table",
}
_KEEPING |= {"table_count", "table_reduce", "table_aggregate"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a step's results.

    :param order: one of the three above.
    :param headers: whether they have the headers of the record that led to them.
    :param vain: whether one of the engines may delete keys that readers do not have.
    :param final: whether only the last result of each key is compared.
    :param stale: whether these may be of keys that were deleted, too, in Kafka Streams
        (``tables-of-one-table``).
    :param several: whether one record may lead to several of one key. In a join by foreign key the later
        ones may overtake the answers to the first ones, so what is between them need not come.
    :param many: whether one record may lead to several of different keys.
    :param sessions: whether keys have sessions.
    :param begun: whether Kafka Streams takes the initial aggregate for a new key's old value
        (``first-old-value``), or what a window was before its last record (``suppressed-old-value``).
    :param inputs: the topics that they come from.
    :param consumed: whether they have time and headers of the record that was consumed, which is what a dead
        letter has (``letters-as-consumed``).
    :param rekeyed: whether a group or join writes them to a topic first.
    :param paired: whether a join gives them, so that a record of one side alone brings stream time in this
        engine, and none in Kafka Streams (``stream-time-of-filtered``).
    :param at_end: whether they come with the closers, and with which of them is not compared: a table of what
        is paired gets a later one there (``suppress-by-any-record``).
    :param versions: whether they are of a table with versions.
    """

    order: int = IN_ORDER
    headers: bool = True
    vain: bool = False
    final: bool = False
    stale: bool = False
    several: bool = False
    many: bool = False
    sessions: bool = False
    begun: bool = False
    inputs: frozenset[str] = frozenset()
    consumed: bool = True
    rekeyed: bool = False
    paired: bool = False
    at_end: bool = False
    versions: bool = False

    @property
    def letters(self) -> bool:
        """Whether a dead letter of one is the same in both engines."""
        return self.headers and self.consumed and self.order == IN_ORDER and not self.at_end


def facts_of(steps: Sequence[Step], *, cached: bool) -> list[Facts]:
    """Return the facts of each step."""
    facts: list[Facts] = []
    for step in steps:
        parents = [facts[parent] for parent, _ in step.of]
        facts.append(_facts_of(step, parents, cached))
    return facts


def agrees(program: Program) -> bool:
    """Return whether a program asks nothing that the engines answer differently, as far as steps tell."""
    facts = facts_of(program.steps, cached=program.cached)

    def taken(step: Step, parent: Facts) -> bool:
        if step.operator == "table_group_by":
            return not parent.begun
        return step.operator not in FAILING or program.handler == "skip" or parent.letters

    return all(taken(step, facts[parent]) for step in program.steps for parent, _ in step.of)


def _facts_of(step: Step, parents: list[Facts], cached: bool) -> Facts:
    operator, arguments = step.operator, step.arguments
    if operator == "global_table":
        # It only answers: no result comes from it.
        return Facts()
    # A table with versions is not cached, and passes deletions on in both engines.
    versions = "history" in arguments
    cached = cached and not versions
    if operator in SOURCES:
        headers = not (cached and operator in TABLE_SOURCES)
        consumed = "timestamps" not in arguments
        return Facts(headers=headers, inputs=frozenset(step.reads()), consumed=consumed, versions=versions)
    sessions = operator == "session_window" or any(parent.sessions for parent in parents)
    sessions |= operator == "cogroup" and arguments["sessions"]
    kept = operator in _KEEPING or arguments.get("kept", False)
    operator = _call_of(step)
    leading = parents[:1] if operator in LOOKUPS else parents
    rekeyed = operator in REKEYING or any(parent.rekeyed for parent in leading)
    paired = _pairs(operator, parents) or any(parent.paired for parent in leading)
    of_versions = any(parent.versions for parent in leading)
    written = operator in _WRITING or (operator in _WRITING_NEW_KEYS and rekeyed)
    return Facts(
        order=_order_of(step, parents, sessions),
        many=any(parent.many for parent in leading) or _gives_many(step, operator, parents),
        headers=_headers_of(step, parents) and not (kept and cached),
        vain=_vain(step, parents, kept and not versions, cached),
        final=any(parent.final for parent in parents) or _overtakes(operator, parents),
        stale=any(parent.stale for parent in parents)
        or (operator == "tables_join" and _overtakes(operator, parents)),
        several=any(parent.several for parent in leading) or _gives_several(operator, parents),
        sessions=sessions and operator not in ("to_stream", "to_stream_by", "table_group_by"),
        begun=_begun(operator, parents, kept, cached),
        inputs=frozenset(topic for parent in parents for topic in parent.inputs),
        consumed=operator in _READ_AGAIN
        or (operator in _AS_CONSUMED and all(parent.consumed for parent in parents)),
        rekeyed=rekeyed and not written and not operator.startswith("stream_"),
        paired=paired and not written,
        at_end=any(parent.at_end or (operator == "suppress" and parent.paired) for parent in parents),
        versions=versions or (of_versions and operator in _OF_TABLES and not kept),
    )


def _call_of(step: Step) -> str:
    """Return the operator, of one with context what is called."""
    call: str = step.arguments["call"] if step.operator == "stateless_with_context" else step.operator
    return call


def _order_of(step: Step, parents: list[Facts], sessions: bool) -> int:
    order = max(parent.order for parent in parents)
    match step.operator:
        case "stream_left_join" | "stream_outer_join":
            return IN_ANY_ORDER
        case "suppress" if sessions:
            return IN_ANY_ORDER
        case "foreign_key_left_join" if parents[0].many:
            # Of entries at once, here those without foreign key have results first, as they ask for none.
            return max(order, BY_KEY)
        case "repartition" if step.arguments.get("partitions", 1) > 1:
            return max(order, BY_KEY)
        case _ if _call_of(step) in REKEYING and order == BY_KEY:
            return IN_ANY_ORDER
    return order


def _headers_of(step: Step, parents: list[Facts]) -> bool:
    match step.operator:
        case "stream_left_join" | "stream_outer_join" | "suppress":
            return False
        case operator if operator in LOOKUPS:
            return parents[0].headers
    return all(parent.headers for parent in parents)


def _vain(step: Step, parents: list[Facts], kept: bool, cached: bool) -> bool:
    """Return whether deletions may be in vain: those that a stored table passes on without a cache, which are
    of keys that it does not hold, and those of joins by foreign key.
    """
    operator = step.operator
    if operator in LOOKUPS:
        return parents[0].vain
    if operator == "filter" and step.arguments["by"] == "present":
        return False
    if kept and cached:
        return False
    if operator in FOREIGN_KEY_JOINS or operator == "to_table":
        return True
    if operator in ("count", "reduce", "aggregate", "cogroup", "table_count"):
        return False
    if operator in ("table_reduce", "table_aggregate"):
        return bool(step.arguments["deletes"])
    if any(parent.vain for parent in parents):
        return True
    if operator in ("table_filter", "table_filter_not"):
        # A table with versions passes deletions on as they come.
        by_versions = kept and parents[0].versions
        return by_versions or (not kept and any(parent.begun for parent in parents))
    return kept and operator != "table"


def _begun(operator: str, parents: list[Facts], kept: bool, cached: bool) -> bool:
    # A new sliding window has what it begins with for an old value, in a reduction too.
    if operator in ("count", "aggregate", "cogroup", "sliding_window"):
        return not cached
    if operator == "suppress":
        return True
    # The result of a join, kept or not, has the old value that was computed.
    passed = operator in _TABLES_JOINS or operator == "reduce" or (operator in _OF_TABLES and not kept)
    return passed and any(parent.begun for parent in parents)


def _gives_several(operator: str, parents: list[Facts]) -> bool:
    if operator == "merge":
        return bool(parents[0].inputs & parents[1].inputs)
    if operator in REKEYING and parents[0].many:
        return True
    return operator in ("flat_map", "flat_map_values", "process_values") or operator.startswith("stream_")


def _gives_many(step: Step, operator: str, parents: list[Facts]) -> bool:
    if operator in REKEYING and parents[0].several:
        return True
    window = (step.arguments.get("window") or {}).get("kind", "") if operator == "cogroup" else operator
    windows = ("hopping", "sliding", "session")
    met = () if operator in LOOKUPS else parents[1:]
    shared = any(parents[0].inputs & other.inputs for other in met)
    by_time = operator in ("stream_left_join", "stream_outer_join", "suppress", "table_group_by")
    return by_time or operator in FOREIGN_KEY_JOINS or window.startswith(windows) or shared


def _pairs(operator: str, parents: list[Facts]) -> bool:
    """Return whether a closer may lead to nothing, before one of another topic has come."""
    if operator in ("table_join", "versioned_join"):
        # Closers of topics that are tables come first.
        return not parents[1].inputs <= {*TABLES}
    return operator == "stream_join" or operator in _TABLES_JOINS


def _overtakes(operator: str, parents: list[Facts]) -> bool:
    """Return whether a change comes to a join of tables by both sides, or several to one by foreign key."""
    if operator in FOREIGN_KEY_JOINS and any(parent.several for parent in parents):
        return True
    if operator not in _TABLES_JOINS | FOREIGN_KEY_JOINS:
        return False
    left, right = parents
    return bool(left.inputs & right.inputs)
