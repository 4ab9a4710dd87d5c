"""A small stateful application over a real broker, for the Airflow tests: its file, its topics, its expected
result.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TEXT = """
from airflow_kstreams.streams import KStreamBuilder, serdes

def topology():
    builder = KStreamBuilder()
    (
        builder.stream("{source}", key_serde=serdes.string(), value_serde=serdes.json())
        .map(lambda key, value: (value["word"], value["count"]))
        .group_by_key(key_serde=serdes.string(), value_serde=serdes.json())
        .aggregate(int, lambda word, count, total: total + count, store="totals", value_serde=serdes.json())
        .to_stream()
        .send_to("{sink}", key_serde=serdes.string(), value_serde=serdes.json())
    )
    return builder.build()

if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
"""


class WordTotals:
    """The application; what must come out is counted here, without the engine.

    :param folder: takes the application file.
    :param application_id: of this test alone.
    :param source: existing input topic.
    :param sink: existing output topic.
    :param produce: the fixture of that name.
    """

    def __init__(
        self, folder: Path, *, application_id: str, source: str, sink: str, produce: Callable[..., None]
    ) -> None:
        self.application_id = application_id
        self.source = source
        self.sink = sink
        self.expected: Counter[str] = Counter()
        self.file = folder / "word_totals_application.py"
        self.file.write_text(_TEXT.format(source=source, sink=sink), encoding="utf-8")
        self._produce = produce
        self._made = 0

    @property
    def conf(self) -> dict[str, Any]:
        """What the test DAGs want to know."""
        return {"application_id": self.application_id, "application": str(self.file)}

    def publish(self, number: int) -> None:
        """Publish new records."""
        rows = []
        for index in range(self._made, self._made + number):
            word, count = f"word-{index % 7}", index % 5
            self.expected[word] += count
            rows.append((f"key-{index % 11}", {"word": word, "count": count}))
        self._made += number
        self._produce(self.source, rows)


def totals(rows: list[Any]) -> dict[str, int]:
    """Return the last total per word among output rows."""
    return {row.key.decode(): json.loads(row.value) for row in rows}
