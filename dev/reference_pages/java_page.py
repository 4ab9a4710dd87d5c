"""What the page for those who come from Java says: each class of Kafka Streams' DSL, and its methods."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_kstreams.streams.hints.java_names import ALL, CLASSES, NEIGHBOURS, ours_for

#: An answer that is no more than what to write.
_CODE = re.compile(r"[\w.]+(\([^()]*\))?=?")


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaEntry:
    """A class of Kafka Streams, as Markdown.

    :param ours: what stands for it here.
    :param methods: name and answer of each; none if all are answered as the class is.
    """

    java: str
    ours: str
    methods: tuple[tuple[str, str], ...]


def java_entries() -> list[JavaEntry]:
    """Return what the page says, in the order of the table."""
    return [
        JavaEntry(
            java=java,
            ours=_markdown(found.ours),
            methods=tuple(
                (f"{java}.{name}", _markdown(ours_for(java, name)))
                for name in (*found.looked_up.split(), *found.methods)
                if name != ALL
            ),
        )
        for java, found in CLASSES.items()
    ]


def java_neighbours() -> list[tuple[str, str]]:
    """Return the name and answer of each class beside those of the DSL."""
    return [(java, _markdown(text)) for java, text in NEIGHBOURS.items()]


def _markdown(text: str) -> str:
    return f"`{text}`" if _CODE.fullmatch(text) else text.replace("|", "\\|")
