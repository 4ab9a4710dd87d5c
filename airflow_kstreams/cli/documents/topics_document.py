"""Holds the document of ``topics``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class TopicChange(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that was named, and what became of it.

    :param topic: the topic.
    :param what: created, set, deleted, or why it stays as it is.
    :param changed: whether it was changed, or would be.
    """

    topic: str
    what: str
    changed: bool


class TopicsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What became of topics.

    :param dry_run: whether nothing was done.
    :param topics: the topics.
    """

    dry_run: bool
    topics: Sequence[TopicChange]
