"""BLAS and LAPACK in place and without the interpreter lock.

SciPy's Python wrappers hold the lock while they compute, so threads would take turns. These are
the same routines, called through the pointers that SciPy exports for Cython. Matrices are
float64 in Fortran order (`multiply_triangle` also takes float32); a block of a larger one will
do, since its leading dimension is passed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

from manygp.arrays import Array
from manygp.kernels.catalogue import TILE

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
_strmm = _routine(cython_blas, "strmm")
_dtrmv = _routine(cython_blas, "dtrmv")
_dsyrk = _routine(cython_blas, "dsyrk")
_wide = b"int64" in _name(cython_lapack.__pyx_capi__["dpotrf"])
_single_one = ctypes.byref(ctypes.c_float(1.0))
_integer: Any = ctypes.c_int64 if _wide else ctypes.c_int


@lru_cache(maxsize=None, typed=True)
def _number(value: int | float) -> Any:
    """Numbers are passed by reference; they are never written to, so threads may share them."""
    return _integer(value) if isinstance(value, int) else ctypes.c_double(value)


def _by_reference(*values: int | float) -> list[Any]:
    return [ctypes.byref(_number(value)) for value in values]


def _matrix(A: Array, dtype: Any = np.float64) -> tuple[int, Any]:
    """Address and leading dimension."""
    if A.strides[0] != A.itemsize or A.dtype != dtype:
        raise ValueError(f"a {np.dtype(dtype)} matrix in Fortran order is needed")
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
    address, _ = _matrix(L)
    _invert(address, max(1, L.strides[1] // L.itemsize), len(L))


def _invert(address: int, leading: int, n: int) -> None:
    """The same of n rows at an address: slices of arrays cost as much as small products."""
    info, size, stride = ctypes.byref(_integer(0)), *_by_reference(n, leading)
    if n <= SMALLEST_TRIANGLE:
        _dtrtri(b"L", b"N", size, address, stride, info)
        return
    h = n // 2
    corner, bottom = address + 8 * h, address + 8 * h * (leading + 1)
    _invert(address, leading, h)
    _invert(bottom, leading, n - h)
    rows, columns, one, minus = _by_reference(n - h, h, 1.0, -1.0)
    triangle = b"L", b"N", b"N", rows, columns
    _dtrmm(b"R", *triangle, one, address, stride, corner, stride)
    _dtrmm(b"L", *triangle, minus, bottom, stride, corner, stride)


def multiply_triangle(L: Array, B: Array) -> None:
    """Overwrite B with L B; L is lower triangular, and both are float64 or both float32."""
    m, k, one = _by_reference(*B.shape, 1.0)
    if L.dtype == np.float32:
        single = _matrix(L, np.float32), _matrix(B, np.float32)
        _strmm(b"L", b"L", b"N", b"N", m, k, _single_one, *single[0], *single[1])
    else:
        _dtrmm(b"L", b"L", b"N", b"N", m, k, one, *_matrix(L), *_matrix(B))


def multiply_vector(L: Array, b: Array) -> None:
    """Overwrite the vector b with L b: `multiply_triangle` of one column, but twice as fast."""
    if not b.flags.c_contiguous or b.dtype != np.float64:
        raise ValueError("a contiguous float64 vector is needed")
    n, step = _by_reference(len(b), 1)
    _dtrmv(b"L", b"N", b"N", n, *_matrix(L), b.ctypes.data, step)


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


def multiply_tiles(A: Array, B: Array) -> Array:
    """A @ B, by a fixed number of rows at a time: the digits of a row do not depend on others."""
    n = len(A)
    filled = A if n % TILE == 0 else A[np.minimum(np.arange(n + -n % TILE), n - 1)]
    tiles = filled.reshape(-1, TILE, A.shape[1])
    return np.matmul(tiles, B).reshape(-1, B.shape[1])[:n]
