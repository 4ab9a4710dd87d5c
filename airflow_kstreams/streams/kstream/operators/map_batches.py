"""Hands records to a vectorised function, many at a time, as Arrow record batches.

Rule: records are kept in the order in which they come. A batch ends when it holds ``batch_size`` of them and
at every commit point. The function takes the whole batch; the rows of its answer are forwarded one by one, in
order.

Invariant: no record is kept past a commit point. Since commit points are counted in records here, as with
tables (the node registers for them), batches are the same whatever the fetch sizes, delays and crashes.

Crash argument: a crash loses the kept records together with the uncommitted offsets of the records that made
them. The attempt that resumes reads them again from a commit point, where no record was kept, and makes the
same batches.

Directly below a source of bytes or text, records that come by columns are taken many at once, as columns that
never were Python objects (docs/internals/columns.md); batches are the same.

An error of the function belongs to a batch, not to a record. It is raised as ``RecordError``, which no error
policy skips: to skip would lose a whole batch and count one record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from airflow_kstreams.streams.errors import ConfigError, KStreamsError, RecordError, TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.graph.nodes import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, LoopCode, NodeContext, TakeRecords
from airflow_kstreams.streams.hints.function_checks import CallSite, call_site
from airflow_kstreams.streams.hints.hidden_values import UnfitTypeError, shown_text
from airflow_kstreams.streams.kstream.operators.arrow_columns import ArrowColumns
from airflow_kstreams.streams.ports import BytesColumn, ColumnsOf, Record
from airflow_kstreams.streams.records.dead_letter_format import text_of
from airflow_kstreams.streams.records.user_traceback import failing_place, program_text, user_traceback

if TYPE_CHECKING:
    import pyarrow as pa

    BatchSchema: TypeAlias = pa.Schema

#: Takes and returns a batch, see :meth:`KStream.map_batches`.
BatchFunction = Callable[["pa.RecordBatch"], "pa.RecordBatch"]

#: The columns of a batch.
COLUMNS = ("key", "value", "timestamp_ms")
#: Records that lie in a row, below which they are not taken at once: to begin a column costs time, too.
_FEW = 64
#: Its further columns where they are asked for: the place of each record in the log.
PLACE_COLUMNS = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class MapBatches:
    """Replaces batches of records by a function's results.

    :param function: the user's function.
    :param batch_size: most records in a batch.
    :param schema: Arrow types of the function's input; None infers them from each batch.
    :param site: the user's file and line, for messages.
    :param with_offsets: True if a batch has the places of its records, too.
    """

    function: BatchFunction
    batch_size: int
    schema: BatchSchema | None
    site: CallSite
    with_offsets: bool = False

    type: ClassVar[str] = "map_batches"
    traits: ClassVar[OperatorTraits] = OperatorTraits()

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task.

        :raises ConfigError: pyarrow is not installed.
        """
        batch = OpenBatch(self, context, children)
        context.on_flush(batch.emit)
        return context.written(batch.write, forward, children, taking=batch.taking)


def columns_in(operator: MapBatches) -> tuple[str, ...]:
    """Return the names of the columns of an operator's batches."""
    return (*COLUMNS, *PLACE_COLUMNS) if operator.with_offsets else COLUMNS


class UnfitRowsError(ValueError):
    """A function returned another number of rows than it was given, without key and timestamp for each."""

    own_words = True  # the text holds no data of a user's


class OpenBatch:
    """The records that one task's node keeps until its batch ends.

    :param operator: the operator.
    :param context: the services of the node.
    :param children: the children of the node.
    :raises ConfigError: pyarrow is not installed.
    """

    def __init__(self, operator: MapBatches, context: NodeContext, children: Mapping[str, Forward]) -> None:
        try:
            import pyarrow as pa
        except ImportError:
            raise ConfigError(
                f"map_batches at {operator.site} needs pyarrow, which is not installed here",
                fix="pip install 'airflow-kstreams[spark]' wherever tasks run and topologies are tested",
            ) from None
        self._pa = pa
        self._columns = ArrowColumns(pa)
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.timestamps_ms: list[int] = []
        #: Columns of records that were taken at once, in place of the lists: parts of keys, values and
        #: timestamps, and the number of their rows. The lists are empty meanwhile.
        self._parts: list[tuple[pa.Array, ...]] = []
        self._in_parts = 0
        #: The consumed record of each, None without one; empty unless their places are asked for.
        self.records: list[Record | None] = []
        #: Types of columns that are the same in every batch.
        self._types = dict.fromkeys(("timestamp_ms", "partition", "offset"), pa.int64()) | {
            "topic": pa.string()
        }
        #: The consumed record with which the batch began; None if it began at a commit point, by a timer or
        #: at the start.
        self.first: Record | None = None
        self._operator = operator
        self._forward_rows = _row_forwarding(context, children)
        self._record_context = context.record_context
        self._task_id = context.task_id
        self._node = context.node

    def write(self, code: LoopCode, key: str, value: str) -> None:
        """Write the lines that take a record in, and end the batch when it is full."""
        keys = code.name(self.keys, "keys")
        with code.block(f"if not {keys}"):
            code.line(f"{code.name(self, 'batch')}.first = {code.record}")
        held = [(self.keys, key), (self.values, value), (self.timestamps_ms, code.timestamp_ms)]
        if self._operator.with_offsets:
            held.append((self.records, code.record))
        for column, given in held:
            code.line(f"{code.name(column.append, 'append')}({given})")
        with code.block(f"if len({keys}) >= {self._operator.batch_size}"):
            code.call_apart(f"{code.name(self.emit, 'emit')}()")

    def taking(self, key_is_text: bool, value_is_text: bool) -> TakeRecords | None:
        """Return the function that takes records at once, as columns that never were Python objects; None if
        the batch needs more of them, or other types.
        """
        types = [
            self._pa.string() if is_text else self._pa.binary() for is_text in (key_is_text, value_is_text)
        ]
        schema = self._operator.schema
        fits = schema is None or all(
            schema.field(name).type.equals(kind) for name, kind in zip(COLUMNS, types, strict=False)
        )
        if self._operator.with_offsets or not fits:
            return None

        def take(records: Sequence[Record], timestamps_ms: Sequence[int], columns_of: ColumnsOf) -> bool:
            if self.keys or len(records) < _FEW:
                return self._leave_to_lines()
            try:
                part = [
                    self._bytes_column(kind, column)
                    for kind, column in zip(types, columns_of(records), strict=True)
                ]
            except (self._pa.ArrowInvalid, OverflowError, TypeError):
                # Others, or one that is no text: it fails in its turn, when its line decodes it.
                return self._leave_to_lines()
            part.append(self._columns.column(timestamps_ms, self._pa.int64()))
            self._take_part(records, part)
            return True

        return take

    def _bytes_column(self, kind: pa.DataType, column: BytesColumn) -> pa.Array:
        bitmap, nulls, *others = column
        buffers = [None if each is None else self._pa.py_buffer(each) for each in (bitmap, *others)]
        made = self._pa.Array.from_buffers(kind, len(others[0]) // 4 - 1, buffers, nulls)
        if kind.equals(self._pa.string()):
            made.validate(full=True)
        return made

    def _take_part(self, records: Sequence[Record], part: Sequence[pa.Array]) -> None:
        """Take columns in, and end each batch that becomes full."""
        batch_size, start = self._operator.batch_size, 0
        while start < len(records):
            if not self._in_parts:
                self.first = records[start]
            rows = min(batch_size - self._in_parts, len(records) - start)
            self._parts.append(tuple(column.slice(start, rows) for column in part))
            self._in_parts += rows
            start += rows
            if self._in_parts == batch_size:
                self.emit()

    def _leave_to_lines(self) -> bool:
        """Make lists of what was taken at once, for the lines to go on; return False."""
        for keys, values, timestamps_ms in self._parts:
            self.keys += keys.to_pylist()
            self.values += values.to_pylist()
            self.timestamps_ms += timestamps_ms.to_pylist()
        self._parts.clear()
        self._in_parts = 0
        return False

    def _end(self) -> Sequence[list[Any] | pa.Array]:
        """Return the columns of the batch, and begin another one."""
        if self._parts:
            try:
                columns = [self._pa.concat_arrays(parts) for parts in zip(*self._parts, strict=True)]
            except self._pa.ArrowInvalid:  # too many bytes for one column
                self._leave_to_lines()
            else:
                self._parts.clear()
                self._in_parts = 0
                return columns
        lists = (self.keys, self.values, self.timestamps_ms, self.records)
        keys, values, timestamps_ms, records = map(_ended, lists)
        return keys, values, timestamps_ms, *_places(records)

    def emit(self) -> None:
        """End the batch and forward the function's results; they belong to no record and have no headers.

        :raises RecordError: the function failed, or returned no batch of the expected columns.
        """
        if not self.keys and not self._parts:
            return
        columns = self._end()
        record_context = self._record_context
        before = (record_context.record, record_context.timestamp_ms, record_context.replaced_headers)
        record_context.record = record_context.replaced_headers = None
        try:
            results = [*self._results(columns)]
        except KStreamsError:
            raise
        except Exception as error:
            raise self._failure(error, len(columns[0])) from error
        self._forward_rows(*results)
        # The record may still have to visit other children of this node's parent.
        record_context.record, record_context.timestamp_ms, record_context.replaced_headers = before

    def _results(self, columns: Sequence[list[Any] | pa.Array]) -> Iterator[list[Any]]:
        """Return keys, values and timestamps of the function's results.

        :param columns: the columns of the batch, in the order of their names.
        """
        returned = self._operator.function(self._batch(columns))
        self._check(returned, rows=len(columns[0]))
        given = returned.schema.names
        for name, kept in zip(COLUMNS, columns, strict=False):
            column = returned.column(name) if name in given else kept
            yield column if isinstance(column, list) else column.to_pylist()

    def _batch(self, columns: Sequence[list[Any] | pa.Array]) -> pa.RecordBatch:
        schema, names = self._operator.schema, columns_in(self._operator)
        by_name = {}
        for name, objects in zip(names, columns, strict=True):
            wanted = self._types.get(name) if schema is None else schema.field(name).type
            if not isinstance(objects, list):
                # As of objects: of nulls alone, no type is known.
                untyped = wanted is None and objects.null_count == len(objects)
                by_name[name] = self._pa.nulls(len(objects)) if untyped else objects
                continue
            try:
                by_name[name] = self._columns.column(objects, wanted)
            except (self._pa.ArrowException, OverflowError, TypeError) as error:
                raise TypeError(_mixed(name, objects, wanted, error)) from error
        if schema is None:
            return self._pa.RecordBatch.from_arrays([*by_name.values()], names=list(names))
        return self._pa.RecordBatch.from_arrays([by_name[name] for name in schema.names], schema=schema)

    def _check(self, returned: Any, *, rows: int) -> None:
        """Refuse an answer that cannot be forwarded.

        :param returned: the function's answer.
        :param rows: number of rows that the function was given.
        :raises TypeError: it is no record batch, or its timestamps are no whole numbers, or null.
        :raises ValueError: a column is missing or not known.
        """
        if not isinstance(returned, self._pa.RecordBatch):
            raise TypeError(
                f"the function returned {type(returned).__name__}, expected a pyarrow.RecordBatch"
            )
        names = returned.schema.names
        unknown = sorted(set(names) - set(columns_in(self._operator)))
        if unknown or len(set(names)) != len(names) or "value" not in names:
            raise ValueError(
                f"the function returned the columns {', '.join(names) or 'none'}; expected value, and key "
                "and timestamp_ms if they change"
            )
        missing = " and ".join(name for name in COLUMNS if name not in names)
        if returned.num_rows != rows and missing:
            raise UnfitRowsError(
                f"the function returned {counted(returned.num_rows, 'row')} for {counted(rows, 'record')} "
                f"without a column {missing}; with another number of rows, every row needs its own"
            )
        if "timestamp_ms" in names:
            times = returned.column("timestamp_ms")
            if not self._pa.types.is_integer(times.type) or times.null_count:
                raise UnfitTypeError(
                    f"the function returned a column timestamp_ms of {times.type} with {times.null_count} "
                    "nulls, expected whole numbers, epoch milliseconds, without nulls"
                )

    def _failure(self, error: Exception, rows: int) -> RecordError:
        first = self.first
        topic, partition, offset = "", -1, -1
        if first is not None:
            topic, partition, offset = first.topic(), first.partition(), first.offset()
        since = f" that began with {topic}-{partition}@{offset}" if first is not None else ""
        text = " ".join(text_of(error).split())
        text = shown_text(error, text, own=program_text(error))
        place = failing_place(error)
        return RecordError(
            f"task {self._task_id}: map_batches failed for a batch of {counted(rows, 'record')}{since} at "
            f"node {self._node!r} (map batches at {self._operator.site.short})"
            f"{f', in {place}' if place is not None else ''}: {type(error).__name__}: {text}",
            trace=user_traceback(error, lambda _: str(self._operator.site), node=self._node),
            fix="mend the function at that node, then retry the run: its slice is kept and nothing of it was "
            "lost",
            topic=topic,
            partition=partition,
            offset=offset,
            node=self._node,
        )


def _places(records: Sequence[Record | None]) -> Iterator[list[Any]]:
    """Return the columns of places of records; none without records."""
    if records:
        for read in map(methodcaller, PLACE_COLUMNS):
            yield [None if record is None else read(record) for record in records]


def _ended(held: list[Any]) -> list[Any]:
    """Return the objects of a list that is then empty."""
    objects = held[:]
    held.clear()
    return objects


def _row_forwarding(
    context: NodeContext, children: Mapping[str, Forward]
) -> Callable[[list[Any], list[Any], list[int]], None]:
    """Make the function that forwards rows, given their keys, values and timestamps."""
    code = context.flush_code(children, timestamp_ms="row_ms")
    with (
        code.block("def forward_rows(keys, values, timestamps_ms, _node=_node_of_line)"),
        code.counted(),
        code.block("for key, value, row_ms in zip(keys, values, timestamps_ms, strict=True)"),
    ):
        code.place(for_closures=True)
        code.forward("key", "value")
    forward_rows: Callable[[list[Any], list[Any], list[int]], None] = code.function("forward_rows")
    return forward_rows


def map_batches_operator(
    function: BatchFunction, batch_size: int, schema: Any, *, with_offsets: bool
) -> MapBatches:
    """Check the user's arguments and return the operator.

    :raises TopologyError: the size is not positive, or the schema has other columns.
    """
    site = call_site()
    if not isinstance(batch_size, int) or batch_size < 1:
        raise TopologyError(
            f"map_batches at {site} is given batch_size={batch_size!r}", fix="give 1 or more records"
        )
    operator = MapBatches(
        function=function, batch_size=batch_size, schema=schema, site=site, with_offsets=with_offsets
    )
    if schema is not None and not _fits_columns(schema, columns_in(operator)):
        places = ', ("topic", pa.string()), ("partition", pa.int64()), ("offset", pa.int64())'
        raise TopologyError(
            f"map_batches at {site} is given a schema that is not of the columns "
            f"{', '.join(columns_in(operator))}, with timestamp_ms int64",
            fix=f'write pa.schema([("key", ...), ("value", ...), ("timestamp_ms", pa.int64())'
            f"{places if with_offsets else ''}])",
        )
    return operator


def _fits_columns(schema: Any, columns: Sequence[str]) -> bool:
    """Return True if an object is a schema of pyarrow's with these columns, without importing pyarrow."""
    if type(schema).__name__ != "Schema" or sorted(schema.names) != sorted(columns):
        return False
    return str(schema.field("timestamp_ms").type) == "int64"


def _mixed(name: str, objects: Sequence[Any], wanted: Any, error: Exception) -> str:
    """Name the Python types that a column holds; the library's own text would show a value."""
    kinds = ", ".join(sorted({type(found).__name__ for found in objects}))
    expected = "one Arrow type" if wanted is None else str(wanted)
    detail = str(error).partition(" with type ")[2]
    detail = f" (found {detail})" if detail else ""
    return (
        f"the {name}s, of type {kinds}, do not fit into {expected}{detail}; make them alike before, e.g. by "
        "map_values, or give map_batches a schema"
    )
