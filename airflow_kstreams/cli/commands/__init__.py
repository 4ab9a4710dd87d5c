"""Commands of ``airflow-kstreams``, one file each.

``cli.app`` lists them; code that several of them share is in the modules of ``cli``.
"""
