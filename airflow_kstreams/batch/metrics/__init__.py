"""What a task's speed is measured with, and what its figures are called.

Called by ``task``, ``continuous``, ``report``, the driver and the command line. Imports ``protocol`` and
``streams``. How it is stored stands in ``protocol/task_metrics.py``; where it goes besides (OpenTelemetry) is
the driver's business.
"""
