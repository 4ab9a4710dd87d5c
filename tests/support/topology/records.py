"""Records for tests that need no broker: the shape of the Kafka client's message, held in plain fields."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeRecord:
    """One consumed record."""

    at: int
    key_bytes: bytes | None = None
    value_bytes: bytes | None = None
    timestamp_ms: int = 0
    in_topic: str = "in"
    in_partition: int = 0
    header_list: list[tuple[str, bytes | None]] | None = field(default=None)

    def topic(self) -> str:
        return self.in_topic

    def partition(self) -> int:
        return self.in_partition

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.key_bytes

    def value(self) -> bytes | None:
        return self.value_bytes

    def timestamp(self) -> tuple[int, int]:
        return (1, self.timestamp_ms)

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.header_list

    def leader_epoch(self) -> int | None:
        return None
