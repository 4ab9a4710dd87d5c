"""The command ``airflow-kstreams``: one file per command, which imports what it needs when it runs."""
