"""Kernels as text: exact to be read again, or short to be looked at.

- `write_kernel`, and back with `parse_kernel`: `Constant(variance=2.0, variance_bounds=...) * ...`
- `describe`, which is `str`: `2 * Matern(length_scale=0.5, nu=1.5) + White(0.1)`
- `formula`: `Constant * Matern(nu=1.5) + White`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from manygp.kernels.base import KERNELS, Constant, Kernel, NoisyKernel, Pair, Product, Sum, White
from manygp.kernels.mixed import MixedKernel
from manygp.kernels.sklearn_kernel import SklearnKernel

# What a kernel without noise has as noise.
NO_NOISE = White(0.0, "fixed")
# A description shows at most this number of length-scales; of more, the first two and the last.
MOST_SHOWN = 6

# A text of more characters is not read,
LONGEST = 10**6
# nor one of more brackets, sums and products,
MOST_TERMS = 400
# nor one of more brackets within brackets.
DEEPEST = 100
# A token is a name, maybe that of an argument; a number; "fixed"; a mark; or space.
TOKEN = re.compile(
    r"""[A-Za-z_]\w*(?:\s*=)?|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|"fixed"|'fixed'|[(),+*]|\s+""",
    re.ASCII,
)
FIXED = ("'fixed'", '"fixed"')
END = ""


def describe(kernel: Kernel) -> str:
    """One line for people: values with three digits, without bounds.

    A constant is a plain number, unless it is all there is. Noise of variance 0 is left out.
    """
    kernel = _without_noisy(kernel)
    first, *others = _terms(kernel)
    if type(first) is Constant and not others:
        return f"Constant({_short(first.variance)})"
    return _combination(kernel, _described)


def formula(kernel: Kernel) -> str:
    """A kernel without its hyperparameters: Constant * Matern(nu=2.5) + White."""
    return _combination(_without_noisy(kernel), _named)


def _combination(kernel: Kernel, write: Callable[[Kernel], str]) -> str:
    """Sums and products of kernels, which `write` writes."""
    return " + ".join(
        " * ".join(
            f"({_combination(factor, write)})" if isinstance(factor, Sum) else write(factor)
            for factor in _parts(Product, term)
        )
        for term in _terms(kernel)
    )


def _terms(kernel: Kernel) -> list[Kernel]:
    """The terms of a sum, without noise of variance 0 unless it is all there is."""
    return [term for term in _parts(Sum, kernel) if term != NO_NOISE] or [NO_NOISE]


def _parts(kind: type[Sum | Product], kernel: Kernel) -> Iterator[Kernel]:
    """The terms of a sum, or the factors of a product; any other kernel is its only part."""
    if isinstance(kernel, kind):
        yield from _parts(kind, kernel.left)
        yield from _parts(kind, kernel.right)
    else:
        yield kernel


def _described(kernel: Kernel) -> str:
    if type(kernel) is Constant:
        return _short(kernel.variance)
    if type(kernel) is White:
        return f"White({_short(kernel.variance)})"
    if isinstance(kernel, SklearnKernel):
        return str(kernel.kernel)
    return _call(kernel, [*kernel.parameters, *_settings(kernel)])


def _named(kernel: Kernel) -> str:
    if isinstance(kernel, SklearnKernel):
        return type(kernel.kernel).__name__
    settings = _settings(kernel)
    return _call(kernel, settings) if settings else type(kernel).__name__


def _call(kernel: Kernel, names: list[str]) -> str:
    given = ", ".join(f"{name}={_short(getattr(kernel, name))}" for name in names)
    return f"{type(kernel).__name__}({given})"


def _settings(kernel: Kernel) -> list[str]:
    """Names of the arguments that are neither hyperparameters nor bounds."""
    fitted = {p for name in kernel.parameters for p in (name, f"{name}_bounds")}
    names: list[str] = [field.name for field in fields(kernel)] if is_dataclass(kernel) else []
    return [name for name in names if name not in fitted]


def _short(value: Any) -> str:
    """An argument of a kernel in few characters."""
    if isinstance(value, tuple | list | np.ndarray):
        shown = [_short(one) for one in value]
        if len(shown) > MOST_SHOWN:
            shown = [*shown[:2], "...", shown[-1]]
        return f"[{', '.join(shown)}]"
    if isinstance(value, Kernel):
        return describe(value)
    if isinstance(value, Integral):
        return str(value)
    return f"{value:.3g}" if isinstance(value, Real) else repr(value)


def write_kernel(kernel: Kernel) -> str:
    """A text from which `parse_kernel` makes the same kernel, digit by digit.

    A `NoisyKernel` is written, and read again, as a `Sum`.
    """
    plain = _without_noisy(kernel)
    text = _text(plain)
    if parse_kernel(text) != plain:
        raise ValueError(f"the kernel {kernel!r} has no text")
    return text


def _without_noisy(kernel: Kernel) -> Kernel:
    """The same kernel with a `Sum` in place of each `NoisyKernel`."""
    if isinstance(kernel, MixedKernel):
        return kernel.whole
    if not isinstance(kernel, Pair):
        return kernel
    kind = Sum if type(kernel) is NoisyKernel else type(kernel)
    return kind(_without_noisy(kernel.left), _without_noisy(kernel.right))


def _text(kernel: Kernel) -> str:
    name = type(kernel).__name__
    if KERNELS.get(name) is not type(kernel):
        raise ValueError(
            f"the kernel {name} is {_unknown()}, and has no text; a class of yours gets one by "
            "manygp.kernels.register_kernel, and pickle keeps any model"
        )
    if isinstance(kernel, Pair):
        return _pair_text(kernel)
    names = [field.name for field in fields(kernel)]  # type: ignore[arg-type]
    given = (f"{one}={_argument(getattr(kernel, one))}" for one in names)
    return f"{name}({', '.join(given)})"


def _unknown() -> str:
    return f"not one of {', '.join(sorted(KERNELS))}"


def _pair_text(kernel: Pair) -> str:
    """A sum or product, with the brackets that keep its order."""
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

    The text may call the names of `manygp.kernels` with numbers, tuples of numbers, "fixed" and
    other kernels; it may add and multiply these, with each other and with numbers. No code in it
    is evaluated.

    Raises
    ------
    ValueError
        If it cannot be read; the message tells why.
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
        self.tokens = iter([*tokens, END])
        self.depth = 0
        self.next = next(self.tokens)

    def take(self) -> str:
        token = self.next
        self.next = next(self.tokens, END)
        return token

    def skip(self, token: str) -> bool:
        """Take the next token if it is this one; whether it is."""
        if self.next != token:
            return False
        self.take()
        return True

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
            return self.bracket()
        if token in FIXED:
            return "fixed"
        if token.startswith(tuple(".0123456789")):
            return float(token)
        if token.isidentifier() and self.skip("("):
            return self.call(token)
        raise _meaningless(token)

    def bracket(self) -> Any:
        """A value in brackets, or a tuple; the opening bracket is taken."""
        given, is_tuple = self.arguments()
        if not given or given[-1][0]:
            raise _meaningless("()")
        return tuple(value for _, value in given) if is_tuple else given[0][1]

    def call(self, name: str) -> Kernel:
        """A kernel with its arguments; its name and the opening bracket are taken."""
        if name not in KERNELS:
            raise ValueError(
                f"{name[:50]} is {_unknown()}; if it is a kernel of yours, import the module that "
                "registers it first"
            )
        given, _ = self.arguments()
        named = {key: value for key, value in given if key}
        values = [value for key, value in given if not key]
        if len(values) + len(named) < len(given):
            raise ValueError(f"an argument of {name} is given twice")
        return _scalar(KERNELS[name](*values, **named))

    def arguments(self) -> tuple[list[tuple[str, Any]], bool]:
        """Names (or "") and values up to the closing bracket, and whether there is a comma."""
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
    """The sum or product of two kernels, or of a kernel and a number."""
    if not (isinstance(left, Kernel) or isinstance(right, Kernel)):
        raise ValueError("numbers are added to or multiplied with kernels only")
    return kind(*(Constant(one) if isinstance(one, float) else one for one in (left, right)))


def _scalar(kernel: Kernel) -> Kernel:
    """Refuse a kernel with several numbers where it needs one."""
    for name in kernel.parameters:
        if name not in kernel.per_column and isinstance(getattr(kernel, name), tuple):
            raise ValueError(f"{type(kernel).__name__}.{name} is one number")
    return kernel


def _meaningless(token: str) -> ValueError:
    return ValueError(f"{token[:50] or 'the end'} has no meaning there")
