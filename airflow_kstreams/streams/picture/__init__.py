"""Draws a topology: as text, Mermaid, and SVG of ranks and layers, order and places.

Subtopologies and the topics between them are drawn in *ranks*, one below the other; the nodes and stores of a
subtopology in *layers* within its frame. Every arrow goes down. igraph (the extra ``draw``) finds an order
with few crossings; the places follow from that order and the real sizes.

Called by ``topology``. Imports ``graph`` and ``errors``, and igraph when a picture is drawn. A topology runs
the same without this folder.
"""
