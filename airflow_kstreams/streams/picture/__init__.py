"""A topology as a picture: ranks and layers, order, places, SVG.

Subtopologies and the topics between them stand in *ranks*, one below the other; the nodes and stores of a
subtopology stand in *layers* within its frame. Every arrow goes down. igraph (the extra ``draw``) finds an
order with few crossings; what stands where follows from that order and the real sizes.
"""
