"""The only importer of the Kafka client: implements the ports of ``streams/ports.py`` on confluent-
kafka.
"""
