"""What an oracle says that a stage gives in one task."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Result:
    """A record that a stage writes, in the run of that number.

    :param timestamp_ms: its time; None where the oracle does not say.
    """

    key: str
    value: str
    timestamp_ms: int | None
    run: int


@dataclass(slots=True)
class Given:
    """What a stage gives in one task.

    :ivar results: in order.
    :ivar dropped: the run's number of each record that it drops.
    :ivar failed: (value, run) of each record that becomes a dead letter.
    :ivar held: key -> value of its store in the end, or the values where the keys are encoded; None where
        they are not worked out.
    :ivar held_again: of the store of a second fold.
    """

    results: list[Result] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    failed: list[tuple[str, int]] = field(default_factory=list)
    held: dict[str, str] | list[str] | None = None
    held_again: dict[str, str] = field(default_factory=dict)
