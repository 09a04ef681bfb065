"""The paper's equations as naive loops, to read beside it and to check the library against."""

import math

import numpy as np


# Kernels: k(x, z) of two rows. `scale` is one length-scale per column.
def scaled_distance(x, z, scale):
    return math.sqrt(sum(((a - b) / s) ** 2 for a, b, s in zip(x, z, scale, strict=True)))


def matern(x, z, nu, scale):
    a = math.sqrt(2 * nu) * scaled_distance(x, z, scale)
    return {0.5: 1.0, 1.5: 1 + a, 2.5: 1 + a + a**2 / 3}[nu] * math.exp(-a)


def rbf(x, z, scale):
    return math.exp(-(scaled_distance(x, z, scale) ** 2) / 2)


def rational_quadratic(x, z, scale, alpha):
    return (1 + scaled_distance(x, z, scale) ** 2 / (2 * alpha)) ** -alpha


def linear(x, z, offset):
    return offset**2 + sum(a * b for a, b in zip(x, z, strict=True))


def periodic(x, z, scale, period):
    waves = sum(math.sin(math.pi * (a - b) / period) ** 2 for a, b in zip(x, z, strict=True))
    return math.exp(-2 * waves / scale**2)


def by_column(x, z, nu, scale, variance):
    """One kernel for each column."""
    columns = zip(x, z, scale, variance, strict=True)
    return [v * matern([a], [b], nu, [s]) for a, b, s, v in columns]


def pairs(k):
    """The sum of the products of all pairs."""
    return sum(k[i] * k[j] for j in range(len(k)) for i in range(j))


def gram(k, X, Z):
    return np.array([[k(x, z) for z in Z] for x in X])


# One Gaussian process: `noise` is one variance per row, `c` the constant prior mean.
def covariance(k, X, noise):
    return gram(k, X, X) + np.diag(noise)


def constant_mean(k, X, y, noise):
    """The constant c that maximises the likelihood: 1' K^-1 y / 1' K^-1 1."""
    precision = np.linalg.inv(covariance(k, X, noise))
    rows = range(len(X))
    weights = [sum(precision[i, j] for i in rows) for j in rows]
    return sum(weights[j] * y[j] for j in rows) / sum(weights)


def log_likelihood(k, X, y, noise, c):
    K = covariance(k, X, noise)
    fit = (y - c) @ np.linalg.inv(K) @ (y - c)
    return -(fit + np.linalg.slogdet(K)[1] + len(X) * math.log(2 * math.pi)) / 2


def posterior(k, X, y, noise, c, x_new):
    """Mean and latent variance at one row."""
    precision = np.linalg.inv(covariance(k, X, noise))
    k_new = np.array([k(x_new, x) for x in X])
    return c + k_new @ precision @ (y - c), k(x_new, x_new) - k_new @ precision @ k_new


# Rules, at one row x': lists over the experts m of mean, variance v, prior variance p, weight w.
def entropy_weights(v, p):
    return [(math.log(pm) - math.log(vm)) / 2 for vm, pm in zip(v, p, strict=True)]


def variance_weights(v, p):
    return [pm - vm for vm, pm in zip(v, p, strict=True)]


def uniform_weights(v, p):
    return [1 / len(v) for _ in v]


def softmax_weights(v, p, temperature=100.0):
    return [1 / sum(math.exp(temperature * (vm - other)) for other in v) for vm in v]


def tempered_weights(v, p, temperature=4.0):
    """(p / v)^(temperature / 2), relative to the largest."""
    weights = [(pm / vm) ** (temperature / 2) for vm, pm in zip(v, p, strict=True)]
    return [wm / max(weights) for wm in weights]


def information_ratio(vm, noise, max_gain=1.0):
    gain = math.log(1 + vm / noise) / 2
    return math.exp(-(math.e - 1) / math.e * min(gain, max_gain))


def poe(mean, v, w):
    """Product of experts, each to the power of its weight: the paper's rule if sum(w) = 1."""
    variance = 1 / sum(wm / vm for vm, wm in zip(v, w, strict=True))
    return variance * sum(wm * m / vm for m, vm, wm in zip(mean, v, w, strict=True)), variance


def gpoe(mean, v, w):
    return poe(mean, v, [wm / sum(w) for wm in w])


def rbcm(mean, v, p, w):
    """As published, for one prior variance p of all experts; BCM if all weights are one."""
    variance = 1 / (sum(wm / vm for vm, wm in zip(v, w, strict=True)) + (1 - sum(w)) / p)
    return variance * sum(wm * m / vm for m, vm, wm in zip(mean, v, w, strict=True)), variance


def rbcm_own_priors(mean, v, p, w, prior_mean):
    common, centre = len(p) / sum(p), sum(prior_mean) / len(prior_mean)
    precision, total = common, common * centre
    for m, vm, pm, wm, cm in zip(mean, v, p, w, prior_mean, strict=True):
        precision += wm * (1 / vm - 1 / pm)
        total += wm * (m / vm - cm / pm)
    return total / precision, 1 / precision


def barycentre(mean, v, w):
    std = sum(wm * math.sqrt(vm) for vm, wm in zip(v, w, strict=True)) / sum(w)
    return sum(wm * m for m, wm in zip(mean, w, strict=True)) / sum(w), std**2


def grbcm(mean, v, common_mean, common_v):
    """RBCM whose prior is the communication expert's posterior; the surest counts in full."""
    w = [1.0 if vm == min(v) else math.log(common_v / vm) / 2 for vm in v]
    return rbcm_own_priors(mean, v, [common_v] * len(v), w, [common_mean] * len(v))


def smoother(k, X, noise, rows, x_new):
    """c such that c @ y is the mean, prior mean 0, of the expert that knows `rows` of X."""
    c = np.zeros(len(X))
    k_new = [k(x_new, X[i]) for i in rows]
    c[rows] = np.linalg.inv(covariance(k, X[rows], noise[rows])) @ k_new
    return c


def nested(k, X, y, noise, parts, c, x_new):
    """Given nothing but the means at x' of the experts that know `parts`, their best answer."""
    C = np.array([smoother(k, X, noise, rows, x_new) for rows in parts])
    precision = np.linalg.inv(C @ covariance(k, X, noise) @ C.T)
    k_new = C @ [k(x_new, x) for x in X]
    mean = c + k_new @ precision @ C @ (y - c)
    return mean, k(x_new, x_new) - k_new @ precision @ k_new


def ence(y, mean, std, n_bins):
    rows, total = sorted(zip(std, y, mean, strict=True)), 0.0
    size = len(rows) // n_bins  # which divides them
    for part in (rows[j * size : (j + 1) * size] for j in range(n_bins)):
        rmv = math.sqrt(sum(s**2 for s, _, _ in part) / size)
        total += abs(rmv - math.sqrt(sum((t - m) ** 2 for _, t, m in part) / size)) / rmv
    return total / n_bins
