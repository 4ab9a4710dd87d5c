"""``dev/bench async``: calls side by side in this engine and in its peers, on one broker, in one run."""
