"""The DSL: streams, grouped streams and tables, compiled to a topology.

What users call is in ``builder`` and ``kstream``; how a call becomes nodes in the modules that those
import; what a node does in modules named after the operators. Called by users, through
``airflow_kstreams.streams``. Imports ``graph``, ``topology``, ``processor``, ``state.stores`` and
``codegen.fold_code``. Nothing runs here: operators make closures or lines, ``runtime`` binds them.
"""
