"""A table of windows: the newest aggregate of each key and window."""

from __future__ import annotations

from airflow_kstreams.streams.call_site import call_site
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.store_specs import (
    SessionStoreSpec,
    StoreSpec,
    WindowStoreSpec,
)
from airflow_kstreams.streams.kstream.graph import Serdes, StreamGraph
from airflow_kstreams.streams.kstream.kstream import KStream
from airflow_kstreams.streams.kstream.stateless import PassThrough
from airflow_kstreams.streams.kstream.suppress import Suppress
from airflow_kstreams.streams.kstream.table import KTable
from airflow_kstreams.streams.serde import serdes as builtin_serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.windows import SessionWindow, TimeWindow


class WindowedKTable(KTable):
    """The result of a fold per key and window; its keys are :class:`Windowed`.

    A window leaves the table's store when it is closed for good, at the end of the store's retention; that
    is no change of the table. ``spec`` describes the store: its key serde is that of the key alone.

    :param graph: what is being built.
    :param node: the node whose updates the table's are.
    :param spec: its store.
    :param window: what it was folded by.
    :param suppressed: whether updates are held back until they are final.
    """

    def __init__(
        self,
        graph: StreamGraph,
        node: str,
        spec: WindowStoreSpec | SessionStoreSpec,
        window: TimeWindow | SessionWindow,
        *,
        suppressed: bool = False,
    ) -> None:
        super().__init__(graph, node, spec)
        self._window_spec = spec
        self._window = window
        self._suppressed = self if suppressed else None

    @property
    def window(self) -> TimeWindow | SessionWindow:
        """What the table was folded by."""
        return self._window

    def to_stream(self) -> KStream:
        """Return the stream of the table's changes: (``Windowed``, newest value); (``Windowed``, None) for
        a window that was deleted, and for a session that grew or was merged and now has other bounds.

        Of a suppressed table, these are the final values. The serde of the windowed keys is known, so the
        stream can be written as it is, every window of a key into the key's own partition, as Kafka Streams
        does; to group or join it repartitions it.
        """
        node = self._graph.operator("KTABLE-TOSTREAM", PassThrough(type="to_stream"), self._node)
        serdes = Serdes(key=self._windowed_keys(), value=self._spec.value_serde)
        return KStream(self._graph, node, serdes, key_changed=True, table_values=True)

    def suppress(self) -> WindowedKTable:
        """Hold each window back until it is closed, then emit its final value, once.

        A tumbling or hopping window is closed when stream time has reached its end plus the grace; a session
        when stream time has passed its last record by more than gap and grace. What the end of a run does
        with the windows still open is the window's ``at_run_end``: with ``hold`` nothing, with ``flush``
        their values are emitted too if they changed since they were last emitted. A session that was emitted
        so and then grows is emitted with None, under its old bounds.

        :raises TopologyError: the table's store has no changelog, or keeps windows longer than they are open.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> visits = builder.stream("clicks").group_by_key().windowed_by(SessionWindow(gap_ms=1_800_000))
        >>> visits.count().suppress().to_stream().send_to("clicks-per-visit")
        """
        if self._suppressed is None:
            self._suppressed = self._suppress()
        return self._suppressed

    def _suppress(self) -> WindowedKTable:
        spec = self._window_spec
        self._check_suppressible()
        marks = None
        if self._window.at_run_end == "flush":
            marks = StoreSpec(
                name=f"{spec.name}-flushed",
                key_serde=self._windowed_keys(),
                value_serde=builtin_serdes.int64(),
                changelog_configs=spec.changelog_configs,
            )
        operator = Suppress(store=spec, windowed_keys=self._windowed_keys(), marks=marks)
        node = self._graph.operator("KTABLE-SUPPRESS", operator, self._node, (spec.name,))
        if marks is not None:
            self._graph.add_table_store(marks, node)
        return WindowedKTable(self._graph, node, spec, self._window, suppressed=True)

    def _check_suppressible(self) -> None:
        spec = self._window_spec
        if not spec.logged:
            raise TopologyError(
                f"suppress at {call_site()} needs the changelog of the store {spec.name!r}: windows that are "
                "open when a run ends would be lost",
                fix="leave out logged=False",
            )
        window = self._window
        span_ms = window.gap_ms if isinstance(window, SessionWindow) else window.size_ms
        if spec.retention_ms > span_ms + window.grace_ms:
            raise TopologyError(
                f"suppress at {call_site()} hands over windows as they leave the store {spec.name!r}, which "
                f"keeps them for {spec.retention_ms} ms, longer than the {span_ms + window.grace_ms} ms they "
                "are open",
                fix="pass a plain StoreSpec, which keeps windows as long as they are open",
            )

    def _windowed_keys(self) -> Serde:
        if isinstance(self._window, SessionWindow):
            return builtin_serdes.session_windowed(self._spec.key_serde)
        return builtin_serdes.time_windowed(self._spec.key_serde, self._window.size_ms)
