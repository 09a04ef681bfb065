"""
Curves of a simulator
=====================

A simulator of a wave that moves, spreads and decays has six inputs and returns a curve
of 500 numbers. From 150 of its runs an emulator learns whole curves, says how sure it is of each
number, and finds the inputs that explain an observed curve.
"""

# %%
# The simulator
# -------------
import matplotlib.pyplot as plt
import numpy as np

from manygp import ManyGPEmulator

place = np.linspace(0, 1, 500, endpoint=False)
names = ["speed", "decay", "diffusion", "width", "height", "position"]


def bump(distance, width):
    nearest = np.abs(distance - np.round(distance))
    return np.exp(-0.5 * (nearest / width) ** 2)


def simulate(P):
    """Two waves on a ring after one second: exact, by Fourier."""
    k = 2 * np.pi * np.fft.rfftfreq(500, 1 / 500)
    speed, decay, diffusion = 0.25 * P[:, :1], P[:, 1:2], 10 ** (-3.5 + 1.5 * P[:, 2:3])
    first = bump(place - 0.3, 0.03 + 0.07 * P[:, 3:4])
    second = (0.2 + 0.8 * P[:, 4:5]) * bump(place - 0.5 - 0.3 * P[:, 5:6], 0.05)
    waves = np.fft.rfft(first + second) * np.exp(-1j * k * speed - diffusion * k**2 - decay)
    return np.fft.irfft(waves, 500)


rng = np.random.default_rng(0)
runs, new = rng.uniform(size=(150, 6)), rng.uniform(size=(200, 6))
model = ManyGPEmulator(random_state=0).fit(runs, simulate(runs))
print(f"{model.n_components_} components; left out, {model.model_.report.left:.1%} is unexplained")

# %%
# Curves that it has not seen
# ---------------------------
# The narrow band covers single numbers 90% of the time, and the wide one covers whole curves.
truth, mean = simulate(new), model.predict(new)
pointwise = model.predict_interval(new, 0.9)
whole = model.predict_interval(new, 0.9, simultaneous=True)

figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), sharey=True, layout="constrained")
for ax, i in zip(axes, (0, 1, 2)):
    ax.fill_between(
        place,
        whole[0][i],
        whole[1][i],
        color="C0",
        alpha=0.2,
        linewidth=0,
        label="whole curve, 90%",
    )
    ax.fill_between(
        place, pointwise[0][i], pointwise[1][i], color="C0", alpha=0.4, linewidth=0,
        label="single numbers, 90%",
    )  # fmt: skip
    ax.plot(place, mean[i], color="C0", label="prediction")
    ax.plot(place, truth[i], "k--", linewidth=1, label="simulator")
    ax.set(xlabel="place")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False, fontsize=8)
axes[0].set_ylabel("wave")
plt.show()

# %%
for name, (lower, upper) in {"single numbers": pointwise, "whole curves": whole}.items():
    inside = (lower <= truth) & (truth <= upper)
    share = inside.all(axis=1).mean() if name == "whole curves" else inside.mean()
    print(f"{name}: {share:.0%} inside, 90% promised")

# %%
# What the components look like
# -----------------------------
# They are the principal components, or these rotated so that each is large in few places:
# whichever predicts left-out runs better.
figure, ax = plt.subplots(figsize=(8, 3), layout="constrained")
for component, explained in zip(model.components_[:6], model.explained_):
    ax.plot(place, component, label=f"{explained:.1%} explained")
ax.set(xlabel="place", ylabel="component")
ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Which inputs explain an observed curve?
# ---------------------------------------
# One curve was observed, with noise, and not everywhere. Left-out runs, observed with the same
# noise, tell by how much the emulator's errors have to be enlarged for 90% regions to cover 90%
# of the true inputs. Inputs depend on each other: a wider bump that decays more looks nearly
# the same.
hidden = np.array([0.6, 0.3, 0.4, 0.5, 0.7, 0.4])
observed = simulate(hidden[None])[0] + 0.05 * rng.normal(size=500)
observed[120:170] = np.nan
found = model.match(observed, noise=0.05, n_samples=2000, random_state=0)

figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 3.8), width_ratios=(3, 2), layout="constrained"
)
left.plot(place, observed, ".", color="0.6", markersize=3, label="observed")
left.plot(place, model.predict(found.samples[::40]).T, color="C1", alpha=0.15, linewidth=1)
left.plot(place, simulate(hidden[None])[0], "k--", linewidth=1, label="simulator at the truth")
left.plot([], [], color="C1", label="emulator at samples")
left.legend(frameon=False)
left.set(xlabel="place", ylabel="wave")
right.hlines(np.arange(1, 7), *found.interval(0.9), color="C1", alpha=0.5, lw=9, label="90%")
right.plot(found.mean, np.arange(1, 7), "o", color="C1", label="mean")
right.plot(hidden, np.arange(1, 7), "k|", markersize=18, label="truth")
right.set(yticks=np.arange(1, 7), yticklabels=names, xlim=(0, 1), xlabel="input")
right.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
