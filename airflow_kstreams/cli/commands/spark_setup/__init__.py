"""Holds the commands that make machines ready for Spark."""
