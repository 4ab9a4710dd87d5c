"""Finds the topic and the serdes of ``ProcessorContext.send``."""

from __future__ import annotations

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.components import Subtopology
from airflow_kstreams.streams.graph.nodes import SinkNode, bound_to
from airflow_kstreams.streams.naming.topic_names import LEGAL_TOPIC, ProtocolTopics, is_legal_topic
from airflow_kstreams.streams.processor.processor_outputs import SendTarget
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.topology.topology import Topology


def send_target(
    topology: Topology, subtopology: Subtopology, application_id: str, topic: str, node: str
) -> SendTarget:
    """Return the target of records that are sent to a topic by name.

    A topic that some subtopology reads is written only through a sink of the sender's subtopology: a run must
    know all writers of such a topic, to know when its readers have read all records.

    :param topic: name in the topology.
    :param node: name of the sending node, for messages.
    :raises TopologyError: Kafka does not allow the name, the topology reads the topic and no sink here writes
        it, its sink has a partitioner, or the topic belongs to the engine.
    """
    if not is_legal_topic(topic):
        raise TopologyError(
            f"processor {node!r} sends to {topic!r}, which Kafka does not allow for a topic",
            fix=LEGAL_TOPIC,
        )
    topic = _written_as(topology, topic, node)
    sinks = [n for n in subtopology.nodes if isinstance(n, SinkNode) and n.topic == topic]
    if not sinks and any(topic in sub.source_topics for sub in topology.subtopologies()):
        raise TopologyError(
            f"processor {node!r} sends to {topic!r}, which the topology reads",
            fix="add a sink for the topic below the processor and forward to it; a run must know the writers "
            "of what it reads",
        )
    if topic in engine_topics(topology, application_id):
        raise TopologyError(
            f"processor {node!r} sends to {topic!r}, which is the engine's own", fix="send to another topic"
        )
    real_topic = topology.real_topic(topic, application_id)
    if not sinks:
        return SendTarget(topic=real_topic, key_serde=serdes.bytes(), value_serde=serdes.bytes())
    if any(sink.partitioner is not None for sink in sinks):
        raise TopologyError(
            f"processor {node!r} sends to {topic!r} by name, whose sink here has a partitioner",
            fix="forward to the sink, which calls it",
        )
    sink = bound_to(real_topic, sinks[0])
    return SendTarget(topic=real_topic, key_serde=sink.key_serde, value_serde=sink.value_serde)


def _written_as(topology: Topology, topic: str, node: str) -> str:
    """Return the topic that takes a topic's place, see ``output.topics``.

    :raises TopologyError: no topic is named, although only named ones may be written.
    """
    outputs = topology.written_as
    if outputs is None or any(topic == internal.name for internal in topology.internal_topics):
        return topic
    if topic not in outputs:
        raise TopologyError(
            f"processor {node!r} sends to {topic!r}, and no topic is named to take its place",
            fix="name one, or the same, among the outputs of the backfill (setting output.topics)",
        )
    return outputs[topic]


def engine_topics(topology: Topology, application_id: str) -> set[str]:
    """Return the real names of the topics that only the engine writes."""
    return {
        *ProtocolTopics(application_id).protocol,
        *(topology.changelog_topic(store.name, application_id) for store in topology.stores),
        *(topology.real_topic(topic.name, application_id) for topic in topology.internal_topics),
    }
