"""Which partition a record belongs to, and how many partitions a topic has."""
