"""Hosts tasks on executors, and returns their reports as rows.

``driver`` ships it; it never imports ``driver``. It imports ``batch``, ``kafka`` and ``streams``, and pyspark
only to find shipped files, since an executor needs no session. Tasks themselves are in ``batch/task``.
"""
