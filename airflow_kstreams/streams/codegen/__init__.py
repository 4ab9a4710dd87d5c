"""Makes functions of lines that nodes write: the loops of sources, an emission at a commit point, the closure
of a node.

Two kinds of loops have the same lines (``runtime/sources_and_sinks.py``). Each source has one. The sources of
a task share another one where their records alternate: with two topics that alternate record by record it
makes 5.4 times as many records a second, because to choose, enter and leave a loop for each record costs more
than most records. With one source, and with long runs of records of one topic, the shared loop is not used.

Called by ``runtime`` while it binds a task. Imports ``graph`` and ``records``. No text of a user becomes
code, and the lines of a single operator belong to the operator.
"""
