"""State stores: one instance per store and task; each logs its changes for a changelog topic.

Made by ``making.make_store`` for the task; operators and users' processors read and write them,
``batch.task`` drains and restores them. Imports ``graph`` and ``serde``; rocksdict only where a store on disk
is made. Stores know no Kafka client, and no folder but the one they are given.
"""
