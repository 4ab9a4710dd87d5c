"""Servers that tests, benchmarks and the demo start: brokers, PostgreSQL, and quick JVMs for all of them."""
