"""Seeded faults on real processes: a broker, Spark drivers, their workers, and a verifier apart from all."""
