"""Computes the stream time to which the end of a run may bring each subtopology (``stream.time.advance``).

Rule: a run that has processed all records dated before a moment brings stream time there. Results of other
subtopologies may come later and be dated earlier: those that a window upstream has not emitted yet, or would
still change. So a subtopology stays behind the moment: by the largest sum, over the paths that lead to it, of
the times that the subtopologies on the path hold back.

- A fold by windows holds back size and grace: an open window at stream time t holds records dated after
  t - size - grace, and takes such. Whether its results are suppressed or not makes no difference. A session
  holds back gap and grace, since its result has the time of its last record.
- A join of streams holds back the time for which it keeps elements.
- Results of a fold or a join are dated no further back, whatever its input. Every other node passes on the
  times of its input, so it adds nothing. (A processor may date its results freely: windows downstream need
  the grace for that.)

Some records may be dated before any moment: those of a source whose timestamps are extracted from values,
since the stop offsets of a run go by the records' own; those of a topic behind ``set_timestamp``; those
downstream of a node with a retry topic, where records wait for days. Such a subtopology, and all below it,
are advanced only if the user names these topics and nodes. Within the subtopology of the node itself it
depends on whether records are parked when the run ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from airflow_kstreams.streams.graph.components import Subtopology, parents
from airflow_kstreams.streams.graph.nodes import Node, SinkNode, SourceNode, options_of, traits_of
from airflow_kstreams.streams.plan import StreamTimePlan

#: Extractors that give a record's own time.
_OWN_TIME = "record_time"


def stream_time_plans(
    subs: Sequence[Subtopology], real_topic: Callable[[str], str] = str
) -> dict[int, StreamTimePlan]:
    """Return the stream time plan of each subtopology, by id.

    :param subs: the subtopologies, in running order.
    :param real_topic: function that gives the name to show for a topic's name in the topology.
    """
    behind: dict[str, int] = {}
    names: dict[str, set[str]] = {}
    found: dict[int, StreamTimePlan] = {}
    for sub in subs:
        behind_ms = max((behind.get(topic, 0) for topic in sub.source_topics), default=0)
        by_name = set().union(*(names.get(topic, ()) for topic in sub.source_topics))
        extracted = {real_topic(topic) for node in sub.nodes for topic in _extracted(node)}
        by_name |= extracted
        found[sub.id] = StreamTimePlan(
            behind_ms=behind_ms,
            by_name=tuple(sorted(by_name)),
            windowed=any(held_back_ms(node) is not None for node in sub.nodes),
            extracted=tuple(sorted(extracted)),
        )
        parking = {node.name for node in sub.nodes if _parks(node)}
        held = _held(sub.nodes)
        redated = _redated(sub.nodes)
        for node in sub.nodes:
            if isinstance(node, SinkNode):
                topic = node.topic
                behind[topic] = max(behind.get(topic, 0), behind_ms + held[node.name])
                own = {real_topic(topic)} if node.name in redated else set()
                names.setdefault(topic, set()).update(by_name, parking, own)
    return found


def description_of(plans: Mapping[int, StreamTimePlan]) -> str:
    """Return the plans in words."""
    lines = [f"  Sub-topology: {sub}: {_in_words(plan)}\n" for sub, plan in sorted(plans.items())]
    return "Stream time at the end of a run (stream.time.advance):\n" + "".join(lines)


def _in_words(plan: StreamTimePlan) -> str:
    moment = "the run's moment"
    if plan.behind_ms:
        moment += f" less {plan.behind_ms} ms, which nodes upstream may hold back"
    if plan.by_name:
        return f"{moment}; only if stream.time.advance.also names {', '.join(plan.by_name)}"
    return moment


def held_back_ms(node: Node) -> int | None:
    """Return the milliseconds by which a node's results may be dated behind stream time; None for a node that
    does not wait.
    """
    return traits_of(node).held_back_ms


def _held(nodes: Sequence[Node]) -> dict[str, int]:
    """Return the milliseconds by which each node's results may be dated behind stream time."""
    held: dict[str, int] = {}
    for node in nodes:
        own_ms = held_back_ms(node)
        held[node.name] = (
            max((held[above] for above in parents(node)), default=0) if own_ms is None else own_ms
        )
    return held


def _redated(nodes: Sequence[Node]) -> set[str]:
    """Return the nodes that may get times from ``set_timestamp``."""
    found: set[str] = set()
    for node in nodes:
        if traits_of(node).redates or not found.isdisjoint(parents(node)):
            found.add(node.name)
    return found


def _extracted(node: Node) -> tuple[str, ...]:
    """Return the topics of a source whose timestamps are not the records' own."""
    if not isinstance(node, SourceNode) or node.timestamps is None or node.timestamps.id == _OWN_TIME:
        return ()
    return node.topics


def _parks(node: Node) -> bool:
    options = options_of(node)
    return options is not None and options.retry is not None and options.parks
