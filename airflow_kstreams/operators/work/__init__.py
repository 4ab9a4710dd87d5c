"""Everything that the operators share: the application and the run that an Airflow task works on.

Called by ``operators`` only. It may import what operators may. No operator is here, but the
base classes of all.
"""
