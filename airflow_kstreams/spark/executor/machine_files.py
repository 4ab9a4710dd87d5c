"""Finds what a host needs on an executor's machine: client settings and scratch folders.

Rule: no copy of client settings is written where executors run. Spark ships files, and leaves its copies of
them in the folders of a standalone cluster. So the settings travel in two halves: a mask of random bytes,
which the function of each job holds, and a file with the settings under this mask. Each half alone is random.
The mask is made anew for each session, and only ever is in the memory of driver and executors:
``spark_session.STATIC_SETTINGS`` keep Spark from writing large functions to files.
"""

from __future__ import annotations

import json
import os
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path

import msgspec

from airflow_kstreams.kafka.configuration.config_file import read_client_config
from airflow_kstreams.kafka.configuration.secrets import sealed
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.secret_texts import Secret
from airflow_kstreams.tables.connections import TablesSettings, parted

_MASKED = "masked"


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a host reads the client settings; it holds none of them.

    :param path: the driver's own file; with a mask, a file of the same name that Spark shipped.
    :param mask: Base64 of the bytes under which the shipped file has the settings.
    """

    path: str
    mask: str = ""

    def read(self) -> dict[str, str]:
        """Read the settings of Kafka's client.

        :raises ConfigError: the file cannot be read or understood.
        """
        return parted(self._whole())[0]

    def read_tables(self) -> TablesSettings:
        """Read the settings of catalogues and storages of tables.

        :raises ConfigError: the file cannot be read or understood.
        """
        return parted(self._whole())[1]

    def _whole(self) -> dict[str, str]:
        if not self.mask:
            return read_client_config(self.path)
        from pyspark import SparkFiles

        path = SparkFiles.get(Path(self.path).name)
        half = read_client_config(path).get(_MASKED, "")
        try:
            return sealed(json.loads(Secret(_under(b64decode(self.mask), b64decode(half)).decode())))
        except ValueError:
            raise ConfigError(
                f"the client settings that Spark has shipped to {path!r} are not whole",
                fix="look for a full disk on that machine, then run again",
            ) from None

    def __repr__(self) -> str:
        return f"ClientSettings(path={self.path!r})"


def masked(config: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return the two halves of settings: what the file to be shipped holds, and the mask.

    :param config: client settings by librdkafka's names, and those of tables.
    """
    data = json.dumps(config).encode()
    mask = secrets.token_bytes(len(data))
    return {_MASKED: b64encode(_under(mask, data)).decode()}, b64encode(mask).decode()


def scratch_folder(group: int) -> Path | None:
    """Return one of the executor's own scratch folders, which Spark removes with the executor; None if there
    is none.

    :param group: spreads tasks over several disks.
    """
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if folder]
    return Path(folders[group % len(folders)]) if folders else None


def _under(mask: bytes, data: bytes) -> bytes:
    """Return bytes under a mask, or what is under it: both are the same step.

    :raises ValueError: the mask is not as long as the bytes.
    """
    return bytes(a ^ b for a, b in zip(mask, data, strict=True))
