"""What topics, groups and commands are called, and which permissions they need.

Called by everything that names a topic or prints a command. Imports errors only.
"""
