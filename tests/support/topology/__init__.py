"""Topologies and tasks without Kafka: bound by hand, restarted, on logs in memory, on files that crash.

Tests of ``streams`` take them; see ``tests/support/README.md``. May import ``streams`` alone of the
product, and no other folder of ``tests/support``. A scene that needs a cluster belongs to ``kafka``.
"""
