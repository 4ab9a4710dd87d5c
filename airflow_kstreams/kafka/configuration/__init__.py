"""Settings of clients: from connections, files and applications to what librdkafka takes, and refusals.

Called by ``cluster`` and the clients beside this folder. Makes no client.
"""
