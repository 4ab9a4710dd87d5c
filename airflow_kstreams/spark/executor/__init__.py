"""What runs on executors: hosts of tasks, and the rows that they report.

Shipped by ``driver`` and never imports it. Imports ``batch``, ``kafka`` and ``streams``; pyspark only to find
shipped files, since an executor needs no session. What a task does is in ``batch/task``.
"""
