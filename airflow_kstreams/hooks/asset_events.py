"""Makes the extra of an asset event: the finished run, and the offsets it processed of each topic.

The same run always gives the same extra, so a consumer that has seen the run id can ignore a repeated event.
"""

from __future__ import annotations

from airflow_kstreams.batch.report.asset_events import announced_runs, event_extra

__all__ = ["announced_runs", "event_extra"]
