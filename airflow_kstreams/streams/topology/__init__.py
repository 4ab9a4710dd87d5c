"""Topologies: builds frozen graphs of nodes and stores, checks them, splits them into subtopologies, plans
them for a run, and loads application files.

Called by ``kstream``, ``runtime``, ``testing`` and all that starts runs. Imports ``graph``, ``partitioning``,
``processor``, ``serde`` and ``picture``. Nothing is bound or run here, and building a topology contacts no
network.
"""
