"""Factors of experts: kept where they were computed, or computed when they are first needed."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from manygp.arrays import Array
from manygp.gp.likelihood import Terms
from manygp.runtime.memory import physical_memory

# Bytes of factors that a model from a file keeps, at most, and as a share of the memory.
MOST_BYTES = 2e9
MOST_SHARE = 0.25


class Factor(NamedTuple):
    """What an expert has computed from its rows, in order to predict.

    Attributes
    ----------
    mean : ndarray of shape (t,)
        Constant prior mean of each target.
    jitter : float
        Variance added to the diagonal because the factorisation failed without; 0 as a rule.
    whitener, coefficients : ndarrays of shape (n', n'), (n', t)
        See `Posterior`. The whitener is in single precision where that is enough.
    terms : Terms or None
        How the expert explains the terms of a trend, if there is one.
    """

    mean: Array
    jitter: float
    whitener: Array
    coefficients: Array
    terms: Terms | None = None

    @property
    def arrays(self) -> list[Array]:
        """The arrays that grow with the rows."""
        return [self.whitener, self.coefficients, *(self.terms or ())]

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.arrays)


# One lock for all: nothing is computed while it is held. A child of `fork` gets a new one, since
# a thread that it does not have may have held the old one.
_changed = threading.Condition()


def _after_fork() -> None:
    global _changed
    _changed = threading.Condition()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Factors:
    """Factors that are built when they are first needed.

    The least recently used are forgotten when all together exceed a bound, except the last one.
    Each is built by one thread while others wait for it. A copy or a pickle begins empty.

    Attributes
    ----------
    nbytes : int
        Bytes of the factors that are kept.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[weakref.ref[Any], Factor]] = OrderedDict()
        self._being_built: set[tuple[int, int]] = set()  # with the process: see `_after_fork`
        self.nbytes = 0  # of those that are kept

    def __reduce__(self) -> tuple[type[Factors], tuple[()]]:
        return Factors, ()

    def of(self, owner: Any, build: Callable[[], Factor]) -> Factor:
        """The factor of an expert, kept or built."""
        this, mine = (os.getpid(), id(owner)), False
        try:
            with _changed:
                while this in self._being_built:
                    _changed.wait()
                found = self._find(owner)
                if found is not None:
                    return found
                mine = True
                self._being_built.add(this)
            factor = build()
            with _changed:
                self._keep(owner, factor)
            return factor
        finally:
            if mine:  # also after an error or an interrupt, so that nobody waits for ever
                with _changed:
                    self._being_built.discard(this)
                    _changed.notify_all()

    def _find(self, owner: Any) -> Factor | None:
        known, factor = self._kept.get(id(owner), (None, None))
        if known is None or known() is not owner:  # another object may have had the same address
            return None
        self._kept.move_to_end(id(owner))
        return factor

    def _keep(self, owner: Any, factor: Factor) -> None:
        _, old = self._kept.pop(id(owner), (None, None))  # of an object that is gone
        self._kept[id(owner)] = weakref.ref(owner), factor
        self.nbytes += factor.nbytes - (0 if old is None else old.nbytes)
        most = min(MOST_BYTES, MOST_SHARE * physical_memory())
        while len(self._kept) > 1 and self.nbytes > most:
            _, (_, forgotten) = self._kept.popitem(last=False)
            self.nbytes -= forgotten.nbytes
