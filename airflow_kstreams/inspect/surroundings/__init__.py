"""Looks at what surrounds an application, from this machine to the executors: the other half of doctor.

The shape:

- The cluster, the topics and the application's state are looked at by ``batch.inspect.doctor``, through the
  ports alone. Here stands what needs more than a cluster: the network, this installation, Java, Airflow,
  Spark, a schema registry, a disk.
- ``examination`` begins with one request to the brokers, which says at once that none answers, or that they
  refuse the login. Then it makes all looks side by side, ten seconds in all, and says what was not seen.
- One module makes the looks of one kind. A look yields findings, and imports neither Airflow nor Spark: these
  are asked in processes of their own, which end with the time of the look.
- Nothing is written anywhere. Airflow is not even imported where it was never set up, because its first
  import writes its configuration.

Called by the command ``doctor`` and by ``inspect.doctor``.
"""

from __future__ import annotations

from airflow_kstreams.inspect.surroundings.examination import Surroundings, examine

__all__ = ["Surroundings", "examine"]
