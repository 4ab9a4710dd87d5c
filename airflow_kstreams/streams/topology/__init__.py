"""Topologies: frozen graphs of nodes and stores, how they are built, checked, cut into subtopologies and
described.
"""
