"""Topologies: frozen graphs of nodes and stores, how they are built node by node, checked as a whole, cut
into subtopologies and planned for a run; how an application file is loaded.

Called by ``kstream``, ``runtime``, ``testing`` and all that starts runs. Imports ``graph``,
``partitioning``, ``processor``, ``serde`` and ``picture``. Nothing is bound or run here, and building one
touches no network.
"""
