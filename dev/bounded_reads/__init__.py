"""``dev/conformance``: the cases of ``tests/conformance``, read by this engine and by others."""
