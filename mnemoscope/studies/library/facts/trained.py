"""F2 and F3: how many facts trained models store.

How attention and the feed-forward layer share the work.
"""

from typing import Any, NamedTuple

import numpy as np

from mnemoscope.core.axes import Float
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.facts.slopes import fit_powers
from mnemoscope.studies.library.facts.sweep import LEVEL, Shape, capacity, trainer
from mnemoscope.studies.measurement import InconclusiveError, Measurement
from mnemoscope.studies.plot_data import Grid, Plots
from mnemoscope.studies.scales import FRESH_SEED

PUBLISHED = 0.15  # facts for each parameter


class Sweep(NamedTuple):
    """Which shapes F2 trains at a scale."""

    widths: tuple[int, ...]
    alphas: tuple[float, ...]  # shares of attention, H d_h / d
    betas: tuple[float, ...]  # shares of the MLP, m / d
    seeds: range
    training: dict[str, Any]  # fields of Shape that say how each is trained


# With eight heads a share of a half needs a width of 16. The paper has 25 shares and widths to
# 181: three widths a factor of three apart settle a slope, and shares from a ninth to two thirds of
# the parameters in the MLP settle whether sharing matters.
SWEEP = {
    "quick": Sweep(
        widths=(8, 16),
        alphas=(1.0,),
        betas=(1.0,),
        seeds=range(8),
        training={"rates": (1e-2,), "batch": 256, "steps": 1024, "eval_every": 128},
    ),
    "full": Sweep(
        widths=(16, 32, 48),
        alphas=(0.5, 2.0),
        betas=(0.5, 2.0),
        seeds=range(FRESH_SEED, FRESH_SEED + 16),
        training={},
    ),
}

# the grid of F3
HEADS = (2, 4, 5, 6, 8, 12, 16)
HIDDEN = (4, 16, 32, 48, 64, 96, 128)
GRID_SEEDS = range(FRESH_SEED, FRESH_SEED + 8)


class Stored(NamedTuple):
    """What every shape of a sweep stores."""

    widths: list[int]  # d of each shape
    shares: list[tuple[float, float]]  # alpha and beta of each shape
    parameters: Float[np.ndarray, "shape"]
    facts: Float[np.ndarray, "shape seed"]

    @property
    def rates(self) -> Float[np.ndarray, "shape seed"]:
        """Facts for each parameter."""
        return self.facts / self.parameters[:, None]

    def rates_by_share(self) -> dict[tuple[float, float], np.ndarray]:
        """Facts for each parameter and seed, on average over widths, by share."""
        rates = self.rates
        found = {}
        for share in dict.fromkeys(self.shares):
            of_share = [each == share for each in self.shares]
            found[share] = rates[of_share].mean(axis=0)
        return found


def _sweep(sweep: Sweep) -> Stored:
    """Search for the most facts that every shape stores."""
    widths = []
    shares = []
    parameters = []
    facts = []
    for d in sweep.widths:
        for alpha in sweep.alphas:
            hidden = tuple(round(beta * d) for beta in sweep.betas)
            shape = Shape(d=d, d_head=int(alpha * d / 8), d_mlp=max(hidden), **sweep.training)
            counts = [shape.parameters(m) for m in hidden]
            guess = tuple(max(2, int((PUBLISHED * n) ** 0.5)) for n in counts)
            room = int(1.6 * max(guess)) + 2
            found = capacity(shape, hidden, sweep.seeds, guess, room=room)
            widths += [d for _ in sweep.betas]
            shares += [(alpha, beta) for beta in sweep.betas]
            parameters += counts
            # one that fills its room may hold more
            facts += list(np.where(found < room, np.maximum(found, 1) ** 2, np.inf))
    return Stored(widths, shares, np.array(parameters, float), np.array(facts, float))


def _best_over_worst(rates: Float[np.ndarray, "share seed"]) -> Float[np.ndarray, "seed"]:
    """The best share's facts per parameter over the worst's; infinite if one is not known."""
    known = np.isfinite(rates).all(axis=0)
    finite = np.where(known, rates, 1.0)
    return np.where(known, finite.max(axis=0) / finite.min(axis=0), np.inf)


def measure_capacity(evidence: Evidence) -> Measurement:
    """F2: how the largest number of facts that is stored grows with parameters, seed by seed.

    At quick there is one share only, which says nothing of others.
    """
    stored = _sweep(SWEEP[evidence.scale])
    by_share = stored.rates_by_share()
    parts = {
        "power": fit_powers(stored.parameters, stored.facts),
        "constant": stored.rates.mean(axis=0),
    }
    if len(by_share) > 1:
        parts["however shared out"] = _best_over_worst(np.stack(list(by_share.values())))
    by_seed = {}
    for (alpha, beta), rates in by_share.items():
        name = f"H d_h = {alpha:g} d, m = {beta:g} d"
        by_seed[name] = rates
        parts[f"facts per parameter, {name}"] = rates
    for d, (alpha, beta), facts in zip(stored.widths, stored.shares, stored.facts, strict=True):
        by_seed[f"facts at d = {d}, H d_h = {alpha:g} d, m = {beta:g} d"] = facts
    return Measurement(parts, by_seed)


def should_recall(d: int, d_head: int, heads: int, hidden: int) -> bool:
    """What the published boundary says of a cell of the trade-off grid.

    Args:
        d: width.
        d_head: size of a head.
        heads: how many.
        hidden: hidden units of the feed-forward layer.
    """
    attention = d * d_head * heads
    return attention >= 1280 and d * hidden >= 2300 - attention / 2


def measure_trade_off(evidence: Evidence) -> Measurement:
    """F3: which numbers of heads and of hidden units recall 1,024 facts."""
    if evidence.scale == "quick":
        raise InconclusiveError(
            "The grid of S = R = 32 takes hours on two cores; "
            "'mnemoscope run facts --scale full' on a GPU settles it."
        )
    n_seeds = len(GRID_SEEDS)
    best = np.zeros((len(HEADS), len(HIDDEN), n_seeds))
    each_seed = np.tile(np.array(GRID_SEEDS), len(HIDDEN))
    each_hidden = np.repeat(HIDDEN, n_seeds)
    each_size = np.full(len(each_seed), 32)
    for i, heads in enumerate(HEADS):
        # the one rate of the paper's program for this grid
        shape = Shape(d=32, n_heads=heads, d_head=8, d_mlp=max(HIDDEN), rates=(1e-2,))
        found = trainer(shape, 32, len(each_seed))(each_seed, each_size, each_hidden)
        best[i] = found.reshape(len(HIDDEN), n_seeds)
    return measure_grid(best)


def measure_grid(best: Float[np.ndarray, "heads hidden seed"]) -> Measurement:
    """F3's parts, from the best accuracies.

    A cell recalls if at least half of its seeds reach 99%.

    Args:
        best: the best accuracy of every seed of every cell.
    """
    recalls = (best >= LEVEL).mean(axis=2) >= 0.5
    expected = np.array([[should_recall(32, 8, heads, m) for m in HIDDEN] for heads in HEADS])
    n_recall = dict(zip(HEADS, recalls.sum(axis=1).tolist(), strict=True))
    parts = {
        "as the boundary says": (recalls == expected).ravel(),
        "less with more heads": n_recall[16] - n_recall[6],
    }
    parts |= {f"recall with {heads} heads": n for heads, n in n_recall.items()}
    by_seed = {
        f"best accuracy, seed {seed}": best[:, :, i].ravel() for i, seed in enumerate(GRID_SEEDS)
    }
    grid = Grid.of(HEADS, HIDDEN, best.mean(axis=2))
    return Measurement(parts, by_seed, Plots(grids={"accuracy": grid}))
