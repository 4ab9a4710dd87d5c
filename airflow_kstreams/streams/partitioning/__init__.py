"""Which partition a record belongs to, how many partitions a topic has, and which of them a task reads
together.
"""
