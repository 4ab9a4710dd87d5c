"""Several streams merged into one."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.call_site import CallSite, call_site
from airflow_kstreams.streams.kstream.graph import Serdes
from airflow_kstreams.streams.kstream.known import KnownStream
from airflow_kstreams.streams.kstream.operators.stateless import PassThrough
from airflow_kstreams.streams.serde.base import Serde, Side


def merged(streams: Sequence[KnownStream], name: str | None) -> KnownStream:
    """Add the node that merges streams of one builder, and return the stream of its results.

    :param name: that the user gave the node.
    :raises TopologyError: there is one stream only, one is named twice, or two have different serdes; with
        the user's line.
    """
    graph, nodes = streams[0].graph, [stream.node for stream in streams]
    serdes = _merged_serdes(nodes, [stream.serdes for stream in streams])
    node = graph.node_name("KSTREAM-MERGE", name)
    graph.topology.add_operator(node, PassThrough(type="merge"), *nodes)
    return KnownStream(
        graph=graph,
        node=node,
        serdes=serdes,
        key_changed=any(stream.key_changed for stream in streams),
        table_values=any(stream.table_values for stream in streams),
        redated=any(stream.redated for stream in streams),
    )


def _merged_serdes(nodes: Sequence[str], streams: Sequence[Serdes]) -> Serdes:
    """Return what is known of a merged stream.

    A side that one stream has lost is lost for all: its objects may be of another kind than the known serde
    writes.
    """
    site = call_site()
    if len({*nodes}) < max(len(nodes), 2):
        raise TopologyError(
            f"merge at {site} needs two or more different streams, each once",
            fix="pass the other streams; to double records, use flat_map_values(lambda v: [v, v])",
        )
    key, key_lost = _merged("key", streams, site)
    value, value_lost = _merged("value", streams, site)
    return Serdes(key=key, value=value, key_lost=key_lost, value_lost=value_lost)


def _merged(side: Side, streams: Sequence[Serdes], site: CallSite) -> tuple[Serde | None, str]:
    known = [serde for stream in streams if (serde := stream.known(side)) is not None]
    other = next((serde for serde in known if serde != known[0]), None)
    if other is not None:
        forget = "map_values(lambda v: v)" if side == "value" else "select_key(lambda k, v: k)"
        raise TopologyError(
            f"merge at {site} is given streams of different {side} serdes, {known[0]!r} and {other!r}",
            fix=f"end one stream with {forget}, and pass {side}_serde= where the merged one is written",
        )
    if len(known) == len(streams):
        return known[0], ""
    return None, next(stream.lost(side) for stream in streams if stream.known(side) is None)
