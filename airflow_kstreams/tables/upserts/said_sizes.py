"""Says how much of a table an upsert has rewritten."""

from __future__ import annotations

from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)
#: Bytes rewritten for a byte of new rows from which a warning says so.
MANY = 20.0


def say_rewritten(table: str, *, rewritten_bytes: int, new_bytes: int) -> None:
    """Log how many bytes of a table are rewritten for how many new ones.

    :param table: name of the table.
    :param rewritten_bytes: bytes of the files that leave the table.
    :param new_bytes: bytes of the staged files.
    """
    if not new_bytes:
        return
    each = rewritten_bytes / new_bytes
    said = f"table {table}: {counted(rewritten_bytes, 'byte')} rewritten, {each:.1f} for each of new rows"
    if each > MANY:
        log.warning("%s: more buckets, or runs that are further apart, rewrite less", said)
    else:
        log.info("%s", said)
