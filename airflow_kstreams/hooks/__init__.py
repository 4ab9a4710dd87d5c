"""What operators, sensors and triggers share: connections to Kafka and Spark, outcomes of errors, results of
runs.
"""
