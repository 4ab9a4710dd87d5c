"""``dev/bench waterfall``: where a small run spends its time, request by request and wait by wait."""
