"""Defines the type variables of the classes that users annotate: streams, tables, serdes, stores, processors.

``K`` and ``V`` are the types of keys and values, ``KR`` and ``VR`` those of an operator's results, ``VO``
that of the other side's values in a join. Each is Any by default, so ``KStream`` is ``KStream[Any, Any]``. It
is the type of a key or value that is there, as in Java; ``None`` is added only where a function must expect
it, as in a left join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# Type variables of the standard library have no default before Python 3.13.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    VO = TypeVar("VO", default=Any)
    KR = TypeVar("KR", default=Any)
    VR = TypeVar("VR", default=Any)
    T = TypeVar("T", default=Any)
    Written = TypeVar("Written", default=Any, contravariant=True)
    Key = TypeVar("Key", default=Any, contravariant=True)
    Value = TypeVar("Value", default=Any, contravariant=True)
    Given = TypeVar("Given", default=Any, covariant=True)
else:
    from typing import TypeVar

    K, V, VO, KR, VR, T = map(TypeVar, ("K", "V", "VO", "KR", "VR", "T"))
    Key = TypeVar("Key", contravariant=True)
    Value = TypeVar("Value", contravariant=True)
    Given = TypeVar("Given", covariant=True)
