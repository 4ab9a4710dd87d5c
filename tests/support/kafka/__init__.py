"""Applications on Kafka, in memory or real, and what surrounds them: interceptors, registries, ACLs, tools.

Tests of ``batch``, ``kafka``, ``cli`` and the Airflow side take their scenes from here; which one for which
test stands in ``tests/support/README.md``. May import the product and ``topology`` beside it. Drivers in
processes of their own belong to ``spark``.
"""
