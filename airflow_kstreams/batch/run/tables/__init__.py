"""Looks at tables when a run begins, and lands its files in them when it ends."""
