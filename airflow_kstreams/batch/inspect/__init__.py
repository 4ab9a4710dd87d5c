"""Looking at an application without touching it: status, doctor, and what sensors wait for.

Called by the command line, sensors and triggers. Imports ``run`` and ``protocol``, and writes
nothing to Kafka.
"""
