"""Shows what lies before an application: records that wait, and the run that would begin now.

Called by ``airflow_kstreams.inspect``. It writes nothing.
"""
