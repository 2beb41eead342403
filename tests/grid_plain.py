"""Cells of the grid of optimized memories by a second route: NumPy alone, gradients by hand,
without a line of the package.

`python tests/grid_plain.py 100 10 64 norm` prints the mean error over seeds 42 to 51 at d = 100,
rate 10 and batch 64 (SGD, 10,240 samples), with W e_x divided by its length as the authors do, from
random numbers of NumPy's own; without `norm` it is read out as it is.
"""

import sys

import numpy as np

EPS = 1e-6  # added to the squared length by which W e_x is divided


def frequencies(n, a=2.0):
    """p(x) proportional to x^-a."""
    p = np.arange(1, n + 1, dtype=float) ** -a
    return p / p.sum()


def read_out(w, e, u, norm):
    """Scores u_y . W e_x, with W e_x and its length (1 where it is not divided)."""
    carried = e @ w.T
    length = np.ones((len(e), 1))
    if norm:
        length = np.sqrt((carried**2).sum(axis=1, keepdims=True) + EPS)
    return carried / length @ u.T, carried, length


def gradient_of(w, e, u, answers, norm):
    """The derivative in W of the mean cross-entropy of a batch.

    With z = h / |h|, |h| = sqrt(h . h + eps), a change dz of the loss comes to h as
    dz / |h| - h (h . dz) / |h|^3.
    """
    scores, carried, length = read_out(w, e, u, norm)
    said = np.exp(scores - scores.max(axis=1, keepdims=True))
    said /= said.sum(axis=1, keepdims=True)
    said[np.arange(len(e)), answers] -= 1
    back = said @ u / len(e)
    if norm:
        along = (carried * back).sum(axis=1, keepdims=True)
        back = back / length - carried * along / length**3
    return back.T @ e


def train(w, e, u, draws, rate, norm=False, optimizer="sgd"):
    """W after one pass over batches of draws."""
    n_outputs, d = u.shape
    for batch in draws:
        gradient = gradient_of(w, e[batch], u, batch % n_outputs, norm)
        if optimizer == "adam":
            gradient = gradient / (np.abs(gradient) + 1e-8) / d
        w = w - rate * gradient
    return w


def error(w, e, u, norm=False):
    """The probability mass of the inputs that are answered wrongly."""
    scores = read_out(w, e, u, norm)[0]
    wrong = scores.argmax(axis=1) != np.arange(len(e)) % len(u)
    return frequencies(len(e))[wrong].sum()


def one_seed(seed, d, rate, batch, norm, samples=10_240):
    """The error of one seed, from NumPy's random numbers."""
    rng = np.random.default_rng(seed)
    e = rng.normal(size=(100, d)) / d**0.5
    u = rng.normal(size=(5, d)) / d**0.5
    w = rng.normal(size=(d, d)) / d**0.5
    draws = rng.choice(100, size=(samples // batch, batch), p=frequencies(100))
    return error(train(w, e, u, draws, rate, norm), e, u, norm)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit("usage: python tests/grid_plain.py D RATE BATCH [norm]")
    d, rate, batch = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    found = [one_seed(seed, d, rate, batch, "norm" in sys.argv) for seed in range(42, 52)]
    print(f"mean {np.mean(found):.4f} by seed {np.round(found, 4)}")
