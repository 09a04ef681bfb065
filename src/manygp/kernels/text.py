"""Kernels as text: `2.0 * Matern(0.5, nu=1.5) + White(0.1, "fixed")`, and what `repr` writes."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from manygp.kernels.base import NoisyKernel, Pair
from manygp.kernels.catalogue import (
    RBF,
    Constant,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Product,
    RationalQuadratic,
    Stationary,
    Sum,
    White,
)

KERNELS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        RBF, Constant, Linear, Matern, Periodic, Product, RationalQuadratic, Sum, White,
    )
}  # fmt: skip
# Bounds on what is read at all: characters; brackets, sums and products; brackets in brackets.
LONGEST, MOST_TERMS, DEEPEST = 10**6, 400, 100
# A name, maybe that of an argument; a number; "fixed"; a mark; space.
TOKEN = re.compile(
    r"""[A-Za-z_]\w*(?:\s*=)?|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|"fixed"|'fixed'|[(),+*]|\s+""",
    re.ASCII,
)
END = ""


def write_kernel(kernel: Kernel) -> str:
    """A text from which `parse_kernel` makes the same kernel, digit by digit."""
    if isinstance(kernel, NoisyKernel):
        kernel = Sum(kernel.signal, kernel.noise)
    text = _text(kernel)
    if parse_kernel(text) != kernel:
        raise ValueError(f"the kernel {kernel!r} has no text")
    return text


def _text(kernel: Kernel) -> str:
    name = type(kernel).__name__
    if KERNELS.get(name) is not type(kernel):
        raise ValueError(
            f"the kernel {name} is not one of {', '.join(KERNELS)}; other kernels have no text "
            "(pickle keeps any model)"
        )
    if not isinstance(kernel, Pair):
        names = [field.name for field in fields(kernel)]  # type: ignore[arg-type]
        given = (f"{one}={_argument(getattr(kernel, one))}" for one in names)
        return f"{name}({', '.join(given)})"
    left, right = _text(kernel.left), _text(kernel.right)
    if isinstance(kernel, Sum):
        return f"{left} + ({right})" if isinstance(kernel.right, Sum) else f"{left} + {right}"
    left = f"({left})" if isinstance(kernel.left, Sum) else left
    return f"{left} * ({right})" if isinstance(kernel.right, Pair) else f"{left} * {right}"


def _argument(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_argument, value))}{',' * (len(value) == 1)})"
    return '"fixed"' if isinstance(value, str) else repr(float(value))


def parse_kernel(text: str) -> Kernel:
    """The kernel that a text describes.

    The names of `manygp.kernels` called with numbers, tuples of numbers, "fixed" and other
    kernels, their sums and products, and numbers among these. Nothing is evaluated.

    Raises
    ------
    ValueError
        Saying what cannot be read.
    """
    shown = repr(text if len(text) <= 200 else text[:200] + "...")
    tokens = TOKEN.findall(text) if len(text) <= LONGEST else []
    if len(text) > LONGEST or sum(map(tokens.count, "(+*")) > MOST_TERMS:
        raise ValueError(f"the kernel {shown} is too long")
    if "".join(tokens) != text:
        raise ValueError(f"the kernel {shown} holds characters that no kernel has")
    try:
        kernel = _Reader([token for token in tokens if not token.isspace()]).whole()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot read the kernel {shown}: {error}") from error
    if not isinstance(kernel, Kernel):
        raise ValueError(f"{shown} is not a kernel; try 'Matern(nu=2.5) + White()'")
    return kernel


class _Reader:
    """Reads tokens from left to right, by one method for each rule of the grammar."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.depth = iter([*tokens, END]), 0
        self.next = next(self.tokens)

    def take(self) -> str:
        token = self.next
        self.next = next(self.tokens, END)
        return token

    def skip(self, token: str) -> bool:
        """Whether the next token is this one, which is then taken."""
        found = self.next == token
        if found:
            self.take()
        return found

    def whole(self) -> Any:
        value = self.sum()
        if self.next != END:
            raise _meaningless(self.next)
        return value

    def sum(self) -> Any:
        value = self.product()
        while self.skip("+"):
            value = _combined(Sum, value, self.product())
        return value

    def product(self) -> Any:
        value = self.factor()
        while self.skip("*"):
            value = _combined(Product, value, self.factor())
        return value

    def factor(self) -> Any:
        token = self.take()
        if token == "(":
            given, is_tuple = self.arguments()
            if not given or given[-1][0]:
                raise _meaningless("()")
            return tuple(value for _, value in given) if is_tuple else given[0][1]
        if token.strip("\"'") == "fixed" != token:
            return "fixed"
        if token[:1].isdigit() or token[:1] == ".":
            return float(token)
        if not token.isidentifier() or not self.skip("("):
            raise _meaningless(token)
        if token not in KERNELS:
            raise ValueError(f"{token[:50]} is not one of {', '.join(KERNELS)}")
        given, _ = self.arguments()
        named = {name: value for name, value in given if name}
        values = [value for name, value in given if not name]
        if len(values) + len(named) < len(given):
            raise ValueError(f"an argument of {token} is given twice")
        return _scalar(KERNELS[token](*values, **named))

    def arguments(self) -> tuple[list[tuple[str, Any]], bool]:
        """Names, if they have any, and values up to a bracket; and whether there is a comma."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"it has more than {DEEPEST} brackets within brackets")
        given: list[tuple[str, Any]] = []
        commas = 0
        while not self.skip(")"):
            if commas < len(given):
                raise _meaningless(self.next)
            name = self.take().rstrip("=").rstrip() if self.next.endswith("=") else ""
            if given and given[-1][0] and not name:
                raise ValueError(f"a value follows {given[-1][0]}, which has a name")
            given.append((name, self.sum()))
            commas += self.skip(",")
        self.depth -= 1
        return given, commas > 0


def _combined(kind: type[Sum | Product], left: Any, right: Any) -> Kernel:
    """Of two kernels, or of a kernel and a number."""
    if not (isinstance(left, Kernel) or isinstance(right, Kernel)):
        raise ValueError("numbers are added to or multiplied with kernels only")
    return kind(*(Constant(one) if isinstance(one, float) else one for one in (left, right)))


def _scalar(kernel: Kernel) -> Kernel:
    """The same kernel, if only its length-scales are several numbers."""
    for name in kernel.parameters:
        several = isinstance(getattr(kernel, name), tuple)
        if several and not (name == "length_scale" and isinstance(kernel, Stationary)):
            raise ValueError(f"{type(kernel).__name__}.{name} is one number")
    return kernel


def _meaningless(token: str) -> ValueError:
    return ValueError(f"{token[:50] or 'the end'} has no meaning there")
