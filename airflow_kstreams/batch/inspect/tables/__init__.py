"""Looks at the tables that an application writes to, beside its ledger and its list of files.

Called by commands, doctor and others that look. It may import what runs and ledger are made of, and the port
to tables. No client of a catalogue belongs here, and nothing that prints.
"""
