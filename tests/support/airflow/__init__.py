"""Airflow's home for a test session, and Python environments in which something is not installed.

``conftest.py`` of folders that use Airflow, and tests of packaging, take them. Nothing here may import
Airflow: its home must be prepared first.
"""
