"""The commands of ``airflow-kstreams``, one file each.

Listed by ``cli.app``; what several of them do is in the modules of ``cli``.
"""
