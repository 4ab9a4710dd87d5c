"""Holds the types of the JSON documents that commands print, and makes them from the values that the commands
show.

The commands import it; ``cli.json_output`` prints, and ``dev/reference`` writes the schemas. A document holds
figures and names, not the texts of a table. A small document stands in the module of its command.
"""
