"""Rounds of a run that lands in Iceberg and Delta tables, on two places, and the program that judges them.

They share broker, feeder, follower and scene with the rounds of topics. ``verifier.py`` and what it imports
know nothing of the engine.
"""
