"""Shows runs, lag and plans on pages inside Airflow. Nothing else imports it; it may import ``hooks``,
``inspect`` and ``streams.picture``. It writes nothing to Kafka.
"""
