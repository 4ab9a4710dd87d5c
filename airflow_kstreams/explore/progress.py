"""Shows the progress of reading a sample."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from airflow_kstreams.explore.sampling import Progress


@contextlib.contextmanager
def shown_progress(*, show: bool) -> Iterator[Progress]:
    """Show a bar on stderr while the block runs, in a terminal or a notebook only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("reading the sample"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    seen = show and (console.is_terminal or console.is_jupyter)
    with Bar(*columns, console=console, transient=True, disable=not seen) as bar:
        task = bar.add_task("reading", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield progress
