"""Checks names of topics, and makes the names of the engine's own topics, and of the group and the
ids under which state is copied to new processors.

Every name of the engine's own is ``<application id>-<something>``, so that topics, permissions and resets of
different applications differ by name. ``batch/protocol`` and ``batch/ledger`` define the content of the
topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


#: What to do about a name that Kafka does not allow for a topic.
LEGAL_TOPIC = "use 1 to 249 letters, digits, dots, dashes and underscores"


def is_legal_topic(name: str) -> bool:
    """Return True if Kafka allows a name for a topic: 1 to 249 letters, digits, dots, dashes, underscores; no
    ``.``, ``..``.
    """
    return isinstance(name, str) and name not in {".", ".."} and _LEGAL.match(name) is not None


#: Endings of the names of the topics by which an application can be found.
PROTOCOL_ENDINGS = ("-metadata", "-runs")
CHANGELOG_ENDING, REPARTITION_ENDING = "-changelog", "-repartition"
RETRY_ENDING = "-retry"
#: Endings of the names of changelogs and repartition topics.
INTERNAL_ENDINGS = (CHANGELOG_ENDING, REPARTITION_ENDING)
_TABLE_FILES = "table-files"
#: Endings of the names of topics between subtopologies that are an application's own, among those that it has
#: recorded.
BETWEEN_ENDINGS = (REPARTITION_ENDING, f"-{_TABLE_FILES}")
#: Endings of the names of internal topics among those that an application has recorded. A topic that others
#: call ``...-table-files`` is none.
OWN_ENDINGS = (*INTERNAL_ENDINGS, f"-{_TABLE_FILES}")


@dataclass(frozen=True, slots=True)
class ProtocolTopics:
    """The topics of one application.

    :param application_id: the application.
    """

    application_id: str

    @property
    def metadata(self) -> str:
        """The metadata topic: the slice of the run under way."""
        return f"{self.application_id}-metadata"

    @property
    def ledger(self) -> str:
        """The run ledger: finished runs, the lease, partition groups."""
        return f"{self.application_id}-runs"

    @property
    def protocol(self) -> tuple[str, str]:
        """The two topics that every application has."""
        return (self.metadata, self.ledger)

    @property
    def dead_letters(self) -> str:
        """The dead-letter topic of an application that has not named one."""
        return f"{self.application_id}-dead-letter"

    @property
    def table_files(self) -> str:
        """The topic that lists the files which tasks have written for tables."""
        return self.internal(_TABLE_FILES)

    def internal(self, name: str) -> str:
        """Return the real name of an internal topic, given its name in the topology."""
        return f"{self.application_id}-{name}"

    def changelog(self, store: str) -> str:
        """Return the name of a store's changelog."""
        return self.internal(f"{store}{CHANGELOG_ENDING}")

    def is_internal(self, topic: str) -> bool:
        """Return True if a topic's name has the form of the application's internal topics; a topic of another
        application may have it, too.
        """
        own = self.internal("")
        return topic == self.table_files or any(
            topic.startswith(own) and topic.endswith(ending) and len(topic) > len(own) + len(ending)
            for ending in INTERNAL_ENDINGS
        )

    def others(self, topics: Iterable[str]) -> list[str]:
        """Return the topics whose names are those of no internal topic or retry topic of the application."""
        own = self.internal("")
        return sorted(
            topic
            for topic in topics
            if not self.is_internal(topic) and not (topic.startswith(own) and topic.endswith(RETRY_ENDING))
        )

    def store_of(self, changelog: str) -> str:
        """Return the name of the store that a changelog belongs to."""
        return changelog.removeprefix(f"{self.application_id}-").removesuffix(CHANGELOG_ENDING)

    @staticmethod
    def repartition(name: str) -> str:
        """Return the name that a repartition topic has in the topology; :meth:`internal` makes it real."""
        return f"{name}{REPARTITION_ENDING}"

    @staticmethod
    def replays(dead_letter_topic: str) -> str:
        """Return the name of the topic that records the replayed offsets of a dead-letter topic."""
        return f"{dead_letter_topic}-replays"


def catch_up_group(application_id: str) -> str:
    """Return the consumer group whose offsets record the progress of copying state."""
    return f"{application_id}-catchup"


def followers_group(application_id: str, name: str) -> str:
    """Return the consumer group whose offset is the cursor of a follower of finished runs.

    :param name: name of the follower; empty for what the groups of all followers begin with.
    """
    return f"{application_id}-finished-runs-{name}"


def catch_up_id(application_id: str, topic: str, source: int) -> str:
    """Return the transactional id under which the state of one source is copied.

    :param topic: a topic that the subtopology reads, in place of its number, which changes with the lines of
        the topology: a copy that is still running would not be fenced then.
    """
    return f"{catch_up_group(application_id)}-{topic}_{source}"
