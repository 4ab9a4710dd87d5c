"""The state of a task: ``stores`` while it runs, ``files`` from run to run.

The stores of a topology are specified by ``graph.store_specs``; restoring from a changelog is a step of
``batch.task``.
"""
