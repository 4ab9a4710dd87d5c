"""Manages a task's local files for the task protocol: the offset to replay each changelog from, and the files
to keep after the last commit.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_kstreams.batch.growing.state_copy import Homes
from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.ports import AdminPort, Clock, Record, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.runtime.stream_task import StreamTask
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.state.files.checkpoint import (
    ChangelogPartition,
    Checkpoint,
    StateOwner,
    StoreCheckpoint,
    usable_offsets,
)
from airflow_kstreams.streams.state.files.local_state import LocalState
from airflow_kstreams.streams.state.stores.state_store import PersistentStore

log = package_log(__name__)

_DELETE_RETENTION = "delete.retention.ms"


class TaskState:
    """The files of a task's persistent stores, for one attempt.

    With ``state.dir`` they are left to the next run; without it they lie in a scratch folder and go with the
    attempt.

    :param task: the task, whose stores are not open yet.
    :param owner: owner of the files; files of another owner are not used.
    :param homes: tells which entries of the task's changelogs are its own; None where all are.
    :param scratch: folder for files that need not last.
    """

    def __init__(
        self,
        task: StreamTask,
        *,
        owner: StateOwner,
        homes: Homes | None = None,
        admin: AdminPort,
        settings: ApplicationSettings,
        clock: Clock,
        scratch: Path | None = None,
    ) -> None:
        self._admin = admin
        self._homes = homes
        self._clock = clock
        self._stores = {
            name: store for name, store in task.stores.items() if isinstance(store, PersistentStore)
        }
        self._changelogs = {
            name: TopicPartition(topic, task.task_id.group) for name, topic in task.changelogs.items()
        }
        self._keeps = bool(settings.state_dir)
        self._temporary: Path | None = None
        root = Path(settings.state_dir)
        if self._stores and not self._keeps:
            root = self._temporary = Path(tempfile.mkdtemp(prefix="kstreams-state-", dir=scratch))
        self._local = LocalState(root, owner, self._stores)
        self._topic_ids: dict[str, str] = {}

    @property
    def kept_changelogs(self) -> tuple[TopicPartition, ...]:
        """Changelog partitions whose ends the last commit reads for :meth:`keep`."""
        if not self._keeps:
            return ()
        return tuple(sorted(self._changelogs[name] for name in self._stores if name in self._changelogs))

    def open(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Claim the files and open the stores.

        :param starts: first offset of every changelog partition.
        :param ends: high watermark of every changelog partition.
        :return: changelog partition -> the offset to replay it from.
        :raises StateStoreError: the files cannot be written.
        """
        checkpoint = self._local.claim()
        if self.kept_changelogs:
            topics = {partition.topic for partition in self.kept_changelogs}
            found = self._admin.describe_topics(topics)
            self._topic_ids = {topic: described.topic_id for topic, described in found.items()}
        usable: dict[str, int] = {}
        if checkpoint is not None:
            usable = usable_offsets(
                checkpoint,
                owner=self._local.owner,
                formats={name: store.store_format for name, store in self._stores.items()},
                changelogs=self._seen(checkpoint, starts, ends),
                now_ms=self._clock.now_ms(),
            )
        opened = self._local.open(usable)
        return {
            partition: opened.get(name, starts[partition]) for name, partition in self._changelogs.items()
        }

    def own(self, partition: TopicPartition, records: Sequence[Record]) -> Sequence[Record]:
        """Return the records of a changelog partition whose keys the task still has."""
        if self._homes is None:
            return records
        return self._homes.at_home(partition.topic, records, partition.partition)

    def keep(self, ends: Mapping[TopicPartition, int]) -> None:
        """Keep the files for the next run, after the last commit. A failure costs the next run a replay only.

        :param ends: end of every kept changelog partition, read after the last write and before the last
            commit.
        """
        if not self._keeps:
            return
        checkpoint = Checkpoint(
            owner=self._local.owner,
            written_ms=self._clock.now_ms(),
            stores={
                name: StoreCheckpoint(
                    store_format=store.store_format,
                    topic_id=self._topic_ids.get(self._changelogs[name].topic, ""),
                    offset=ends[self._changelogs[name]],
                )
                for name, store in self._stores.items()
                if name in self._changelogs and self._changelogs[name] in ends
            },
        )
        try:
            self._local.keep(checkpoint)
        except StateStoreError as error:
            log.warning("the next run replays the changelogs from their beginning: %s", error)

    def close(self) -> None:
        """Remove the files, unless they were kept."""
        self._local.discard()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _seen(
        self,
        checkpoint: Checkpoint,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[str, ChangelogPartition]:
        """Return the broker's facts of the changelogs that the checkpoint names."""
        return {
            name: ChangelogPartition(
                topic_id=self._topic_ids[partition.topic],
                start_offset=starts[partition],
                end_offset=ends[partition],
                delete_retention_ms=self._delete_retention_ms(partition.topic),
            )
            for name, partition in self._changelogs.items()
            if name in checkpoint.stores and name in self._stores and partition.topic in self._topic_ids
        }

    def _delete_retention_ms(self, topic: str) -> int:
        """Return the milliseconds for which the changelog keeps tombstones; 0 if the broker does not say."""
        configs = self._admin.topic_configs([topic])
        if topic in configs.found:
            return int(configs.found[topic][_DELETE_RETENTION])
        log.warning(
            "the local checkpoint is not used, because %s of %s is unknown: %s",
            _DELETE_RETENTION,
            topic,
            configs.refused[topic],
        )
        return 0
