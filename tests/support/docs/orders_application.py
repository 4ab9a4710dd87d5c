"""The application of the README, which how-to pages speak of: ``orders.py`` with its two topics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from airflow_kstreams.streams.topology.application_file import ApplicationFile
from tests.support.docs.how_to_pages import Follower
from tests.support.fresh_python import ROOT
from tests.support.kafka.in_process import Application
from tests.support.topology.examples import code_blocks

#: A good order.
GOOD = b'{"customer":"ann","cents":250}'


def write_orders(follower: Follower, *, topics: Sequence[str] = ("orders", "customer-totals")) -> None:
    """Write the README's application into the follower's folder, and create its topics."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = (block.code for block in code_blocks(readme) if block.code.startswith("# spark_apps/orders.py"))
    (follower.folder / "orders.py").write_text(code, encoding="utf-8")
    for topic in topics:
        follower.kafka.create_topic(topic)


def application(follower: Follower) -> Application:
    """Return the application in the follower's folder, for a test that plays several drivers of it."""
    return Application(
        on=follower.kafka,
        clock=follower.clock,
        application_id="orders",
        topology=ApplicationFile.read(Path(follower.folder / "orders.py")).topology(),
        settings={"autostop.at": "eol"},
    )
