"""A topology as a picture: text, Mermaid, and SVG of ranks and layers, order and places.

Subtopologies and the topics between them stand in *ranks*, one below the other; the nodes and stores of a
subtopology stand in *layers* within its frame. Every arrow goes down. igraph (the extra ``draw``) finds an
order with few crossings; what stands where follows from that order and the real sizes.

Called by ``topology``. Imports ``graph`` and ``errors``, and igraph when a picture is drawn. What decides
how a topology runs does not belong here.
"""
