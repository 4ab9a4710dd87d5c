"""Draws a topology: as text, Mermaid, and SVG of ranks and layers, order and places.

Subtopologies and the topics between them are drawn in *ranks*, one below the other; the nodes and stores of a
subtopology in *layers* within its frame. Every arrow goes down. An order with few crossings comes first; the
places follow from that order and the real sizes.

Called by ``topology``. Imports ``graph`` and what lies at the engine's floor. A topology runs the same
without this folder.
"""
