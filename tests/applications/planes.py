"""What planes do, by tail number: every departure of each, how many there were, and which of those from
Newark another airport of New York followed within hours.

Input: topics from KSTREAMS_TEST_NEWARK and KSTREAMS_TEST_OTHERS, key the tail number, value JSON with the
number of the flight. Output: KSTREAMS_TEST_LISTED, KSTREAMS_TEST_COUNTED, KSTREAMS_TEST_MET.
"""

from __future__ import annotations

import os

from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, Topology, serdes

#: Departures of one plane that belong together.
WINDOW_MS = 8 * 3_600_000


def planes(newark: str, others: str, listed: str, counted: str, met: str) -> Topology:
    """Return the topology on these topics."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    from_newark, from_others = builder.stream(newark), builder.stream(others)
    grouped = from_newark.group_by_key()
    grouped.aggregate(list, lambda _, number, so_far: [*so_far, number], store="listed").to_stream().send_to(
        listed
    )
    grouped.count(store="counted").to_stream().send_to(counted)
    window = SlidingWindow(size_ms=WINDOW_MS, grace_ms=0)
    from_newark.with_window(window).join(
        from_others.with_window(window), lambda first, second: [first, second], name="met"
    ).send_to(met)
    return builder.build()


def topology() -> Topology:
    """Return the topology on the topics of the environment."""
    names = ("NEWARK", "OTHERS", "LISTED", "COUNTED", "MET")
    return planes(*(os.environ[f"KSTREAMS_TEST_{name}"] for name in names))


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
