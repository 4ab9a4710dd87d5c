"""Names topics, groups and commands, and the permissions that they need.

Called by everything that names a topic or prints a command. Imports errors only.
"""
