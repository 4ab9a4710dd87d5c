"""``dev/bench --restore``: how fast a task replays its changelog, and how much memory the store then takes.

Every storage is measured in a process of its own, so that its peak memory is its own: the task, a Kafka
client, the store, and no Spark.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec
from rich.table import Table

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.task.restore import restore_stores
from airflow_kstreams.batch.task.task_state import TaskState
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams import KStreamBuilder, StoreSpec, Topology, serdes
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.state.files.checkpoint import StateOwner
from dev.benchmarks.publish import Message, create_topics, publish

APPLICATION_ID = "bench-restore"
CHANGELOG = f"{APPLICATION_ID}-sums-changelog"
STORAGES: tuple[Storage, ...] = ("memory", "rocksdb")
_UPDATES = 300_000
_UPDATES_PER_COMMIT = 100_000
#: Spreads the keys over their range, as a hash of real ones would.
_STRIDE = 7_368_787


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one process found.

    :param seconds: from an empty store to a full one, clients included.
    :param restored_memory_bytes: peak until then.
    :param updates_per_second: get, put and drain of keys at random afterwards.
    :param peak_memory_bytes: of everything.
    """

    records: int
    seconds: float
    restored_memory_bytes: int
    updates_per_second: float
    peak_memory_bytes: int


def topology(storage: Storage) -> Topology:
    """Return a topology with one store of JSON documents."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    spec = StoreSpec(name="sums", key_serde=serdes.string(), value_serde=serdes.json(), storage=storage)
    builder.stream("bench-in").group_by_key().aggregate(dict, lambda _key, _value, total: total, store=spec)
    return builder.build()


def publish_changelog(bootstrap: str, keys: int, progress: Callable[[int], None]) -> None:
    """Write a changelog of so many keys, each once."""
    create_topics(bootstrap, {CHANGELOG: 1})
    publish(bootstrap, _changes(keys), count=keys, progress=progress, partition=0)


def _changes(keys: int) -> Iterator[Message]:
    for number in range(keys):
        key, value = b"user-%09d" % (number * _STRIDE % keys), b'{"n":%d,"total":%d}' % (number, 3 * number)
        yield Message(CHANGELOG, value, key)


def measure(bootstrap: str, storage: Storage, keys: int, folder: str) -> Measured:
    """Restore and update a store in a fresh process."""
    command = [sys.executable, "-m", __name__, bootstrap, storage, str(keys), folder]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return msgspec.json.decode(told, type=Measured)


def table_of(found: dict[Storage, Measured]) -> Table:
    """Return what was measured as a table."""
    table = Table("storage", "keys", "restored records/s", "MB after", "updates/s", "peak MB")
    for storage, measured in found.items():
        table.add_row(
            storage,
            f"{measured.records:,}",
            f"{measured.records / measured.seconds:,.0f}",
            f"{measured.restored_memory_bytes / 1e6:,.0f}",
            f"{measured.updates_per_second:,.0f}",
            f"{measured.peak_memory_bytes / 1e6:,.0f}",
        )
    return table


def _measure_here(bootstrap: str, storage: Storage, keys: int, folder: str) -> Measured:
    settings = ApplicationSettings.parse(APPLICATION_ID, {"state.dir": folder})
    cluster = KafkaCluster({"bootstrap.servers": bootstrap}, settings=settings)
    clock = SystemClock()
    task = StreamTask(
        topology(storage),
        task_id=TaskId(subtopology=0, group=0),
        bounds={TopicPartition("bench-in", 0): (0, 0)},
        produce=lambda *_: None,
        settings=settings,
        progress=TaskProgress(),
    )
    admin = cluster.admin()
    owner = StateOwner(application_id=settings.application_id, task_id="0_0", topology_hash="bench", tasks=1)
    state = TaskState(task, owner=owner, admin=admin, settings=settings, clock=clock)
    started = time.monotonic()
    with closing(cluster.reader(group_id=settings.application_id)) as reader:
        restored = restore_stores(task, state, reader, admin, settings, clock)
    seconds = time.monotonic() - started
    if restored != keys:
        raise RuntimeError(f"restored {restored} records of {keys}")
    after = _peak_memory_bytes()
    updates_per_second = _update(task, keys)
    peak = _peak_memory_bytes()
    state.close()
    admin.close()
    return Measured(
        records=restored,
        seconds=seconds,
        restored_memory_bytes=after,
        updates_per_second=updates_per_second,
        peak_memory_bytes=peak,
    )


def _update(task: StreamTask, keys: int) -> float:
    store = task.stores["sums"]
    random_ = random.Random(7)  # noqa: S311 - test data
    started = time.monotonic()
    for number in range(1, _UPDATES + 1):
        key = b"user-%09d" % random_.randrange(keys)
        value, timestamp_ms = store.get_entry(key)
        store.put_entry(key, ({**value, "n": number}, timestamp_ms))
        if number % _UPDATES_PER_COMMIT == 0:
            for _ in store.drain_changes():
                pass
    return _UPDATES / (time.monotonic() - started)


def _peak_memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    """Measure one storage and print what was found as JSON."""
    bootstrap, storage, keys, folder = sys.argv[1:]
    chosen: Storage = "rocksdb" if storage == "rocksdb" else "memory"
    found = _measure_here(bootstrap, chosen, int(keys), folder)
    print(json.dumps(msgspec.to_builtins(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
