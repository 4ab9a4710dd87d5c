"""The register of promises: lists on the pages, marks of tests, the page drawn from both, planted faults.

``dev/promises`` and the tests call what lives here. It imports the simulation's protections, and nothing of
the package itself: a planted fault is in a copy.
"""
