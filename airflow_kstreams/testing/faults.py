"""Injects faults between the engine and Kafka, and between it and tables: every port call of a cluster, or of
a table, passes an interceptor.

The interceptor gets the name of the call (``writer.commit``), its client, and the call itself. It decides
whether the call takes effect, and which answer the caller gets: so it can crash before or after the call,
lose the answer, wait, or fail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from airflow_kstreams.streams.ports import (
    AdminPort,
    ClusterPort,
    CommittedOffset,
    Isolation,
    ReaderPort,
    TopicLimits,
    TopicSpec,
    WriterPort,
)
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.streams.tables.table_port import (
    TableFiles,
    TableLook,
    TablePort,
    TablesPort,
)

T = TypeVar("T")


class Interceptor(Protocol):
    """Intercepts port calls."""

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, or replace it.

        :param name: port and method, e.g. ``reader.poll``.
        :param client: the client that is called; the cluster for ``cluster.reader``, ``cluster.writer`` and
            ``cluster.admin``.
        :param effect: makes the call and returns its result.
        :param arguments: the call's arguments, for messages.
        """
        ...


class FaultyCluster:
    """A ``ClusterPort`` that passes the making of clients, and all their calls, to an interceptor.

    >>> from airflow_kstreams.testing import InMemoryKafka
    >>> class Counting:
    ...     names = []
    ...     def call(self, name, client, effect, arguments):
    ...         self.names.append(name)
    ...         return effect()
    >>> cluster = FaultyCluster(InMemoryKafka(), Counting())
    >>> cluster.admin().describe_topics(["flights"])
    {}
    >>> Counting.names
    ['cluster.admin', 'admin.describe_topics']

    :param cluster: the cluster that takes the calls.
    """

    def __init__(self, cluster: ClusterPort, interceptor: Interceptor) -> None:
        self._cluster = cluster
        self._interceptor = interceptor

    @property
    def crossing(self) -> str:
        """How records cross between Python and the client."""
        return self._cluster.crossing

    def reader(
        self,
        *,
        group_id: str,
        isolation: Isolation = "read_committed",
        follows: bool = False,
        small: bool = False,
    ) -> ReaderPort:
        """Make a reader; the interceptor gets this call, too.

        :param group_id: the group whose committed offsets it reads and writes.
        :param isolation: ``read_committed`` or ``read_uncommitted``.
        :param follows: whether it waits for records that nobody may have written yet.
        :param small: whether it reads little.
        """
        make = partial(
            self._cluster.reader, group_id=group_id, isolation=isolation, follows=follows, small=small
        )
        made = self._interceptor.call("cluster.reader", self._cluster, make, (group_id, isolation))
        return cast("ReaderPort", FaultyReader(made, self._interceptor))

    def writer(
        self,
        *,
        transactional_id: str | None,
        transaction_timeout_ms: int = 60_000,
        limits: Mapping[str, TopicLimits] | None = None,
        bulk: bool = False,
    ) -> WriterPort:
        """Make a writer; the interceptor gets this call, too.

        :param transactional_id: None for a writer without transactions.
        :param transaction_timeout_ms: time after which the broker aborts a transaction.
        :param limits: limits of each topic that the writer writes.
        :param bulk: whether another writer makes a failed transaction again.
        """
        make = partial(
            self._cluster.writer,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            limits=limits,
            bulk=bulk,
        )
        made = self._interceptor.call("cluster.writer", self._cluster, make, (transactional_id,))
        return cast("WriterPort", FaultyWriter(made, self._interceptor))

    def admin(self) -> AdminPort:
        """Make an admin client."""
        made = self._interceptor.call("cluster.admin", self._cluster, self._cluster.admin, ())
        return cast("AdminPort", FaultyAdmin(made, self._interceptor))


class _FaultyClient:
    """A client behind an interceptor, with the methods of its port.

    :param inner: the client that takes the calls.
    """

    def __init__(self, inner: Any, interceptor: Interceptor) -> None:
        self.inner = inner
        self._interceptor = interceptor
        self._call = interceptor.call

    def __init_subclass__(cls, *, port: type, called: str) -> None:
        for name, member in vars(port).items():
            if not name.startswith("_") and callable(member) and name not in vars(cls):
                setattr(cls, name, _intercepted(name, f"{called}.{name}"))


def _intercepted(name: str, shown: str) -> Callable[..., Any]:
    def call(self: _FaultyClient, *arguments: Any, **named: Any) -> Any:
        given = [each.inner if isinstance(each, _FaultyClient) else each for each in arguments]
        effect = partial(getattr(self.inner, name), *given, **named)
        seen = (_shown(each) for each in (*arguments, *named.values()) if not isinstance(each, _FaultyClient))
        return self._call(shown, self.inner, effect, tuple(seen))

    return call


class FaultyReader(_FaultyClient, port=ReaderPort, called="reader"):
    """A reader behind an interceptor."""


class FaultyWriter(_FaultyClient, port=WriterPort, called="writer"):
    """A writer behind an interceptor."""

    @property
    def suspect(self) -> bool:
        """See ``WriterPort``; the client knows the answer, so no request can fail."""
        return bool(self.inner.suspect)

    @property
    def produce(self) -> Callable[..., None]:
        """See ``WriterPort``."""
        produce, call, inner = self.inner.produce, self._call, self.inner

        def send(*arguments: Any) -> None:
            call("writer.produce", inner, partial(produce, *arguments), arguments)

        return send


class FaultyAdmin(_FaultyClient, port=AdminPort, called="admin"):
    """An admin client behind an interceptor."""


class FaultyTables:
    """A ``TablesPort`` that passes all calls of its tables, and of the storage of their files, to an
    interceptor: ``table.look``, ``table.commit``, ``files.create``.

    A commit that is made later than it is answered is one whose effect the interceptor keeps and makes then.

    :param tables: the tables that take the calls.
    """

    def __init__(self, tables: TablesPort, interceptor: Interceptor) -> None:
        self._tables = tables
        self._interceptor = interceptor

    def table(self, spec: Any) -> TablePort:
        """Return the port to a table; the interceptor does not get this call, which asks nothing."""
        return cast("TablePort", FaultyTable(self._tables.table(spec), self._interceptor))


class FaultyTable(_FaultyClient, port=TablePort, called="table"):
    """A table behind an interceptor."""

    def files(self, look: TableLook) -> TableFiles:
        """See ``TablePort``."""
        return cast("TableFiles", FaultyFiles(self.inner.files(look), self._interceptor))


class FaultyFiles(_FaultyClient, port=TableFiles, called="files"):
    """The storage of a table's files behind an interceptor."""


def _shown(argument: Any) -> Any:
    """Return an argument in an order that does not vary: names of topics, offsets without their metadata."""
    if isinstance(argument, Mapping):
        if any(isinstance(value, CommittedOffset) for value in argument.values()):
            return {str(partition): offset.offset for partition, offset in sorted(argument.items())}
        return dict(argument)
    if isinstance(argument, Collection) and not isinstance(argument, str):
        return sorted(each.name if isinstance(each, TopicSpec | Column) else each for each in argument)
    return argument
