"""Defines sources that read every topic whose name matches a pattern.

In a topology a pattern stands where a topic's name would, as ``/REGEX/``; no topic is called so, for Kafka
allows no slash. The topology hash holds it. When a run begins, the plan gets the topics that match, in its
place, and the completed marker freezes them with the stop offsets; a topic that is created later enters with
the next run.

Invariant: no topic is read by two sources, and none is read that the topology writes or the engine makes. So
a pattern that matches the name of such a topic is refused, whether that topic exists or not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from airflow_kstreams.streams.errors import TopologyError

#: Topics that the brokers keep for themselves; no pattern matches them.
_BROKERS_OWN = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
#: The literal beginning of a regular expression.
_LITERAL = re.compile(r"(?:[A-Za-z0-9_-]|\\[.-])*")


def pattern_topic(pattern: str) -> str:
    """Return the placeholder of a pattern among the names of topics.

    :param pattern: a regular expression.

    >>> pattern_topic("flights-.*")
    '/flights-.*/'
    """
    return f"/{pattern}/"


def pattern_of(topic: str) -> str | None:
    """Return the pattern of a placeholder, None if ``topic`` is a name.

    >>> pattern_of("/flights-.*/"), pattern_of("flights")
    ('flights-.*', None)
    """
    return topic[1:-1] if len(topic) > 1 and topic[0] == topic[-1] == "/" else None


def prefix_of(pattern: str) -> str:
    r"""Return the common beginning of all topics that a pattern matches; empty if there is none.

    >>> prefix_of(r"flights-\d+"), prefix_of("(a|b)-x"), prefix_of(r"eu\.orders")
    ('flights-', '', 'eu.orders')
    >>> prefix_of("ab*"), prefix_of("ab|cd")
    ('a', '')
    """
    found = _LITERAL.match(pattern)
    literal, rest = ("", pattern) if found is None else (found[0], pattern[found.end() :])
    if "|" in rest:
        return ""  # perhaps an alternative to the whole
    if rest[:1] in ("*", "?", "{"):
        literal = literal[:-2] if literal[-2:-1] == "\\" else literal[:-1]
    return literal.replace("\\", "")


def matching(pattern: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that match a pattern as a whole, sorted; topics of the brokers' own never do."""
    matches = re.compile(pattern).fullmatch
    return tuple(sorted({name for name in names if name not in _BROKERS_OWN and matches(name)}))


def match_all(
    patterns: Iterable[str], names: Collection[str], application_id: str = ""
) -> dict[str, tuple[str, ...]]:
    """Return the topics that match each pattern.

    :param patterns: placeholders of patterns, e.g. ``/flights-.*/``.
    :param names: names of all existing topics.
    :param application_id: id of the application, for messages.
    :return: placeholder -> the matching topics, sorted.
    :raises TopologyError: no topic matches, or two patterns match one.
    """
    found: dict[str, tuple[str, ...]] = {}
    whose = f"application {application_id!r}: " if application_id else ""
    for topic in patterns:
        pattern = pattern_of(topic) or ""
        matches = matching(pattern, names)
        if not matches:
            raise TopologyError(
                f"{whose}no topic matches the pattern {pattern!r} of a source",
                fix="create a topic that it matches, correct it, or allow the user to describe such topics",
            )
        for other, theirs in found.items():
            both = sorted({*theirs} & {*matches})
            if both:
                raise TopologyError(
                    f"{whose}the topic {both[0]!r} matches the patterns {pattern_of(other)!r} and "
                    f"{pattern!r} of two sources",
                    fix="narrow the patterns so that each topic matches one of them",
                )
        found[topic] = matches
    return found


def replaced(topics: Iterable[str], matches: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return topics with the matches of patterns in place of their placeholders, sorted.

    :param matches: placeholder -> the matching topics.
    """
    return tuple(sorted(name for topic in topics for name in matches.get(topic, (topic,))))


def refuse_overlaps(patterns: Iterable[str], others: Mapping[str, str], application_id: str = "") -> None:
    """Refuse a pattern that matches the name of a topic that its source must not read.

    :param patterns: placeholders of patterns, e.g. ``/flights-.*/``.
    :param others: name of a topic that a source must not read -> the kind of topic, in words.
    :param application_id: id of the application, for messages.
    :raises TopologyError: a pattern matches such a name.
    """
    whose = f"application {application_id!r}: " if application_id else ""
    for topic in patterns:
        pattern = pattern_of(topic) or ""
        for name in matching(pattern, others):
            raise TopologyError(
                f"{whose}the pattern {pattern!r} of a source matches {name!r}, {others[name]}",
                fix="narrow the pattern so that it matches what the source is to read, and nothing else",
            )
