"""Names and sizes that the application, the feeder, the follower and the verifier share."""

from __future__ import annotations

APPLICATION_ID = "chaos"

#: Topics of the application's user, with their partitions: unequal on purpose.
PAYMENTS, ECHO, MOVED, RUNNING, TOTALS = (
    "chaos-payments",
    "chaos-echo",
    "chaos-moved",
    "chaos-running",
    "chaos-totals",
)
PARTITIONS = {PAYMENTS: 3, ECHO: 3, MOVED: 2, RUNNING: 2, TOTALS: 2}

#: What readers of results follow.
RESULTS = (ECHO, MOVED, RUNNING, TOTALS)

RUNNING_STORE, TOTALS_STORE = "running", "totals"
METADATA = f"{APPLICATION_ID}-metadata"
REPARTITION = f"{APPLICATION_ID}-{TOTALS_STORE}-repartition"
CHANGELOGS = {
    RUNNING_STORE: f"{APPLICATION_ID}-{RUNNING_STORE}-changelog",
    TOTALS_STORE: f"{APPLICATION_ID}-{TOTALS_STORE}-changelog",
}

ACCOUNTS, SHOPS, KINDS = 24, 10, 5
