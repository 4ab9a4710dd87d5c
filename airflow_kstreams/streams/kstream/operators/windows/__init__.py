"""Holds the operators of windows: folds, the end of a window, joins of streams within a window.

Added to a topology by ``kstream/windows``; rules as in the folder above.
"""
