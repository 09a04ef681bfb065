"""Kernels as text: `2.0 * Matern(0.5, nu=1.5) + White(0.1, "fixed")`, and what `repr` writes."""

from __future__ import annotations

import ast
import re
from typing import Any

from manygp.kernel import Pair
from manygp.kernels import (
    RBF,
    Constant,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Product,
    RationalQuadratic,
    Sum,
    White,
)

KERNELS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        RBF, Constant, Linear, Matern, Periodic, Product, RationalQuadratic, Sum, White,
    )
}  # fmt: skip
# Bounds on what is parsed at all.
LONGEST, MOST_TERMS = 10**6, 200
CHARACTERS = re.compile(r"""[A-Za-z0-9_\s.,()+*=\-'"]*""")
TERM = re.compile(r"[(*]|(?<![eE])\+")


def write_kernel(kernel: Kernel) -> str:
    """A text from which `parse_kernel` makes the same kernel, digit by digit."""
    for part in _parts(kernel):
        if KERNELS.get(type(part).__name__) is not type(part):
            raise ValueError(
                f"the kernel {type(part).__name__} is not one of {', '.join(KERNELS)}; other "
                "kernels have no text"
            )
    return repr(kernel)


def _parts(kernel: Kernel) -> list[Kernel]:
    inner = [kernel.left, kernel.right] if isinstance(kernel, Pair) else []
    return [kernel, *(part for one in inner for part in _parts(one))]


def parse_kernel(text: str) -> Kernel:
    """The kernel that a text describes.

    The names of `manygp.kernels` called with numbers, tuples of numbers, "fixed" and other
    kernels, their sums and products, and numbers among these. Nothing is evaluated.

    Raises
    ------
    ValueError
        Saying what cannot be read.
    """
    shown = text if len(text) <= 200 else text[:200] + "..."
    if len(text) > LONGEST or len(TERM.findall(text)) > MOST_TERMS:
        raise ValueError(f"the kernel {shown!r} is too long")
    if not CHARACTERS.fullmatch(text):
        raise ValueError(f"the kernel {shown!r} holds characters that no kernel has")
    try:
        kernel = _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError, ValueError, OverflowError, RecursionError, Warning) as error:
        raise ValueError(f"cannot read the kernel {shown!r}: {error}") from error
    if not isinstance(kernel, Kernel):
        raise ValueError(f"{shown!r} is not a kernel; try 'Matern(nu=2.5) + White()'")
    return kernel


def _value(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, str):
        return float(node.value) if isinstance(node.value, int) else node.value
    if isinstance(node, ast.Tuple):
        return tuple(_value(element) for element in node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _value(node.left), _value(node.right)
        if not (isinstance(left, Kernel) or isinstance(right, Kernel)):
            raise ValueError("numbers are added to or multiplied with kernels only")
        return left + right if isinstance(node.op, ast.Add) else left * right
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        kind = KERNELS.get(node.func.id)
        if kind is None:
            raise ValueError(f"{node.func.id} is not one of {', '.join(KERNELS)}")
        named = {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
        return kind(*(_value(argument) for argument in node.args), **named)
    raise ValueError(f"{ast.unparse(node)[:50]!r} has no meaning here")
