"""The commands that grow an application: a topic's partitions, a subtopology's processors, and giving up.

Each works out first, with the code that begin itself runs, what growing would mean, and refuses what begin
would refuse. So this room stands above ``run``, and the room ``growing``, which begin asks, below it.

Called by ``airflow-kstreams expand`` and its operators. Imports ``run``, ``growing``, ``ledger`` and
``protocol``.
"""
