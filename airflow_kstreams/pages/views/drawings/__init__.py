"""Turns readings into tables with drawings beside their rows, and into charts: geometry and words, no HTML.

The pages' functions call it. It may import the marks, links and troubles of ``views``, ``inspect`` and
``streams.picture``. Whatever is drawn stands in a table, too.
"""
