"""The demo: real flights into Kafka, an hourly DAG over them in a real Airflow, an independent check."""
