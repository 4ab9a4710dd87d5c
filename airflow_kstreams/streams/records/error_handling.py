"""Decides about a record that cannot be decoded or processed.

Policies (``deserialization.exception.handler``, ``processing.exception.handler``, and for results that their
topic does not take ``production.exception.handler``): ``fail`` ends the task and names record and node;
``skip`` logs and counts; ``dead-letter`` sends the consumed record, its original bytes and headers, to the
dead-letter topic, with headers that describe the error (``dead_letter_format``). It is sent by the task's own
producer, so it commits or vanishes with everything else the task did.

Processing errors are caught at the node where they happen, innermost first: the results of the record's other
paths through the topology stay, as in Kafka Streams. Errors of the engine itself (``KStreamsError``: a fenced
producer, a broken store) are never handled here; they end the attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple

from airflow_kstreams.streams.errors import KStreamsError, RecordError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.record_counts import Counters
from airflow_kstreams.streams.graph.calls import calls_again_after
from airflow_kstreams.streams.graph.nodes import (
    Node,
    SinkNode,
    SourceNode,
    options_of,
    purpose_of,
    traits_of,
)
from airflow_kstreams.streams.graph.services import Encoding, Forward
from airflow_kstreams.streams.hints.hidden_values import shown_text
from airflow_kstreams.streams.naming.commands import FailingStep, drop_slice_command, leaving_out
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.records.dead_letter_format import DeadLetters, RefusedResultError, text_of
from airflow_kstreams.streams.records.key_check import MovedKeyError
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.records.timestamp_reading import (
    TimestampAheadError,
    dating_failed,
    shown_extractor,
)
from airflow_kstreams.streams.records.user_traceback import (
    ends_at,
    failed_encoding,
    failing_node,
    failing_place,
    program_text,
    user_traceback,
)
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.tables.table_rows import UnfitRowError
from airflow_kstreams.streams.windows import Windowed

#: Python's message for forward(record), as it is called in Java.
_JAVAS_FORWARD = "ProcessorContext.forward() missing 1 required positional argument: 'value'"

log = package_log(__name__)


class _Explained(NamedTuple):
    """The description of an error.

    :param what: the failure, with record and node.
    :param fix: the remedy.
    :param remakes: True if the remedy may change the topology, which then cannot go on with the slice.
    :param step: the step whose handler can take such records; None if none can.
    """

    what: str
    fix: str
    remakes: bool
    step: FailingStep | None = None


def _unwritten(node: SinkNode, encoded: tuple[Encoding, Any] | None) -> _Explained:
    """Describe the failure of a sink.

    :param encoded: the object that it was encoding, with its description; None if it was not encoding.
    """
    if encoded is None and node.partitioner is not None:
        fix = "mend the sink's partitioner or its input"
        return _Explained(f"cannot place the result for topic {node.topic!r} of", fix, remakes=False)
    fix = "mend the sink's serdes or its input"
    if encoded is not None and node.name == f"{node.topic}-sink":  # as add_repartition calls its own
        fix = (
            f"pass {encoded[0].side}_serde= to what repartitions there (group_by, repartition, to_table, "
            "...), or mend its input"
        )
    return _Explained(
        f"cannot encode the result for topic {node.topic!r} of", fix, remakes=encoded is not None
    )


def _unprocessed(node: Node | None, error: Exception, encoding: bool) -> tuple[str, FailingStep | None]:
    """Return the remedy for the failure of a processor, and the step whose handler can take its record.

    :param encoding: whether it was encoding what it sends.
    """
    fix = "mend the function at that node"
    step: FailingStep | None = "processing"
    if encoding:
        fix = "give send() the serdes of what it is given"
    elif isinstance(error, TypeError) and _JAVAS_FORWARD in text_of(error):
        fix = "write forward(record.key, record.value), with what is to be forwarded"
    elif node is not None and _fails_by_policy(node, error):
        fix = 'give its RetryPolicy then="dead-letter", or mend the function at that node'
        step = None
    return fix, step


def _fails_by_policy(node: Node, error: Exception) -> bool:
    """Return whether the error is that of the last call of a record, which the node's policy lets fail."""
    options = options_of(node)
    policy = None if options is None else options.retry
    return policy is not None and policy.then == "fail" and calls_again_after(policy, error)


def _writes(node: Node | None) -> bool:
    """Whether a node writes to a topic or a table."""
    return isinstance(node, SinkNode) or (node is not None and traits_of(node).table is not None)


class Explaining:
    """A context in which a step of a task fails with an error that names its record and its node.

    :param errors: the task's error handlers.
    """

    def __init__(self, errors: ErrorHandling) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, RecordError):
            explained = self._errors.refused(error)
            if explained is not error:
                raise explained from error
        elif isinstance(error, Exception) and not isinstance(error, KStreamsError):
            raise self._errors.record_error(error) from error


class ErrorHandling:
    """The error handlers of one task.

    :param settings: the application's settings.
    :param task_id: the task's id, for messages.
    :param nodes: name of a node of the subtopology -> the node.
    :param context: the record being processed.
    :param letters: the sender of dead letters.
    :param counters: the task's counters.
    :param later: function that postpones a call (function, then arguments) until the current record is
        released, and returns False if the record is not held; None where every record is released at once.
    :ivar explaining: context manager for the task's steps, whose errors name record and node.
    """

    def __init__(
        self,
        settings: ApplicationSettings,
        *,
        task_id: str,
        nodes: Mapping[str, Node],
        context: TaskRecordContext,
        letters: DeadLetters,
        counters: Counters,
        later: Callable[..., bool] | None = None,
    ) -> None:
        self._later = later
        #: Real name of a topic -> its source, with serdes bound to the topic; filled while the task is bound.
        self.sources: dict[str, SourceNode] = {}
        self._deserialization = settings.deserialization_exception_handler
        self._processing = settings.processing_exception_handler
        self._production = settings.production_exception_handler
        self._application_id = settings.application_id
        self._task_id = task_id
        self._nodes = nodes
        self._context = context
        self._letters = letters
        self._counters = counters
        self.explaining = Explaining(self)

    @property
    def dead_letter_topic(self) -> str:
        """Name of the topic that dead letters go to."""
        return self._letters.topic

    def guarded(self, node: str, run: Forward) -> Forward:
        """Return a node's closure with the processing handler around it; for a sink also with the handler of
        refused results.
        """
        handle = self.handle_at(node)
        if handle is None:
            return run

        def guarded_run(key: Any, value: Any) -> None:
            try:
                run(key, value)
            except KStreamsError:
                raise
            except Exception as error:
                handle(error, failing_node(error, node))

        return guarded_run

    @property
    def handle(self) -> Callable[[Exception, str], None] | None:
        """The function that handles an error of a node, given the node's name; None if it ends the task."""
        policy = self._processing
        return None if policy == "fail" else lambda error, node: self._handle(error, node, policy)

    def handle_at(self, node: str) -> Callable[[Exception, str], None] | None:
        """Return the function that handles an error of this node, given error and node; None if it ends the
        task.
        """
        if self._production == self._processing or not _writes(self._nodes.get(node)):
            return self.handle
        return self._handle_of_sink

    def refused_result(self, error: RefusedResultError, node: str) -> None:
        """Handle a result that its topic does not take.

        :param node: name of the node that was sending it.
        """
        self._handle(error, node, self._production)

    def _handle_of_sink(self, error: Exception, node: str) -> None:
        refused = isinstance(error, (RefusedResultError, UnfitRowError))
        policy = self._production if refused else self._processing
        if policy == "fail":
            if refused:
                # No handler of a node ahead, which may skip what its function fails for, is to take it.
                raise self.record_error(error) from error
            raise error
        self._handle(error, node, policy)

    def dead_letter(self, error: Exception, node: str) -> None:
        """Send the record being processed to the dead-letter topic, whatever the policy for errors is."""
        self._handle(error, node, "dead-letter")

    def undecodable(self, error: Exception, node: str) -> None:
        """Handle the error of decoding a record, or the reason why the task must not process it.

        :param node: name of the source.
        :raises Exception: the error itself, if the policy is to fail.
        """
        unfit = isinstance(error, (TimestampAheadError, MovedKeyError))
        policy = self._processing if unfit else self._deserialization
        if policy == "fail" or isinstance(error, KStreamsError):
            raise error
        self._handle(error, node, policy)

    def refused(self, error: RecordError) -> RecordError:
        """Return the error of a result that the client refused, with the consumed record and the node that it
        comes from; any other error unchanged.
        """
        if not error.topic or error.offset >= 0 or error.node:
            return error
        node = failing_node(error, "(commit point)")
        letter = error.topic == self.dead_letter_topic
        return RecordError(
            f"task {self._task_id}: the result of {self._context.where()} at node {self._shown(node)}: "
            f"{error.cause}",
            fix=error.fix if letter else f"{error.fix}; or {leaving_out('production')}",
            topic=error.topic,
            partition=error.partition,
            offset=error.offset,
            node=node,
            contents=error.contents,
        )

    def record_error(self, error: Exception) -> RecordError:
        """Return the error that ends the task: it names the failure, the node and the record."""
        record = self._context.record
        node = failing_node(error, "(commit point)")
        explained = self._explain(error, node)
        naming = f" ({self._naming_records()})" if self._context.cached_from else ""
        dropping = ""
        if explained.remakes or naming:
            command = drop_slice_command(self._application_id)
            dropping = f"; if that makes another topology, the retry needs the slice dropped first: {command}"
        leaving = "" if explained.step is None else f", or {leaving_out(explained.step)}"
        return RecordError(
            explained.what,
            trace=user_traceback(error, self._site_of),
            fix=f"{explained.fix}{naming}{leaving}; then retry the run: its slice is kept and nothing of it "
            f"was lost{dropping}",
            topic=record.topic() if record is not None else "",
            partition=record.partition() if record is not None else -1,
            offset=record.offset() if record is not None else -1,
            node=node,
        )

    def _explain(self, error: Exception, name: str) -> _Explained:
        node = self._nodes.get(name)
        encoded, unfit = failed_encoding(error), ""
        remakes = False
        step: FailingStep | None = "processing"
        if isinstance(error, TimestampAheadError):
            what = "windows, joins or timers go by stream time, which does not follow"
            fix = "mend their producer; raise max.timestamp.ahead.ms (-1 = no bound)"
        elif isinstance(error, MovedKeyError):
            what = "another task's record came to this one,"
            taken = leaving_out("processing", skip=False)
            fix = f"{taken}; airflow-kstreams dead-letters replay brings them to their task"
            step = None
        elif isinstance(error, RefusedResultError):
            what = f"topic {error.refused.topic!r} does not take the result of"
            fix = error.refused.fix
        elif isinstance(error, UnfitRowError):
            table = traits_of(node).table if node is not None else None
            what = f"table {'' if table is None else table.name!r} does not take the row of"
            fix, remakes = "mend what makes the value, or the table's row type", True
            step = "production"
        elif isinstance(node, SourceNode) and dating_failed(error):
            extractor = node.timestamps
            by = "" if extractor is None else f"the timestamp extractor {shown_extractor(extractor)} "
            what, fix, remakes = f"{by}cannot date", "mend the extractor", True
            step = "deserialization"
        elif isinstance(node, SourceNode):
            what, fix, remakes = "cannot decode", "mend the source's serdes", True
            unfit, step = self._undecoded(name), "deserialization"
        elif isinstance(node, SinkNode):
            unwritten = _unwritten(node, encoded)
            what, fix, remakes = unwritten.what, unwritten.fix, unwritten.remakes
        else:
            what, (fix, step) = "processing failed for", _unprocessed(node, error, encoded is not None)
        if node is None or ends_at(error, name):
            step = None
        place = failing_place(error)
        text = text_of(error)
        log.debug("task %s: %s: %s", self._task_id, type(error).__name__, text)
        text = " ".join(text.split())
        kind = "" if encoded is None else type(encoded[1]).__qualname__
        text = shown_text(error, text, own=f"{program_text(error)}\n{kind}")
        where = self._context.where()
        if encoded is not None:
            unfit = f"{encoded[0].unfit(encoded[1])}: "
            if isinstance(encoded[1], Windowed):
                fix = "give windowed keys serdes.time_windowed(...) or session_windowed(...), or make others"
        return _Explained(
            f"task {self._task_id}: {what} {where} at node {self._shown(name)}"
            f"{f', in {place}' if place is not None else ''}: {unfit}{type(error).__name__}: {text}",
            fix,
            remakes,
            step,
        )

    def _naming_records(self) -> str:
        return f"with cached=False for store {self._context.cached_from!r}, errors name the record"

    def _undecoded(self, _node: str) -> str:
        """Return a text that names the side of the record that its serde cannot decode; empty if neither
        fails.
        """
        record = self._context.record
        source = None if record is None else self.sources.get(record.topic())
        if record is None or source is None or source.name != _node:
            return ""
        sides = (("key", record.key(), source.key_serde), ("value", record.value(), source.value_serde))
        for side, data, serde in sides:
            try:
                if data is not None:
                    serde.deserialize(data)
            except Exception:
                return f"the {side}, {counted(len(data or b''), 'byte')}, is not of {serde!r}: "
        return ""

    def _shown(self, name: str) -> str:
        node = self._nodes.get(name)
        return f"{name!r} ({purpose_of(node)})" if node is not None else repr(name)

    def _site_of(self, name: str) -> str:
        node = self._nodes.get(name)
        return str(node.site) if node is not None and node.site is not None else ""

    def _handle(self, error: Exception, node: str, policy: str) -> None:
        if self._later is None or not self._later(self._take, error, node, policy):
            self._take(error, node, policy)

    def _take(self, error: Exception, node: str, policy: str) -> None:
        what = self._explain(error, node).what
        record = self._context.record
        note = f"; {self._naming_records()}" if self._context.cached_from else ""
        if policy == "skip":
            log.warning(
                "%s; %s%s", what, "it is left out" if record is None else "the record is skipped", note
            )
            self._counters.left_out(node, "skipped")[0] += 1
            return
        if record is not None:
            log.warning("%s; the record goes to %s", what, self._letters.topic)
        else:
            log.warning(
                "%s; a dead letter without key and value goes to %s%s", what, self._letters.topic, note
            )
        self._counters.left_out(node, "dead-lettered")[0] += 1
        # The consumed record's own time: the context may hold an extractor's, or a table entry's.
        time_ms = self._context.timestamp_ms if record is None else record.timestamp()[1]
        failed = self._nodes.get(node)
        purpose = "" if failed is None else purpose_of(failed)
        left_out = self._letters.send(record, error, node, max(time_ms, 0), purpose)
        if left_out:
            log.warning(
                "task %s: %s is larger than %s takes: its dead letter leaves out %s",
                self._task_id,
                self._context.where(),
                self._letters.topic,
                left_out,
            )
