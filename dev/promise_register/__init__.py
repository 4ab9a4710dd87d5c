"""The register of promises: reading it, the marks on the pages, the page drawn from it, planted faults.

``dev/promises`` and the tests call what lives here. It imports the simulation's protections, and nothing of
the package itself: a planted fault is in a copy.
"""
