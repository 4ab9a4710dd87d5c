"""Makes the pages that hold a message in place of values."""

from __future__ import annotations

from airflow_kstreams.pages.views.frame import Frame
from airflow_kstreams.pages.views.rendering import render


def message_page(frame: Frame, title: str, text: str, status: int) -> str:
    """Return a page with a message.

    :param title: its heading.
    :param text: what happened, and what to do.
    :param status: HTTP status with which it is answered.
    """
    return render("message", frame, title=title, text=text, status=status)
