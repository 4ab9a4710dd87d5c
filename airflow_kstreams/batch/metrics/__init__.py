"""Measures the speed of tasks, and names its figures.

Called by ``task``, ``continuous``, ``report``, the driver and the command line. Imports ``protocol`` and
``streams``. ``protocol/offsets/offset_metadata.py`` stores the measurements; the driver passes them on
(OpenTelemetry).
"""
