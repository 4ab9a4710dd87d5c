"""A topic that a processor may write by name."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.serde_checks import check_serdes


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTarget:
    """A topic that may be written.

    :param topic: real name.
    :param key_serde: used unless the caller names another.
    :param value_serde: likewise.
    """

    topic: str
    key_serde: Serde
    value_serde: Serde

    def written_with(self, key_serde: Serde | None, value_serde: Serde | None) -> SendTarget:
        """Return the target with other serdes, where they are given.

        :raises TopologyError: one of them is no serde.
        """
        check_serdes("ProcessorContext.send", key_serde=key_serde, value_serde=value_serde)
        return SendTarget(
            topic=self.topic,
            key_serde=key_serde.bound(self.topic, "key") if key_serde else self.key_serde,
            value_serde=value_serde.bound(self.topic, "value") if value_serde else self.value_serde,
        )
