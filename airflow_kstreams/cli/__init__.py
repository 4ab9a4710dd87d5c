"""Defines the command ``airflow-kstreams``: one file per command, which imports what it needs when it runs.

``app`` lists the commands and turns errors into exit codes; ``options`` holds the options that several
commands take; ``application``, ``broker`` and ``output`` are shared code. A command parses, calls ``batch``,
``explore``, ``launch`` or ``spark``, which decide, and prints. No other package imports this one.
"""
