"""``dev/bench windows``: how much memory stores of windows, sessions and joins in RocksDB take, filled with
more than memory should hold, and when all of it leaves at once.

Every store is measured in a process of its own, so that its peak memory is its own: the engine, the store, no
Kafka client and no Spark.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from airflow_kstreams.streams import SessionStoreSpec, WindowStoreSpec, serdes
from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec, Storage, StoreSpec
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.making import make_store

KINDS: dict[str, type[StoreSpec]] = {
    "window": WindowStoreSpec,
    "session": SessionStoreSpec,
    "join": JoinStoreSpec,
}
_VALUE_BYTES = 1_024
_PER_COMMIT = 10_000
_KEYS = 100_000
_FAR_MS = 2**40


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one process found.

    :param entries: put, each of 1 KiB.
    :param idle_bytes: peak memory before the first one.
    :param full_bytes: when all were put and drained.
    :param gone_bytes: when all had left at once and were drained.
    """

    entries: int
    puts_per_second: float
    expired_per_second: float
    idle_bytes: int
    full_bytes: int
    gone_bytes: int


def main(arguments: list[str]) -> int:
    """Measure every kind of store and print a table."""
    parser = argparse.ArgumentParser(prog="dev/bench windows", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1_024, help="of values in each store")
    parser.add_argument("--storage", choices=("memory", "rocksdb"), default="rocksdb")
    options = parser.parse_args(arguments)
    table = Table("store", "entries", "puts/s", "expired/s", "MB before", "MB full", "MB when all left")
    for kind in KINDS:
        found = measured_alone(kind, options.storage, mebibytes=options.megabytes)
        table.add_row(
            kind,
            f"{found.entries:,}",
            f"{found.puts_per_second:,.0f}",
            f"{found.expired_per_second:,.0f}",
            *(f"{size / 1e6:,.0f}" for size in (found.idle_bytes, found.full_bytes, found.gone_bytes)),
        )
    Console(soft_wrap=True).print(table)
    return 0


def measured_alone(kind: str, storage: Storage, *, mebibytes: int) -> Measured:
    """Measure one kind of store in a process of its own.

    :param mebibytes: of values in the store.
    """
    entries = mebibytes * 1_048_576 // _VALUE_BYTES
    command = [sys.executable, "-m", __name__, kind, storage, str(entries)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return msgspec.json.decode(told, type=Measured)


def measure(kind: str, storage: Storage, entries: int) -> Measured:
    """Fill a store of this process, and let everything leave at once."""
    spec = KINDS[kind](
        name="kept",
        key_serde=serdes.bytes(),
        value_serde=serdes.bytes(),
        storage=storage,
        retention_ms=entries,  # type: ignore[call-arg]
    )
    store: Any = make_store(spec, TaskRecordContext())
    idle = _peak_bytes()
    drawn = random.Random(7).randbytes(_VALUE_BYTES * 64)  # noqa: S311 - test data
    put = _putting(kind, store)
    started = time.monotonic()
    for number in range(entries):
        at = number * 97 % (len(drawn) - _VALUE_BYTES)
        put(b"key-%06d" % (number * 7_919 % _KEYS), number, drawn[at : at + _VALUE_BYTES])
        if number % _PER_COMMIT == 0:
            _drain(store)
    _drain(store)
    filled = time.monotonic()
    full = _peak_bytes()
    if kind == "join":
        for _ in store.release(_FAR_MS):
            pass
        store.remove_expired(_FAR_MS)
    else:
        store.expire(_FAR_MS)
    _drain(store)
    return Measured(
        entries=entries,
        puts_per_second=entries / (filled - started),
        expired_per_second=entries / (time.monotonic() - filled),
        idle_bytes=idle,
        full_bytes=full,
        gone_bytes=_peak_bytes(),
    )


def _putting(kind: str, store: Any) -> Callable[[bytes, int, bytes], None]:
    if kind == "join":
        return lambda key, time_ms, value: store.put(key, time_ms, value, time_ms % 2 == 0)
    if kind == "session":
        return lambda key, time_ms, value: store.put(key, value, time_ms, time_ms)
    return lambda key, time_ms, value: store.put(key, value, time_ms)


def _drain(store: Any) -> None:
    for _ in store.drain_changes():
        pass


def _peak_bytes() -> int:
    """Return the peak of this program, without what its process was before."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    chosen: Storage = "rocksdb" if sys.argv[2] == "rocksdb" else "memory"
    print(json.dumps(msgspec.to_builtins(measure(sys.argv[1], chosen, int(sys.argv[3])))))
