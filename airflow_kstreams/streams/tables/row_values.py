"""Makes rows of records: checks each value against its column, and gives it the form that columns have.

Rule: a value fits if and only if the table gives it back equal. What is lost otherwise is refused: integers
over 64 bits, digits of decimals, nanoseconds, integers that a float would change, texts that no UTF-8 has.
So nothing that passes fails later, when files are written. ``float`` takes an ``int`` that a double holds;
``bool`` is no ``int`` here. An object of a subclass counts as its base (a ``pendulum`` time, an ``IntEnum``),
and its value is given as the plain type.

One function is compiled for a table. It has a line for each column that looks whether the value needs a
closer look; most do not, and a row of five plain columns takes about 0.4 µs. The closer look,
:func:`_checker`, decides. Of a user's texts only the names of attributes become code, if they are
    identifiers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from enum import Enum
from keyword import iskeyword
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec

from airflow_kstreams.streams.printable import printable
from airflow_kstreams.streams.table_plan import Column, DecimalType, ListType, MapType, StructType
from airflow_kstreams.streams.tables.partition_fields import PartitionField
from airflow_kstreams.streams.tables.row_shapes import RowShape, ValueShape
from airflow_kstreams.streams.tables.table_rows import DeletedRow, RowOf, UnfitRowError

#: Gives a value the form that its column has.
Check = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MISSING = object()
_LEAST, _MOST = -(2**63), 2**63 - 1
#: Signs of a map's key that an error shows.
_KEY_SIGNS = 40
_CENT = Context(prec=100)
_INDENT = "    "


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """How rows of a table are made of records.

    :param row: shape of the records' values.
    :param key_column: column for keys; empty for none.
    :param key: shape of keys.
    :param timestamp_column: column for timestamps; empty for none.
    :param provenance: columns that say where a row comes from: topic, partition, offset and run.
    :param upsert: True if a None in place of a value deletes the row of its key.
    :param written: ``date(at)`` and ``hour(at)``, which are columns of their own.
    :param partitions: columns that Delta is partitioned by, whose texts must not be empty.
    """

    row: RowShape
    key_column: str = ""
    key: ValueShape | None = None
    timestamp_column: str = ""
    provenance: tuple[Column, ...] = ()
    upsert: bool = False
    written: tuple[PartitionField, ...] = ()
    partitions: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the table, complete."""
        columns = (
            [] if self.key is None else [Column(self.key_column, self.key.column_type, self.key.required)]
        )
        columns += self.row.columns
        if self.timestamp_column:
            columns.append(Column(self.timestamp_column, "instant"))
        columns += self.provenance
        required = {column.name: column.required for column in columns}
        columns += [
            Column(each.name, "date" if each.transform == "date" else "instant", required[each.column])
            for each in self.written
        ]
        return tuple(columns)


def compiled(plan: RowPlan, *, run_id: str = "") -> RowOf:
    """Return the function ``(key, value, context)`` that makes rows, ``context`` being the task's record
    context.

    It gives a :class:`DeletedRow` for a None, if the plan is one for upserts. It raises UnfitRowError.

    :param plan: columns of the rows, and what makes their values.
    :param run_id: the run.
    """
    return _RowCode(plan, run_id).function()


class _RowCode:
    """Writes the function of a plan, line by line.

    :param plan: columns of the rows, and what makes their values.
    :param run_id: the run.
    """

    def __init__(self, plan: RowPlan, run_id: str) -> None:
        self._plan = plan
        self._lines: list[str] = []
        #: Column -> variable of its value.
        self._variables: dict[str, str] = {}
        self._names: dict[str, Any] = {
            **_NAMES,
            "Row": plan.row.type,
            "value_given": _value_given(plan.row),
            "fetch": _fetching(plan.row),
            "run_id": run_id,
        }

    def function(self) -> RowOf:
        """Return the function."""
        plan = self._plan
        self._line("def row(key, value, context):", 0)
        if plan.key is not None:
            self._take(plan.key_column, "key", plan.key)
        if plan.upsert:
            self._line("if value is None:")
            self._line(f"return DeletedRow({self._variables[plan.key_column]})", 2)
        self._line(f"if type(value) is not {'dict' if plan.row.type is None else 'Row'}:")
        self._line("value = value_given(value)", 2)
        self._fetch()
        for number, field in enumerate(plan.row.fields):
            self._take(field.name, f"f{number}", field.value)
        self._take_context()
        for each in plan.written:
            self._write_field(each)
        self._line(f"return ({', '.join(self._variables.values())},)")
        names = self._names
        exec("\n".join(self._lines), names)  # noqa: S102 - made of this package's own words only
        function: RowOf = names["row"]
        return function

    def _line(self, text: str, depth: int = 1) -> None:
        self._lines.append(f"{_INDENT * depth}{text}")

    def _fetch(self) -> None:
        """Write the lines that give each field a variable; an attribute costs half of an ``attrgetter``."""
        names = [field.attribute for field in self._plan.row.fields]
        if self._plan.row.type is not None and all(map(_is_identifier, names)):
            for number, name in enumerate(names):
                self._line(f"f{number} = value.{name}")
            return
        self._line(f"{' '.join(f'f{number},' for number in range(len(names)))} = fetch(value)")

    def _take(self, column: str, variable: str, shape: ValueShape) -> None:
        """Write the lines for a value."""
        self._variables[column] = variable
        check = f"check{len(self._variables)}"
        self._names[check] = _named(
            column, _of_partition(_checker(shape), column, shape, self._plan.partitions)
        )
        doubt = _doubt(variable, shape)
        if column in self._plan.partitions and shape.column_type == "text":
            doubt = ""
        self._line(f"if {doubt}:" if doubt else "if True:")
        self._line(f"{variable} = {check}({variable})", 2)

    def _take_context(self) -> None:
        """Write the lines for what stands in the record's context."""
        plan = self._plan
        if plan.timestamp_column:
            self._names["time_of"] = _named(plan.timestamp_column, _time_of)
            self._variables[plan.timestamp_column] = "at"
            self._line("at = time_of(context.timestamp_ms)")
        if plan.provenance:
            self._line("record = context.record")
            self._line("if record is None:")
            self._line("topic = partition = offset = None", 2)
            self._line("else:")
            self._line("topic, partition, offset = record.topic(), record.partition(), record.offset()", 2)
            names = (column.name for column in plan.provenance)
            self._variables |= dict(zip(names, ("topic", "partition", "offset", "run_id"), strict=True))

    def _write_field(self, field: PartitionField) -> None:
        """Write the line for a column that is made of another one."""
        variable, of = f"w{len(self._variables)}", self._variables[field.column]
        made = (
            f"{of}.date()"
            if field.transform == "date"
            else f"{of}.replace(minute=0, second=0, microsecond=0)"
        )
        self._line(f"{variable} = None if {of} is None else {made}")
        self._variables[field.name] = variable


def _is_identifier(name: str) -> bool:
    return name.isidentifier() and not iskeyword(name)


def _doubt(variable: str, shape: ValueShape) -> str:
    """Return the condition under which a value needs a closer look; empty if it always does."""
    if shape.choices is not None or shape.written_as_text or not isinstance(shape.type, str):
        return ""
    condition = _DOUBTS.get(shape.type, "").format(v=variable)
    if not condition or shape.required:
        return condition
    return f"{variable} is not None and ({condition})"


#: Type of a column -> condition under which a value of it needs a closer look.
_DOUBTS: Mapping[str, str] = {
    "text": "type({v}) is not str or not {v}.isascii()",
    "long": f"type({{v}}) is not int or not {_LEAST} <= {{v}} <= {_MOST}",
    "double": "type({v}) is not float",
    "boolean": "{v} is not True and {v} is not False",
    "binary": "type({v}) is not bytes",
    "date": "type({v}) is not date",
    "instant": "type({v}) is not datetime or {v}.tzinfo is not UTC",
    "uuid": "type({v}) is not UUID",
}
_NAMES = {"date": date, "datetime": datetime, "UTC": UTC, "UUID": UUID, "DeletedRow": DeletedRow}


def _named(column: str, check: Check) -> Check:
    """Return a check whose errors name the column."""

    def named(value: Any) -> Any:
        try:
            return check(value)
        except UnfitRowError as error:
            raise error.within(column) from None

    return named


def _of_partition(check: Check, column: str, shape: ValueShape, partitions: tuple[str, ...]) -> Check:
    """Refuse empty texts in partitions of Delta: they are read as None."""
    if column not in partitions or shape.column_type != "text":
        return check

    def checked(value: Any) -> Any:
        text = check(value)
        if text == "":
            raise UnfitRowError(
                "an empty text in a column that a Delta table is partitioned by is read as None"
            )
        return text

    return checked


def _value_given(row: RowShape) -> Check:
    """Return the function that takes what is not exactly of a row's class, and refuses what is not of it."""
    kind: type = dict if row.type is None else row.type

    def given(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if value is None:
            raise UnfitRowError(f"None, and a row is made of {row.name}: filter such records out")
        raise _wrong(value, row.name)

    return given


def _fetching(row: RowShape) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that gives the values of an object's fields, in their order."""
    if row.type is None:
        return _fetching_of_dicts(row)
    names = [field.attribute for field in row.fields]
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda value: (get(value),)


def _fetching_of_dicts(row: RowShape) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    names = [field.attribute for field in row.fields]
    known = frozenset(names)
    needed = frozenset(field.attribute for field in row.fields if field.value.required)

    def fetch(value: Mapping[str, Any]) -> tuple[Any, ...]:
        if not known.issuperset(value):
            raise UnfitRowError("the dict has a key that is no field of the schema")
        for name in needed:
            if name not in value:
                raise UnfitRowError("the dict does not have it, and it is required", name)
        return tuple(map(value.get, names))

    return fetch


def _time_of(timestamp_ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        raise UnfitRowError("the record's timestamp lies outside of the years 1 to 9999") from None


# The closer look


def _checker(shape: ValueShape) -> Check:
    """Return the check of a value."""
    check = _check_of_type(shape)
    if shape.required:
        return lambda value: check(value) if value is not None and value is not msgspec.UNSET else _missing()
    return lambda value: None if value is None or value is msgspec.UNSET else check(value)


def _check_of_type(shape: ValueShape) -> Check:
    """Return the check of a value that is not None."""
    if shape.choices is not None:
        return _choice(shape.choices, shape.enum)
    match shape.type:
        case DecimalType():
            return _decimal(shape.type)
        case ListType() if shape.item is not None:
            return _list(_checker(shape.item))
        case MapType() if shape.item is not None:
            return _map(_checker(shape.item))
        case StructType() if shape.row is not None:
            return _struct(shape.row)
        case _:
            check = _PLAIN[str(shape.type)]
            return (lambda value: str(check(value))) if shape.written_as_text else check


def _missing() -> Any:
    raise UnfitRowError("None in a required column; make the field optional: type | None")


def _wrong(value: Any, expected: str) -> UnfitRowError:
    return UnfitRowError(f"a value of type {type(value).__qualname__}, expected {expected}")


def _text(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, Enum):
        raise _wrong(value, "str")
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnfitRowError(
            f"half a surrogate pair at sign {error.start}, which UTF-8 does not have"
        ) from None
    return text


def _long(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(value, "int")
    number = int(value)
    if not _LEAST <= number <= _MOST:
        raise UnfitRowError(f"an integer of {number.bit_length() + 1} bits, and a column has 64")
    return number


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, "float")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if isinstance(value, int) and number != value:
        raise UnfitRowError("an integer that a float does not hold exactly")
    return number


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, "bool")
    return value


def _binary(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise _wrong(value, "bytes")
    return bytes(value)


def _date(value: Any) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _wrong(value, "date")
    return date(value.year, value.month, value.day)


def _instant(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise _wrong(value, "datetime")
    if value.utcoffset() is None:
        raise UnfitRowError("a datetime without a time zone, which is no instant: give it tzinfo")
    try:
        there = value.astimezone(UTC)
    except OverflowError:
        raise UnfitRowError("a datetime outside of the years 1 to 9999 in UTC") from None
    instant = datetime(*there.timetuple()[:6], there.microsecond, tzinfo=UTC)
    if type(value) is not datetime and instant != value:
        raise UnfitRowError("a datetime with nanoseconds, and a column has microseconds")
    return instant


def _uuid(value: Any) -> UUID:
    if not isinstance(value, UUID):
        raise _wrong(value, "UUID")
    return value


_PLAIN: Mapping[str, Check] = {
    "text": _text,
    "long": _long,
    "double": _double,
    "boolean": _boolean,
    "binary": _binary,
    "date": _date,
    "instant": _instant,
    "uuid": _uuid,
}


def _choice(choices: frozenset[str], kind: type[Enum] | None) -> Check:
    expected = "one of its texts" if kind is None else kind.__name__

    def check(value: Any) -> str:
        if kind is not None and isinstance(value, kind):
            return str(value.value)
        if not isinstance(value, str) or isinstance(value, Enum):
            raise _wrong(value, expected)
        if value not in choices:
            raise UnfitRowError(f"a text that is not among the {len(choices)} that its type has")
        return str.__str__(value)

    return check


def _decimal(kind: DecimalType) -> Check:
    cent = Decimal(1).scaleb(-kind.scale)

    def check(value: Any) -> Decimal:
        if not isinstance(value, Decimal):
            raise _wrong(value, "Decimal")
        if not value.is_finite():
            raise UnfitRowError(f"no number, or an infinite one, and a column of {kind} has neither")
        if value.adjusted() >= kind.precision - kind.scale and value:
            raise UnfitRowError(
                f"{value.adjusted() + 1} digits ahead of the point, and {kind} has "
                f"{kind.precision - kind.scale}"
            )
        # At most 38 digits are left of it now, whatever there is behind the point.
        number = value.quantize(cent, context=_CENT) if value else Decimal((0, (0,), -kind.scale))
        if number != value:
            raise UnfitRowError(f"digits behind the point that {kind} would cut off")
        return number

    return check


def _list(item: Check) -> Check:
    def check(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong(value, "list")
        try:
            return list(map(item, value))
        except UnfitRowError:
            for place, each in enumerate(value):
                _at(f"[{place}]", item, each)
            raise

    return check


def _map(item: Check) -> Check:
    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(value, "dict")
        keys = [key if type(key) is str and key.isascii() else _key(key) for key in value]
        try:
            return dict(zip(keys, map(item, value.values()), strict=True))
        except UnfitRowError:
            for key, each in value.items():
                _at(f"[{printable(repr(str(key)[:_KEY_SIGNS]))}]", item, each)
            raise

    return check


def _key(key: Any) -> str:
    try:
        return _text(key)
    except UnfitRowError as error:
        raise UnfitRowError(f"a key of the dict: {error.why}") from None


def _at(place: str, check: Check, value: Any) -> None:
    try:
        check(value)
    except UnfitRowError as error:
        raise error.within(place) from None


def _struct(row: RowShape) -> Check:
    given, fetch = _value_given(row), _fetching(row)
    checks = [_named(field.name, _checker(field.value)) for field in row.fields]

    def check(value: Any) -> tuple[Any, ...]:
        return tuple([checked(each) for checked, each in zip(checks, fetch(given(value)), strict=True)])

    return check
