"""Defines the parts of a topology: nodes, store specs, subtopologies (``components``), and what a task offers
to the nodes that it binds (``services``: protocols that ``runtime`` implements).

Called by every folder that builds, checks, draws or runs topologies. Imports ``serde`` and the modules at
the top of ``streams``. Nothing that runs belongs here: no loops, no stores, no operators.
"""
