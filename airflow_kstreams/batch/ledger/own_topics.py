"""Which topics are an application's own, and where its changelogs ended."""

from __future__ import annotations

import msgspec


class OwnTopic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A topic of the engine's own, as this application made it or took it over.

    :param id: its topic id.
    """

    id: str


class OwnTopics(msgspec.Struct, frozen=True, kw_only=True):
    """Which topics are this application's; one record in the ledger topic, written by begin.

    :param topics: by name, those of stores that were dropped included.
    """

    topics: dict[str, OwnTopic] = {}

    @property
    def ids(self) -> dict[str, str]:
        """Topic id by topic."""
        return {topic: own.id for topic, own in self.topics.items()}


class LoggedState(msgspec.Struct, frozen=True, array_like=True):
    """A changelog as a finished run left it.

    :param id: its topic id.
    :param ends: its high watermark, by partition.
    """

    id: str
    ends: tuple[int, ...]


class ChangelogEnds(msgspec.Struct, frozen=True, kw_only=True):
    """Where the changelogs ended when a run with records was last finished; one record in the ledger topic,
    written by finish.

    :param changelogs: by topic.
    """

    changelogs: dict[str, LoggedState]
