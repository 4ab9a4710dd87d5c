"""One run: begin, freeze, fence, lease, finish.

Called by the operators, by the driver in ``spark`` and by ``continuous``. Imports ``protocol`` and
``streams``. What a task does between begin and finish is in ``task``.
"""
