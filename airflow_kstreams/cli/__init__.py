"""Defines the command ``airflow-kstreams``: one file per command, which is imported when it is asked for.

``app`` lists the commands and turns errors into exit codes; ``shared_options`` holds the options that several
commands take, finds topology, settings and broker, and prints tables. A command parses, calls ``batch``,
``explore``, ``launch`` or ``spark``, which decide, and prints: text by ``tables``, JSON by ``documents``. No
other package imports this one.
"""
