"""What type checkers are told of a stream with a window: what operators make of it has the window, too.

Python cannot say that of :class:`~airflow_kstreams.streams.KStream` once and for all: a method cannot return
its own class with other parameters. Nothing here runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Unpack, overload

from airflow_kstreams.streams.type_variables import KR, VR, K, V

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_kstreams.streams.graph.calls import CallArguments
    from airflow_kstreams.streams.graph.store_specs import StoreSpec
    from airflow_kstreams.streams.kstream.kstream import WindowedKStream
    from airflow_kstreams.streams.kstream.operators.asynchronous import (
        AsyncFlatValueMapper,
        AsyncFunction,
        AsyncKeyValueMapper,
        AsyncValueMapper,
        ThreadFlatValueMapper,
        ThreadKeyValueMapper,
        ThreadValueMapper,
    )
    from airflow_kstreams.streams.kstream.operators.map_batches import BatchFunction, BatchSchema
    from airflow_kstreams.streams.kstream.operators.stateless import (
        FlatMapper,
        FlatValueMapper,
        KeySelector,
        KeyValueMapper,
        ValueMapper,
    )
    from airflow_kstreams.streams.processor.async_processor import AsyncProcessorDef
    from airflow_kstreams.streams.processor.processor import ProcessorDef
    from airflow_kstreams.streams.records.record_context import RecordContext


class KeepsWindow(Generic[K, V]):
    """A stream whose operators make streams with its window."""

    if TYPE_CHECKING:

        @overload
        def select_key(
            self, selector: KeySelector[K, V, KR], *, name: str | None = None
        ) -> WindowedKStream[KR, V]: ...
        @overload
        def select_key(
            self, selector: Callable[[K, V, RecordContext], KR], *, name: str | None = None
        ) -> WindowedKStream[KR, V]: ...
        def select_key(self, selector: Callable[..., Any], *, name: str | None = None) -> WindowedKStream: ...
        @overload
        def map(
            self, mapper: KeyValueMapper[K, V, KR, VR], *, name: str | None = None
        ) -> WindowedKStream[KR, VR]: ...
        @overload
        def map(
            self, mapper: Callable[[K, V, RecordContext], tuple[KR, VR]], *, name: str | None = None
        ) -> WindowedKStream[KR, VR]: ...
        def map(self, mapper: Callable[..., Any], *, name: str | None = None) -> WindowedKStream: ...
        @overload
        def map_values(
            self, mapper: ValueMapper[V, VR], *, name: str | None = None
        ) -> WindowedKStream[K, VR]: ...
        @overload
        def map_values(
            self, mapper: Callable[[V, RecordContext], VR], *, name: str | None = None
        ) -> WindowedKStream[K, VR]: ...
        def map_values(self, mapper: Callable[..., Any], *, name: str | None = None) -> WindowedKStream: ...
        @overload
        def flat_map(
            self, mapper: FlatMapper[K, V, KR, VR], *, name: str | None = None
        ) -> WindowedKStream[KR, VR]: ...
        @overload
        def flat_map(
            self, mapper: Callable[[K, V, RecordContext], Iterable[tuple[KR, VR]]], *, name: str | None = None
        ) -> WindowedKStream[KR, VR]: ...
        def flat_map(self, mapper: Callable[..., Any], *, name: str | None = None) -> WindowedKStream: ...
        @overload
        def flat_map_values(
            self, mapper: FlatValueMapper[V, VR], *, name: str | None = None
        ) -> WindowedKStream[K, VR]: ...
        @overload
        def flat_map_values(
            self, mapper: Callable[[V, RecordContext], Iterable[VR]], *, name: str | None = None
        ) -> WindowedKStream[K, VR]: ...
        def flat_map_values(
            self, mapper: Callable[..., Any], *, name: str | None = None
        ) -> WindowedKStream: ...
        def map_batches(
            self,
            function: BatchFunction,
            *,
            batch_size: int = ...,
            schema: BatchSchema | None = None,
            changes_key: bool = True,
            name: str | None = None,
        ) -> WindowedKStream[KR, VR]: ...
        @overload
        def map_values_async(
            self,
            mapper: AsyncValueMapper[V, VR],
            *,
            threads: Literal[False] = False,
            **options: Unpack[CallArguments],
        ) -> WindowedKStream[K, VR]: ...
        @overload
        def map_values_async(
            self,
            mapper: ThreadValueMapper[V, VR],
            *,
            threads: Literal[True],
            **options: Unpack[CallArguments],
        ) -> WindowedKStream[K, VR]: ...
        def map_values_async(
            self, mapper: AsyncFunction, *, threads: bool = False, **options: Unpack[CallArguments]
        ) -> WindowedKStream: ...
        @overload
        def map_async(
            self,
            mapper: AsyncKeyValueMapper[K, V, KR, VR],
            *,
            threads: Literal[False] = False,
            **options: Unpack[CallArguments],
        ) -> WindowedKStream[KR, VR]: ...
        @overload
        def map_async(
            self,
            mapper: ThreadKeyValueMapper[K, V, KR, VR],
            *,
            threads: Literal[True],
            **options: Unpack[CallArguments],
        ) -> WindowedKStream[KR, VR]: ...
        def map_async(
            self, mapper: AsyncFunction, *, threads: bool = False, **options: Unpack[CallArguments]
        ) -> WindowedKStream: ...
        @overload
        def flat_map_values_async(
            self,
            mapper: AsyncFlatValueMapper[V, VR],
            *,
            threads: Literal[False] = False,
            **options: Unpack[CallArguments],
        ) -> WindowedKStream[K, VR]: ...
        @overload
        def flat_map_values_async(
            self,
            mapper: ThreadFlatValueMapper[V, VR],
            *,
            threads: Literal[True],
            **options: Unpack[CallArguments],
        ) -> WindowedKStream[K, VR]: ...
        def flat_map_values_async(
            self, mapper: AsyncFunction, *, threads: bool = False, **options: Unpack[CallArguments]
        ) -> WindowedKStream: ...
        def process_async(
            self,
            processor_def: AsyncProcessorDef[K, V, KR, VR],
            *stores: Never,
            threads: bool = False,
            **options: Unpack[CallArguments],
        ) -> WindowedKStream[KR, VR]: ...
        def process(
            self, processor_def: ProcessorDef[K, V, KR, VR], *stores: str | StoreSpec, name: str | None = None
        ) -> WindowedKStream[KR, VR]: ...
        def process_values(
            self, processor_def: ProcessorDef[K, V, K, VR], *stores: str | StoreSpec, name: str | None = None
        ) -> WindowedKStream[K, VR]: ...
