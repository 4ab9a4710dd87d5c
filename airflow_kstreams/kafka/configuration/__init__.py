"""Reads and checks client settings from connections, files and applications, for librdkafka.

Called by ``cluster`` and the clients beside this folder. Makes no client.
"""
