"""The three steps of a run, and the task group that lays them out: capture stop offsets, run the topology,
finish.
"""
