"""Which page shows what.

A public name stands on the page of the area that claims the longest part of its path, so that a new module
finds its page without a word here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dev.reference_pages.public_api import PACKAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A page of classes and functions.

    :param page: its file name.
    :param title: its heading.
    :param about: a sentence for the index, and below the heading.
    :param modules: the modules and packages it shows, below the package of everything; also their order.
    """

    page: str
    title: str
    about: str
    modules: Sequence[str]


AREAS = (
    Area(
        page="builders.md",
        title="Builders and topologies",
        about="Where a topology begins and ends, in the DSL and node by node.",
        modules=("streams.kstream.builder", "streams.topology"),
    ),
    Area(
        page="streams.md",
        title="Streams",
        about="What can be done with a stream of records, and with its records grouped by key.",
        modules=("streams.kstream.kstream", "streams.kstream", "streams.records"),
    ),
    Area(
        page="tables.md",
        title="Tables by key",
        about="The newest value of each key.",
        modules=("streams.kstream.ktable.KTable", "streams.kstream.ktable.KGroupedTable"),
    ),
    Area(
        page="lakehouse.md",
        title="Lakehouse tables",
        about="Iceberg and Delta tables to which a topology writes rows.",
        modules=("streams.tables",),
    ),
    Area(
        page="windows.md",
        title="Windows",
        about="How far apart in time records may lie that belong together, and what is made of them.",
        modules=(
            "streams.windows",
            "streams.kstream.grouped.WindowedKGroupedStream",
            "streams.kstream.grouped.WindowedCogroupedKStream",
            "streams.kstream.ktable.WindowedKTable",
        ),
    ),
    Area(
        page="processors.md",
        title="Processor API",
        about="Code that sees each record, keeps state and forwards what it likes.",
        modules=("streams.processor", "streams"),
    ),
    Area(
        page="stores.md",
        title="State stores",
        about="What a processor or a table remembers, kept in a changelog topic.",
        modules=("streams.graph.store_specs", "streams.state"),
    ),
    Area(
        page="serdes.md",
        title="Formats of keys and values",
        about="Between Python objects and the bytes of keys and values.",
        modules=("streams.serde", "kafka"),
    ),
    Area(
        page="partitioning.md",
        title="Partitioning",
        about="Which partitions one task reads together, and which partition a key belongs to.",
        modules=("streams.partitioning", "streams.ports"),
    ),
    Area(
        page="testing.md",
        title="Testing",
        about="A topology in the tasks of a run, on topics in memory: no broker, no Spark.",
        modules=("testing",),
    ),
    Area(
        page="exploring.md",
        title="Exploring",
        about="A sample of real input through a topology, and stores of one that runs; nothing is written.",
        modules=("explore", "batch.inspect.state"),
    ),
    Area(
        page="inspecting.md",
        title="Inspecting",
        about="Runs, lag, the next run, state and dead letters as typed values; nothing is written.",
        modules=(
            "inspect",
            "batch.inspect.applications",
            "batch.inspect.diagnosis",
            "batch.inspect.doctor",
            "batch.inspect.runs",
            "batch.inspect.ahead",
            "batch.inspect.tables",
            "batch.inspect.dead_letters",
            "batch.ledger.history",
            "batch.protocol.step_times",
        ),
    ),
    Area(
        page="airflow.md",
        title="Airflow",
        about="The three steps of a run as operators, waiting for a run, and looking at what it left.",
        modules=(
            "operators.incremental_batch",
            "operators",
            "sensors",
            "triggers",
            "hooks",
            "batch.report",
            "batch.inspect",
        ),
    ),
    Area(
        page="spark.md",
        title="Spark",
        about="The main of an application file.",
        modules=("spark",),
    ),
)


def area_of(path: str) -> tuple[Area, int]:
    """Return the area of a public name, and where its module stands among those of the area.

    :param path: where the name is defined, e.g. ``airflow_kstreams.streams.kstream.ktable.KTable``.
    :raises LookupError: no area claims it.
    """
    claims = [
        (len(module), area, number)
        for area in AREAS
        for number, module in enumerate(area.modules)
        if f"{path}.".startswith(f"{PACKAGE}.{module}.")
    ]
    if not claims:
        raise LookupError(f"{path} is public, but no area in {__name__} claims its module")
    _, area, number = max(claims, key=lambda claim: claim[0])
    return area, number
