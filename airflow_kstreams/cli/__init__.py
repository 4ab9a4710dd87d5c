"""The command ``airflow-kstreams``: one file per command, which imports what it needs when it runs.

``app`` lists the commands and turns errors into exit codes; ``options`` holds the options that several
commands take; ``application``, ``broker`` and ``output`` what several of them do. A command parses, calls
``batch``, ``explore``, ``launch`` or ``spark``, and prints; what it decides belongs there. No other package
imports this one.
"""
