"""Shows the runs of an application: a page of them, one in full, two compared, and what is odd about them.

Called by ``airflow_kstreams.inspect``. It reads the ledger from its end, as far as it is asked for, and
writes nothing.
"""
