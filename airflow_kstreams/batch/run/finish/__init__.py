"""Ends a run: checks that every offset stands at its stop, adds up its counts, writes the finished marker.

Called by the finish operator, and by ``begin`` for a run that its owner left unfinished.
"""
