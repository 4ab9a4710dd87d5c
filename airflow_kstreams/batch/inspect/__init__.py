"""Looks at an application without changing it: status, doctor, dead letters, and what sensors wait for.

Called by the command line, sensors and triggers. Imports ``run``, ``replay``, ``ledger``, ``protocol`` and
``report``. Writes nothing to the application's topics and claims nothing; a follower of finished runs commits
to a group of its own.
"""
