"""Holds the types of the JSON documents that commands print, and makes them from the values that the commands
show.

The commands import it when they work; ``cli.json_output`` prints. ``by_command`` names the document of each
command, and ``dev/reference`` writes the schemas. A document holds figures and names, not the texts of a
table. What ``inspect`` reads is printed as it is.
"""
