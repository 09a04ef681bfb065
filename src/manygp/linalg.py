"""BLAS and LAPACK in place and without the interpreter lock.

SciPy's Python wrappers hold the lock while they compute, so threads would take turns. These are
the same routines, called through the pointers that SciPy exports for Cython. Matrices are
float64 in Fortran order; a block of a larger one will do, since its leading dimension is passed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

from manygp.types import Array

# Triangles are inverted by halves down to this size: products are faster than LAPACK's trtri.
SMALLEST_TRIANGLE = 64

_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _routine(module: Any, name: str) -> Callable[..., None]:
    capsule = module.__pyx_capi__[name]
    signature = _name(capsule)
    arguments = [ctypes.c_void_p] * (signature.count(b",") + 1)
    return ctypes.CFUNCTYPE(None, *arguments)(_pointer(capsule, signature))


_dpotrf = _routine(cython_lapack, "dpotrf")
_dpotrs = _routine(cython_lapack, "dpotrs")
_dtrtri = _routine(cython_lapack, "dtrtri")
_dlauum = _routine(cython_lapack, "dlauum")
_dlaset = _routine(cython_lapack, "dlaset")
_dtrmm = _routine(cython_blas, "dtrmm")
_dsyrk = _routine(cython_blas, "dsyrk")
_wide = b"int64" in _name(cython_lapack.__pyx_capi__["dpotrf"])
_integer: Any = ctypes.c_int64 if _wide else ctypes.c_int


@lru_cache(maxsize=None, typed=True)
def _number(value: int | float) -> Any:
    """Numbers are passed by reference; they are never written to, so threads may share them."""
    return _integer(value) if isinstance(value, int) else ctypes.c_double(value)


def _by_reference(*values: int | float) -> list[Any]:
    return [ctypes.byref(_number(value)) for value in values]


def _matrix(A: Array) -> tuple[int, Any]:
    """Address and leading dimension."""
    if A.strides[0] != A.itemsize or A.dtype != np.float64:
        raise ValueError("a float64 matrix in Fortran order is needed")
    return A.ctypes.data, ctypes.byref(_number(max(1, A.strides[1] // A.itemsize)))


def cholesky(A: Array) -> bool:
    """Overwrite the lower triangle with the Cholesky factor; False if there is none."""
    info = _integer(0)
    (n,) = _by_reference(len(A))
    _dpotrf(b"L", n, *_matrix(A), ctypes.byref(info))
    return info.value == 0


def solve_cholesky(L: Array, B: Array) -> None:
    """Overwrite B with (L L')^-1 B."""
    n, k = _by_reference(*B.shape)
    _dpotrs(b"L", n, k, *_matrix(L), *_matrix(B), ctypes.byref(_integer(0)))


def invert_triangle(L: Array) -> None:
    """Overwrite the lower triangle with its inverse."""
    n = len(L)
    if n <= SMALLEST_TRIANGLE:
        _dtrtri(b"L", b"N", *_by_reference(n), *_matrix(L), ctypes.byref(_integer(0)))
        return
    h = n // 2
    top, corner, bottom = L[:h, :h], L[h:, :h], L[h:, h:]
    invert_triangle(top)
    invert_triangle(bottom)
    multiply_triangle(top, corner, side=b"R")
    multiply_triangle(bottom, corner, factor=-1.0)


def multiply_triangle(L: Array, B: Array, side: bytes = b"L", factor: float = 1.0) -> None:
    """Overwrite B with factor L B, or with factor B L on side R; L is lower triangular."""
    m, k, alpha = _by_reference(*B.shape, factor)
    _dtrmm(side, b"L", b"N", b"N", m, k, alpha, *_matrix(L), *_matrix(B))


def multiply_transposed(L: Array) -> None:
    """Overwrite the lower triangle with that of L' L."""
    _dlauum(b"L", *_by_reference(len(L)), *_matrix(L), ctypes.byref(_integer(0)))


def add_outer(A: Array, C: Array, scale: float) -> None:
    """Overwrite the lower triangle of C with that of A A' + scale C."""
    n, k, one, beta = _by_reference(*A.shape, 1.0, scale)
    _dsyrk(b"L", b"N", n, k, one, *_matrix(A), beta, *_matrix(C))


def clear_upper(A: Array) -> None:
    """Set everything above the diagonal to zero."""
    if len(A) > 1:
        m, k, zero = _by_reference(len(A) - 1, len(A) - 1, 0.0)
        _dlaset(b"U", m, k, zero, zero, *_matrix(A[:-1, 1:]))
