"""Waiting for runs. Sensors only read: they join no group and commit nothing."""
