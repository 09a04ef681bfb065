"""Kernels as text: what is written is read back digit by digit, and nothing else is read.

Descriptions are short, and in the terms of those who wrote the kernel.
"""

import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest

import manygp
from manygp import ManyGPRegressor
from manygp.kernels import (
    RBF,
    Additive,
    Constant,
    Linear,
    Matern,
    Pairwise,
    Periodic,
    Product,
    RationalQuadratic,
    Stationary,
    Sum,
    White,
    default_kernel,
    describe,
    formula,
    parse_kernel,
    register_kernel,
    write_kernel,
)
from manygp.kernels.base import KERNELS, Kernel, Pair, split_noise
from manygp.kernels.text import DEEPEST, LONGEST, MOST_TERMS

SCALARS = {
    Constant: ("variance",),
    White: ("variance",),
    Linear: ("offset",),
    Periodic: ("length_scale", "period"),
    RationalQuadratic: ("length_scale", "alpha"),
    RBF: ("length_scale",),
    Matern: ("length_scale",),
    Additive: ("length_scale", "variance"),
    Pairwise: ("length_scale", "variance"),
}


def random_number(rng):
    """A number of any size, with all its digits; now and then the smallest or the largest."""
    extremes = [5e-324, np.finfo(float).tiny, np.finfo(float).max, 1.0, 1e16, 1e-5]
    return rng.choice(extremes) if rng.random() < 0.1 else float(10 ** rng.uniform(-300, 300))


def random_bounds(rng):
    return "fixed" if rng.random() < 0.3 else tuple(sorted(random_number(rng) for _ in range(2)))


def random_kernel(rng, depth):
    if depth and rng.random() < 0.7:
        kind = Sum if rng.random() < 0.5 else Product
        return kind(random_kernel(rng, depth - 1), random_kernel(rng, depth - 1))
    kind = list(SCALARS)[rng.integers(len(SCALARS))]
    settings = {}
    for name in SCALARS[kind]:
        settings[name] = random_number(rng)
        settings[f"{name}_bounds"] = random_bounds(rng)
    for name in kind.per_column:
        if rng.random() < 0.5:
            settings[name] = tuple(random_number(rng) for _ in range(rng.integers(1, 5)))
    if kind in (Matern, Additive, Pairwise):
        settings["nu"] = rng.choice([0.5, 1.5, 2.5])  # a NumPy number, as users have them
    return kind(**settings)


def leaves(kernel):
    if isinstance(kernel, Pair):
        return leaves(kernel.left) + leaves(kernel.right)
    return [kernel]


def bits(kernel):
    """The bytes of all numbers of all leaves: equal only if every digit is."""
    numbers = []
    for leaf in leaves(kernel):
        for value in vars(leaf).values():
            numbers.append(b"fixed" if isinstance(value, str) else np.array(value).tobytes())
    return numbers


def test_any_kernel_is_read_back_bit_by_bit():
    rng = np.random.default_rng(0)
    for _ in range(600):
        kernel = random_kernel(rng, depth=rng.integers(5))
        for text in (write_kernel(kernel), repr(kernel).replace("np.float64", "")):
            found = parse_kernel(text)
            assert found == kernel
            assert type(found) is type(kernel)
            assert bits(found) == bits(kernel)


def test_a_text_is_plain_and_readable():
    kernel = 2.0 * Matern((0.5, 0.25), nu=1.5) + White(0.1, "fixed")
    assert write_kernel(kernel) == (
        "Constant(variance=2.0, variance_bounds=(1e-05, 100000.0)) * "
        "Matern(length_scale=(0.5, 0.25), length_scale_bounds=(1e-05, 100000.0), nu=1.5) + "
        'White(variance=0.1, variance_bounds="fixed")'
    )
    assert write_kernel(default_kernel(3)).isascii()


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("2 * Matern(nu=1.5) + White(0.1, 'fixed')", 2 * Matern(nu=1.5) + White(0.1, "fixed")),
        ('RBF(0.5, "fixed")', RBF(0.5, "fixed")),
        ("  RBF ( .5 , ( 1e-3 , 1E+3 ) )\n", RBF(0.5, (1e-3, 1e3))),
        ("RBF((1., 2e0,),)", RBF((1.0, 2.0))),
        ("RBF((3,))", RBF((3.0,))),
        ("((RBF()))", RBF()),
        ("RBF(length_scale_bounds='fixed', length_scale = 2)", RBF(2.0, "fixed")),
        ("Linear() + 3", Linear() + 3),
        ("3 + Linear()", 3 + Linear()),
        ("Linear() * 3", Linear() * 3),
        ("RBF() + Linear() * White()", RBF() + Linear() * White()),
        ("(RBF() + Linear()) * White()", (RBF() + Linear()) * White()),
        ("RBF() * Linear() * White()", RBF() * Linear() * White()),
        ("RBF() * (Linear() * White())", Product(RBF(), Product(Linear(), White()))),
        ("RBF() + (Linear() + White())", Sum(RBF(), Sum(Linear(), White()))),
        ("Sum(RBF(), right=White())", RBF() + White()),
        ("Product(left=Periodic(1, 2), right=RationalQuadratic(alpha=3))",
         Periodic(1.0, 2.0) * RationalQuadratic(alpha=3.0)),
        ("White(0, 'fixed')", White(0.0, "fixed")),
        ("Additive((1, 2), 3, nu=1.5)", Additive((1.0, 2.0), 3.0, nu=1.5)),
        ("2 * Pairwise(1, (2, 3))", 2 * Pairwise(1.0, (2.0, 3.0))),
    ],
)  # fmt: skip
def test_what_people_write_is_read(text, kernel):
    assert parse_kernel(text) == kernel
    assert parse_kernel(write_kernel(kernel)) == kernel


FOREIGN = [
    "__import__('os').system('true')",
    "RBF().__class__",
    "RBF.__init__()",
    "np.float64(1.0)",
    "lambda: RBF()",
    "lambda x: x",
    "f'fixed'",
    "f'{RBF()}'",
    "rb'fixed'",
    "RBF() == RBF()",
    "RBF() < RBF()",
    "RBF() if 1 else RBF()",
    "1if 1else 1",
    "not RBF()",
    "RBF() and White()",
    "[RBF()]",
    "{RBF(): 1}",
    "RBF()[0]",
    "RBF() - White()",
    "-RBF()",
    "RBF(-1)",
    "RBF() / 2",
    "RBF() ** 2",
    "RBF() @ RBF()",
    "RBF(*(1, 2))",
    "RBF(**named)",
    "RBF(x for x in y)",
    "(x := RBF())",
    "RBF(); White()",
    "RBF()\nWhite()",
    "RBF() # a comment",
    "RBF()\\\n + White()",
    "RBF(\x00)",
    "RBF(０)",
    "RBF(\u00a01)",
    "ＲＢＦ()",
    "RBF(1\u066b5)",
    "RBF(🙂)",
    "RBF(1j)",
    "RBF(0x10)",
    "RBF(1_000)",
    "RBF(1e)",
    "RBF(1.2.3)",
    "RBF('auto')",
    "RBF(\"fixed')",
    "RBF(None)",
    "RBF(True)",
    "RBF(...)",
]
MALFORMED = [
    "",
    " ",
    "RBF",
    "RBF(",
    "RBF)",
    "RBF()(",
    "RBF()()",
    "RBF() White()",
    "RBF(,)",
    "RBF(1,,2)",
    "RBF(1 2)",
    "RBF(length_scale=)",
    "RBF(=1)",
    "RBF() +",
    "* RBF()",
    "RBF() + + RBF()",
    "()",
    "RBF(())",
    "((1, 2), RBF())",
    "length_scale=1",
    "(length_scale=1)",
    "RBF(length_scale=1, (1, 2))",
    "RBF(length_scale=1, length_scale=2)",
    "RBF(1, length_scale=2)",
    "RBF(1, 2, 3, 4)",
    "RBF(lengthscale=1)",
    "RBF(RBF())",
    "RBF((1, 'fixed'))",
    "RBF((1, (2, 3)))",
    "RBF('fixed')",
    "RBF(1, 2)",
    "RBF(1, (1, 2, 3))",
    "RBF(1, (2, 1))",
    "RBF(1, (0, 1))",
    "RBF(0)",
    "RBF(1e999)",
    "RBF(1e-999)",
    "RBF(1, (1, 1e999))",
    "1e999 * RBF()",
    "RBF(" + "9" * 5000 + ")",
    "Matern(nu=2)",
    "Matern(nu=(1, 2))",
    "Matern(nu='fixed')",
    "Constant((1, 2))",
    "White((1, 2))",
    "Linear((1, 2))",
    "Additive(1, 0)",
    "Pairwise(nu=(1, 2))",
    "Additive(1, 1, (1, 2), 3)",
    "ByColumn()",
    "Linear((1, 2))",
    "Linear((1, 2), (1, 2))",
    "RationalQuadratic(1, (1, 2), 'fixed')",
    "Sum(RBF())",
    "Sum(RBF(), 2)",
    "Product(RBF(), White(), White())",
    "'fixed' * RBF()",
    "RBF() + (1, 2)",
    "2",
    "2 * 3",
    "2 * 3 * RBF()",
    "(1, 2)",
    "'fixed'",
    "Kernel()",
    "Pair(RBF(), White())",
    "Stationary()",
    "Exp(1)",
    "open('fixed')",
    "eval('fixed')",
]


@pytest.mark.parametrize("text", FOREIGN + MALFORMED)
def test_anything_else_is_an_error_that_shows_the_text(text):
    with pytest.raises(ValueError, match=r"kernel") as caught:
        parse_kernel(text)
    assert repr(text)[:150] in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Exp(1)", "Exp is not one of Additive, Constant, Linear, Matern"),
        ("RBF() White()", "White has no meaning there"),
        ("RBF(1", "the end has no meaning there"),
        ("2 * 3", "numbers are added to or multiplied with kernels only"),
        ("RBF(1e999)", "must be positive and finite"),
        ("RBF(nu=1)", "unexpected keyword argument 'nu'"),
        ("Linear((1, 2))", "Linear.offset is one number"),
        ("RBF(length_scale=1, length_scale=2)", "an argument of RBF is given twice"),
        ("os.system(1)", "holds characters that no kernel has"),
        ("2", "is not a kernel; try 'Matern"),
    ],
)
def test_errors_say_what_is_wrong(text, message):
    with pytest.raises(ValueError, match=r"kernel") as caught:
        parse_kernel(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10**5,
        "(" * DEEPEST + "RBF()" + ")" * DEEPEST,
        "RBF(" * 10**5,
        "RBF()+" * 10**5 + "RBF()",
        "RBF()*" * MOST_TERMS + "RBF()",
        "not " * 10**5 + "RBF()",
        "-" * 10**5 + "RBF()",
        "1" + "-1" * 10**5,
        "a" + ".a" * 10**5,
        "1if 1else " * 10**4 + "1",
        "RBF((" + "1," * 10**5 + ")",
        "RBF(" + "a=1," * 10**5 + ")",
        "RBF(" + "9" * 10**5 + ")",
        "x" * 10**5,
        " " * LONGEST + "RBF()",
        "RBF(" + "1," * LONGEST + ")",
    ],
    ids=lambda text: text[:8],
)
def test_long_and_deep_texts_are_refused_with_little_memory(text):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="kernel") as caught:
            parse_kernel(text)
        assert tracemalloc.get_traced_memory()[1] < 50 * 2**20
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 500


def read_or_refused(text):
    """Whether a text is a kernel; if not, the error says so."""
    try:
        parse_kernel(text)
    except ValueError as error:
        message = str(error)
    else:
        return True
    assert "kernel" in message
    return False


def test_every_stump_of_a_text_is_refused_or_a_kernel():
    whole = write_kernel(2 * Matern((0.5, 2.0)) * (RBF() + Linear(1.0, "fixed")) + White())
    read = [read_or_refused(whole[:end]) for end in range(len(whole) + 1)]
    assert 3 <= sum(read) < 10


def test_random_texts_of_its_own_tokens_are_refused_or_kernels():
    rng = np.random.default_rng(1)
    tokens = [*KERNELS, *"()()()()+*,,=", "1", "2.5", "nu", "'fixed'", "length_scale=", " "]
    texts = ("".join(rng.choice(tokens, rng.integers(1, 12))) for _ in range(20_000))
    assert sum(map(read_or_refused, texts)) > 10


class Wobble(RBF):
    """A kernel that no text knows."""


def test_a_kernel_with_its_noise_split_off_is_written_as_a_sum():
    kernel = RBF(0.3) + White(0.2)
    assert write_kernel(split_noise(kernel)) == write_kernel(kernel)
    assert parse_kernel(write_kernel(split_noise(kernel) * Linear())) == kernel * Linear()
    assert parse_kernel(write_kernel(split_noise(RBF()))) == RBF() + White(0.0, "fixed")


def test_kernels_of_your_own_have_no_text():
    for kernel in (Wobble(), Linear() * (White() + Wobble())):
        with pytest.raises(ValueError, match="the kernel Wobble is not one of Additive, Constant"):
            write_kernel(kernel)


def test_a_kernel_that_only_bears_a_known_name_has_no_text():
    @dataclass(frozen=True)
    class RBF(Matern):
        pass

    with pytest.raises(ValueError, match="the kernel RBF is not one of Additive"):
        write_kernel(RBF())


def test_a_kernel_too_long_to_be_read_is_not_written():
    kernel = RBF()
    for _ in range(MOST_TERMS):
        kernel = kernel + RBF()
    with pytest.raises(ValueError, match="is too long"):
        write_kernel(kernel)
    with pytest.raises(ValueError, match="is too long"):
        write_kernel(RBF(tuple(np.full(LONGEST // 4, 0.123456789))))


def test_as_many_length_scales_as_anyone_has_are_written():
    kernel = default_kernel(20_000, np.random.default_rng(0).random(20_000))
    assert bits(parse_kernel(write_kernel(kernel))) == bits(kernel)


NO_NOISE = White(0.0, "fixed")


@pytest.mark.parametrize(
    ("kernel", "description", "without_values"),
    [
        (1.44 * Matern((0.5, 0.25)) + White(0.1),
         "1.44 * Matern(length_scale=[0.5, 0.25], nu=2.5) + White(0.1)",
         "Constant * Matern(nu=2.5) + White"),
        (RBF(0.123456, "fixed"), "RBF(length_scale=0.123)", "RBF"),
        (RBF(123456.0, (1e-3, 1e9)), "RBF(length_scale=1.23e+05)", "RBF"),
        (RationalQuadratic((2.0,), 1 / 3), "RationalQuadratic(length_scale=[2], alpha=0.333)",
         "RationalQuadratic"),
        (Additive((0.5, 2.0), 0.1) + White(0.1),
         "Additive(length_scale=[0.5, 2], variance=0.1, nu=2.5) + White(0.1)",
         "Additive(nu=2.5) + White"),
        (2 * Pairwise(1.0, (1.0, 2.0), nu=1.5),
         "2 * Pairwise(length_scale=1, variance=[1, 2], nu=1.5)", "Constant * Pairwise(nu=1.5)"),
        (Periodic(1.0, 2.0), "Periodic(length_scale=1, period=2)", "Periodic"),
        (Matern(nu=np.float64(1.5)), "Matern(length_scale=1, nu=1.5)", "Matern(nu=1.5)"),
        (Linear(np.float32(0.1)) * 3, "Linear(offset=0.1) * 3", "Linear * Constant"),
        (RBF() + 0.4, "RBF(length_scale=1) + 0.4", "RBF + Constant"),
        (Constant(1.7), "Constant(1.7)", "Constant"),
        (Constant(1.7) + NO_NOISE, "Constant(1.7)", "Constant"),
        (Constant(2.0) * Constant(3.0), "2 * 3", "Constant * Constant"),
        (White(0.25), "White(0.25)", "White"),
        (NO_NOISE, "White(0)", "White"),
        (NO_NOISE + NO_NOISE, "White(0)", "White"),
        (RBF() + NO_NOISE, "RBF(length_scale=1)", "RBF"),
        (NO_NOISE + RBF() + Linear(), "RBF(length_scale=1) + Linear(offset=1)", "RBF + Linear"),
        (split_noise(2 * RBF()), "2 * RBF(length_scale=1)", "Constant * RBF"),
        (Linear(0.0, "fixed") + White(0.1), "Linear(offset=0) + White(0.1)", "Linear + White"),
        ((RBF() + 2) * (Linear() + White(0.1)),
         "(RBF(length_scale=1) + 2) * (Linear(offset=1) + White(0.1))",
         "(RBF + Constant) * (Linear + White)"),
        (Sum(RBF(), Sum(Linear(), White())), "RBF(length_scale=1) + Linear(offset=1) + White(1)",
         "RBF + Linear + White"),
        (Product(RBF(), Product(Constant(2.0), Linear())),
         "RBF(length_scale=1) * 2 * Linear(offset=1)", "RBF * Constant * Linear"),
        (RBF() * Linear() + 2 * Linear(),
         "RBF(length_scale=1) * Linear(offset=1) + 2 * Linear(offset=1)",
         "RBF * Linear + Constant * Linear"),
    ],
    ids=str,
)  # fmt: skip
def test_a_description_is_one_line_without_bounds(kernel, description, without_values):
    assert str(kernel) == describe(kernel) == f"{kernel}" == description
    assert formula(kernel) == without_values


def test_more_than_six_length_scales_are_abbreviated():
    scales = (0.5, 0.25, 1.0, 2.0, 3.0, 4.0, 3.1)
    assert str(RBF(scales[:6])) == "RBF(length_scale=[0.5, 0.25, 1, 2, 3, 4])"
    assert str(RBF(scales)) == "RBF(length_scale=[0.5, 0.25, ..., 3.1])"
    assert len(str(default_kernel(10_000))) < 100


def test_repr_shows_everything():
    assert repr(RBF(0.5)) == "RBF(length_scale=0.5, length_scale_bounds=(1e-05, 100000.0))"
    assert repr(RBF() + White()).startswith("Sum(left=RBF(length_scale=1.0, ")


def test_a_description_of_one_length_scale_per_kernel_can_be_read():
    kernel = (0.5 * Matern(0.25, nu=1.5) + Linear(2.0)) * RBF(0.125) + White(0.1)
    assert parse_kernel(str(kernel)) == kernel


@dataclass(frozen=True)
class Wave(Stationary):
    """A kernel of somebody's own, with settings of all kinds."""

    length_scale: float = 1.0
    height: float = 2.0
    length_scale_bounds: tuple[float, float] = (0.1, 10.0)
    height_bounds: str = "fixed"
    kind: str = "sine"
    degree: int = 1234
    rising: bool = True
    inner: Kernel = 2.0 * RBF(0.3)
    parameters = ("length_scale", "height")

    def profile(self, r2, work, *, slope):
        raise NotImplementedError


class Plain(Kernel):
    """A kernel that is no dataclass."""

    parameters = ("width",)
    width = 0.5
    width_bounds = "fixed"
    cross = vjp = diag = None


def test_kernels_of_your_own_are_described_by_their_names_and_parameters():
    settings = "kind='sine', degree=1234, rising=True, inner=2 * RBF(length_scale=0.3)"
    assert str(Wave(np.pi)) == f"Wave(length_scale=3.14, height=2, {settings})"
    assert formula(3 * Wave() + White()) == f"Constant * Wave({settings}) + White"
    assert str(Plain() + White()) == "Plain(width=0.5) + White(1)"
    assert formula(Plain()) == "Plain"
    assert str(Wobble((1.0, 2.0))) == "Wobble(length_scale=[1, 2])"


@pytest.fixture
def registered():
    """A kernel that somebody has registered."""

    @dataclass(frozen=True)
    class Cauchy(Stationary):
        length_scale: float = 1.0
        length_scale_bounds: tuple[float, float] | str = (1e-5, 1e5)

        def profile(self, r2, work, *, slope):
            k = 1 / (1 + r2)
            return k, -(k**2), np.empty(0)

    yield register_kernel(Cauchy)
    del KERNELS["Cauchy"]


def test_a_registered_kernel_has_text_file_and_slopes(registered, tmp_path):
    kernel = 2.0 * registered(0.3) + White(0.1)
    assert parse_kernel(write_kernel(kernel)) == kernel
    assert kernel.get_params()["left__right__length_scale"] == 0.3
    X = np.random.default_rng(0).random((30, 2))
    fitted = ManyGPRegressor(kernel=kernel, optimizer=None).fit(X, X.sum(axis=1))
    fitted.save(tmp_path / "model.gp")
    loaded = manygp.load(tmp_path / "model.gp")
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    x, h = X[:1], 1e-6
    numeric = [
        (fitted.predict(x + step) - fitted.predict(x - step)) / (2 * h) for step in h * np.eye(2)
    ]
    slope = loaded.predict(x, return_std=True, return_mean_grad=True)[2]
    np.testing.assert_allclose(np.ravel(slope), np.ravel(numeric), rtol=1e-4)


def test_a_name_is_registered_once(registered):
    assert register_kernel(registered) is registered

    class Cauchy(RBF):
        pass

    with pytest.raises(ValueError, match="a kernel Cauchy is registered already"):
        register_kernel(Cauchy)
