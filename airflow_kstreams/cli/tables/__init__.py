"""Makes the tables and notes that commands print as text, one file for each command that has more than a few.

The commands import it when they work, as they do ``cli.documents``, which makes the same values JSON. What
``inspect`` reads has its tables there, for notebooks, too.
"""
