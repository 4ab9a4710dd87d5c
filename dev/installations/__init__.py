"""Whole installations of other releases, each made from nothing and tried (``dev/matrix``)."""
