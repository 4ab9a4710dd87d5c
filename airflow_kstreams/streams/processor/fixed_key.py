"""Refuses results with other keys than the processed record's, so that results stay in the partition of their
key (``KStream.process_values``).

Rule: while a record is processed, the processor's results have that record's key. At any other moment it may
forward nothing, since the partition of a key of its choice is not known.
"""

from __future__ import annotations

from typing import Any

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.services import Forward, ProcessorServices
from airflow_kstreams.streams.records.kept_values import UncopyableError, kept


class FixedKey:
    """The key of the record that one processor processes.

    :param services: services of its node.
    """

    __slots__ = ("_key", "_processing", "_record_context", "_where")

    def __init__(self, services: ProcessorServices) -> None:
        self._record_context = services.record_context
        self._where = f"task {services.task_id}: processor {services.node!r}"
        self._key: Any = None
        self._processing = False

    def processing(self, run: Forward, node: str) -> Forward:
        """Return the processor's closure, which remembers the key.

        :param node: name of the processor's node.
        """

        def run_keyed(key: Any, value: Any, _node: str = node) -> None:
            # The processor may change a key in place that is no plain value.
            self._key = self._kept(key)
            self._processing = True
            try:
                run(key, value)
            finally:
                self._processing = False

        return run_keyed

    def kept_by(self, forward: Forward) -> Forward:
        """Return a function to forward that takes only the record's own key."""

        def forward_keyed(key: Any, value: Any) -> None:
            if not self._processing:
                raise TopologyError(
                    f"{self._where} forwards while it processes no record, and process_values keeps each "
                    "record's key",
                    fix="forward in process() alone, or use process(...), which may forward any key at any "
                    "moment",
                )
            own = self._key
            if key is not own and (type(key) is not type(own) or key != own):
                raise TopologyError(
                    f"{self._where} forwards another key than that of {self._place()}, and process_values "
                    "keeps keys",
                    fix="forward record.key, or use process(...): what groups or joins its results "
                    "repartitions them",
                )
            forward(key, value)

        return forward_keyed

    def _kept(self, key: Any) -> Any:
        try:
            return kept(key)
        except UncopyableError as error:
            raise TopologyError(
                f"{self._where}: {error}, and process_values compares each key with what is forwarded",
                fix="give the class a __deepcopy__, or use process(...)",
            ) from error

    def _place(self) -> str:
        record = self._record_context.record
        if record is None:
            return "what reached it"
        return f"{record.topic()}-{record.partition()}@{record.offset()}"
