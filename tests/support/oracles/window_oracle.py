"""What windows should hold, computed by looking at every record and every window: slow and plain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_kstreams.streams import HoppingWindow, SessionWindow, TumblingWindow, Windowed

#: (key, value, timestamp_ms), in order of arrival.
Row = tuple[str, int, int]


@dataclass(slots=True, kw_only=True)
class Content:
    """One window's records.

    :param closed_at: number of the record after which it is closed, None while it is open.
    :param changed_at: numbers of the records it took.
    """

    windowed: Windowed
    rows: list[Row] = field(default_factory=list)
    closed_at: int | None = None
    changed_at: list[int] = field(default_factory=list)

    @property
    def values(self) -> list[int]:
        return sorted(value for _, value, _ in self.rows)

    @property
    def newest_ms(self) -> int:
        return max(time_ms for _, _, time_ms in self.rows)

    @property
    def order(self) -> tuple[int, int, bytes]:
        return self.windowed.end_ms, self.windowed.start_ms, self.windowed.key.encode()


def stream_times(rows: Sequence[Row]) -> list[int]:
    """Stream time once each record is there."""
    return [max(time_ms for _, _, time_ms in rows[: number + 1]) for number in range(len(rows))]


def time_windows(rows: Sequence[Row], window: TumblingWindow | HoppingWindow) -> tuple[list[Content], int]:
    """Return every window that took a record, and the number of records that none took."""
    advance_ms = window.advance_ms if isinstance(window, HoppingWindow) else window.size_ms
    times = stream_times(rows)
    contents: list[Content] = []
    taken: set[int] = set()
    for key in {row[0] for row in rows}:
        for start_ms in range(0, max(times, default=0) + 1, advance_ms):
            end_ms = start_ms + window.size_ms
            close_ms = end_ms + window.grace_ms
            mine = [
                number
                for number, row in enumerate(rows)
                if row[0] == key and start_ms <= row[2] < end_ms and times[number] < close_ms
            ]
            taken.update(mine)
            if mine:
                contents.append(
                    Content(
                        windowed=Windowed(key, start_ms, end_ms),
                        rows=[rows[number] for number in mine],
                        closed_at=next((n for n, time_ms in enumerate(times) if time_ms >= close_ms), None),
                        changed_at=mine,
                    )
                )
    return contents, len(rows) - len(taken)


def sessions(rows: Sequence[Row], window: SessionWindow) -> tuple[list[Content], int]:
    """Return every session there is in the end, and the number of records that none took."""
    times = stream_times(rows)
    patience_ms = window.gap_ms + window.grace_ms
    groups: list[list[int]] = []
    late = 0
    for number, (key, _, time_ms) in enumerate(rows):
        near = [
            group
            for group in groups
            if rows[group[0]][0] == key
            and max(rows[n][2] for n in group) + patience_ms >= times[number]
            and any(abs(rows[n][2] - time_ms) <= window.gap_ms for n in group)
        ]
        if not near and time_ms + patience_ms < times[number]:
            late += 1
            continue
        groups = [group for group in groups if group not in near]
        groups.append(sorted([number, *(n for group in near for n in group)]))
    contents = []
    for group in groups:
        mine = [rows[n] for n in group]
        end_ms = max(row[2] for row in mine)
        contents.append(
            Content(
                windowed=Windowed(mine[0][0], min(row[2] for row in mine), end_ms),
                rows=mine,
                closed_at=next(
                    (n for n, time_ms in enumerate(times) if time_ms > end_ms + patience_ms), None
                ),
                changed_at=group,
            )
        )
    return contents, late


def contents_of(
    rows: Sequence[Row], window: TumblingWindow | HoppingWindow | SessionWindow
) -> tuple[list[Content], int]:
    """Return what is in each window in the end, and the number of dropped records."""
    return sessions(rows, window) if isinstance(window, SessionWindow) else time_windows(rows, window)
