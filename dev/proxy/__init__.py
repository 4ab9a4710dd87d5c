"""Proxies before a Kafka broker and before an HTTP server, which delay, drop and answer as a test asks."""
