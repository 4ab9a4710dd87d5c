"""Names the consumer group and the transactional ids that copy the state of new processors."""

from __future__ import annotations


def catch_up_group(application_id: str) -> str:
    """Return the consumer group whose offsets say how far state is copied."""
    return f"{application_id}-catchup"


def catch_up_id(application_id: str, subtopology: int, source: int) -> str:
    """Return the transactional id under which the state of one source is copied."""
    return f"{catch_up_group(application_id)}-{subtopology}_{source}"
