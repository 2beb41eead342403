"""M2, M7 and M8: memories that are trained.

How much they hold, which optimizer stores more, and when the loss spikes.
"""

from typing import NamedTuple

import numpy as np

from mnemoscope.core.axes import Float
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.memories.capacity import Memory, capacity, written_capacity
from mnemoscope.studies.library.memories.draws import seeds_of
from mnemoscope.studies.library.memories.optimized import SEEDS, Cell, errors_by_rate
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.plot_data import Curve, Grid, Plots
from mnemoscope.studies.scales import Scale


class Sizes(NamedTuple):
    """Which memories are filled at a scale.

    The paper has 5 seeds, and up to 32,768 steps for the two-layer memory.
    """

    seeds: range
    widths: tuple[int, ...]
    """Of the linear memory."""
    shapes: tuple[tuple[int, int], ...]
    """(width, hidden units) of the two-layer one."""
    steps: int
    """Of the two-layer one."""
    few: tuple[tuple[int, int], ...]
    """Shapes with 32 outputs."""
    exact: tuple[int, ...]
    """Widths with all pairs right; where fewer than 100 fit, 99% are all of them already."""


CAPACITY = {
    "quick": Sizes(
        seeds=seeds_of("quick", 8, 16),
        widths=(8, 11, 16),
        shapes=((8, 8), (8, 16), (11, 22)),
        steps=1024,
        few=((8, 16),),
        exact=(),
    ),
    "full": Sizes(
        seeds=seeds_of("full", 8, 16),
        widths=(8, 11, 16, 23, 32, 45, 64, 91, 128),
        shapes=((8, 8), (8, 32), (11, 22), (16, 16), (16, 64), (23, 46), (32, 32), (32, 128)),
        steps=16_384,
        few=((8, 64), (16, 64), (32, 64)),
        exact=(23, 32, 45, 64),
    ),
}
OUTPUTS = 32
# parameters over load; the last two with all pairs right
PUBLISHED = {"linear": 1.3, "two-layer": 0.35, "32 outputs": 1.2, "trained": 2.0, "written": 2.0}
SERIES = {  # how each kind's constants are called in figures
    "linear": "linear, parameters over N ln N",
    "two-layer": "two-layer, parameters over N ln N",
    "32 outputs": "32 outputs, parameters over N",
    "trained": "all pairs, trained",
    "written": "all pairs, written",
}
PARTS = {  # and in the criterion
    "linear": "one matrix",
    "two-layer": "two layers",
    "32 outputs": "two layers, 32 outputs",
    "trained": "all pairs, trained",
    "written": "all pairs, written",
}
RATES = (0.1, 1.0, 10.0, 100.0)
FIRST_ROW = {10: 0.0638, 100: 0.0307, 1000: 0.0183}  # SGD, batch 64, 10,240 samples, rate 1
STEPS = tuple(np.geomspace(0.1, 100, 10).tolist())  # rates and correlations of the map of spikes
CORRELATIONS = (-0.9, -0.6, -0.3, 0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.99)


class Filling(NamedTuple):
    """How much a memory of one size holds."""

    shape: str
    """In words."""
    parameters: int
    """d^2 or m d."""
    n: Float[np.ndarray, "seed"]
    """The largest N that each seed stores."""


Filled = dict[str, list[Filling]]  # by kind, the smallest size first


def _root(load: float) -> float:
    """The N with N ln N = load, or 2."""
    n = 2.0
    for _ in range(60):
        n = max(2.0, load / np.log(n))
    return n


def _room(load: float) -> tuple[int, int]:
    """The N with N ln N = load, and room for half as many again."""
    n = _root(load)
    return int(n), int(1.5 * n) + 8


def _load(kind: str, n: np.ndarray) -> np.ndarray:
    """What capacity is counted in.

    N ln N where every pair has an output of its own, N where there are 32 outputs.
    """
    n = np.maximum(n, 2)
    return n if kind == "32 outputs" else n * np.log(n)


def _filled(sizes: Sizes) -> Filled:
    """The largest N of every seed, for each kind of memory and each of its sizes."""
    seeds = sizes.seeds
    found: Filled = {kind: [] for kind in PUBLISHED}

    def add(kind: str, shape: str, parameters: int, n: np.ndarray) -> None:
        found[kind].append(Filling(shape, parameters, n.astype(float)))

    for d in sizes.widths:
        guess, room = _room(d**2 / PUBLISHED["linear"])
        shape = f"d = {d}"
        add("linear", shape, d**2, capacity(Memory(d=d), seeds, guess, room))
        add("written", shape, d**2, written_capacity(d, seeds, _room(d**2 / 4)[1]))
        if d in sizes.exact:
            add("trained", shape, d**2, capacity(Memory(d=d, level=1.0), seeds, guess, room))
    two_layer = Memory(kind="two-layer", steps=sizes.steps, lr=0.03)
    for d, m in sizes.shapes:
        guess, room = _room(m * d / PUBLISHED["two-layer"])
        memory = two_layer.model_copy(update={"d": d, "m": m})
        add("two-layer", f"d = {d}, m = {m}", m * d, capacity(memory, seeds, guess, room))
    for d, m in sizes.few:
        guess = int(m * d / PUBLISHED["32 outputs"])
        memory = two_layer.model_copy(update={"d": d, "m": m, "classes": OUTPUTS})
        n = capacity(memory, seeds, guess, int(1.5 * guess))
        add("32 outputs", f"d = {d}, m = {m}", m * d, n)
    return {
        kind: sorted(fillings, key=lambda filling: filling.parameters)
        for kind, fillings in found.items()
        if fillings
    }


def _lines(found: Filled) -> dict[str, Curve]:
    """N against parameters, for each kind with two sizes or more, and the published line."""
    curves = {}
    for kind, fillings in found.items():
        if len(fillings) < 2:
            continue
        size = np.array([filling.parameters for filling in fillings], float)
        n = np.stack([filling.n for filling in fillings], axis=1)
        panel = "all pairs" if kind in ("trained", "written") else kind
        how = "written" if kind == "written" else "trained"
        curves[f"{panel}: {how}"] = Curve.over_seeds(size, n)
        load = size / PUBLISHED[kind]
        said = load if kind == "32 outputs" else np.array([_root(x) for x in load])
        curves[f"{panel}: published"] = Curve.over_seeds(size, said[None])
    return curves


def _slopes(
    size: Float[np.ndarray, "size"], load: Float[np.ndarray, "size seed"]
) -> Float[np.ndarray, "seed"]:
    """Each seed's power b in load = c size^b, the best fit in logarithms."""
    return np.polyfit(np.log(size), np.log(load), 1)[0]


def _fit(
    found: Filled,
) -> tuple[dict[str, Float[np.ndarray, "seed"]], dict[str, Float[np.ndarray, "seed"]]]:
    """Each seed's power of both memories, and its constant of every kind."""
    powers = {}
    constants = {}
    for kind, fillings in found.items():
        size = np.array([filling.parameters for filling in fillings], float)
        load = np.stack([_load(kind, filling.n) for filling in fillings])  # size seed
        constants[kind] = np.exp(np.log(size[:, None] / load).mean(axis=0))
        if kind in ("linear", "two-layer"):
            powers[kind] = _slopes(size, load)
    return powers, constants


def measure_capacity(evidence: Evidence) -> Measurement:
    """M2: the largest N that training stores, against the number of parameters."""
    found = _filled(CAPACITY[evidence.scale])
    powers, constants = _fit(found)
    parts = {f"{PARTS[kind]}: power": each for kind, each in powers.items()}
    parts |= {f"{PARTS[kind]}: constant": each for kind, each in constants.items()}
    by_seed = {SERIES[kind]: each for kind, each in constants.items()}
    for kind, fillings in found.items():
        by_seed |= {f"N of {PARTS[kind]}, {each.shape}": each.n for each in fillings}
    return Measurement(parts, by_seed, Plots(curves=_lines(found)))


ByWidth = dict[int, Float[np.ndarray, "seed"]]  # errors at each width of FIRST_ROW


class Stored(NamedTuple):
    """Errors of the cells that M7 compares, by width. NaN where a memory diverged."""

    by_rate: dict[float, ByWidth]
    """SGD, batch 64, by rate: .1, 1 and 10."""
    by_batch: dict[int, ByWidth]
    """SGD at rate 1, by batch: 16 and 1024."""
    best: dict[str, ByWidth]
    """At the best rate, batch 256, by optimizer."""


def _best(cell: Cell, seeds: tuple[int, ...]) -> np.ndarray:
    """Every seed's error at the rate with the lowest mean: the best rate, never the best seed."""
    found = errors_by_rate(cell, RATES, seeds)
    return found[np.nan_to_num(found.mean(axis=1), nan=np.inf).argmin()]


def _optimized(seeds: tuple[int, ...]) -> Stored:
    """Every cell that M7 compares."""
    rates = (0.1, 1.0, 10.0)
    found = {d: errors_by_rate(Cell(d=d), rates, seeds) for d in FIRST_ROW}
    by_rate = {rate: {d: found[d][i] for d in FIRST_ROW} for i, rate in enumerate(rates)}
    by_batch = {
        batch: {d: errors_by_rate(Cell(d=d, batch=batch), (1.0,), seeds)[0] for d in FIRST_ROW}
        for batch in (16, 1024)
    }
    sgd = {d: _best(Cell(d=d, batch=256, optimizer="sgd"), seeds) for d in FIRST_ROW}
    adam = {d: _best(Cell(d=d, batch=256, optimizer="adam"), seeds) for d in FIRST_ROW}
    return Stored(by_rate, by_batch, {"sgd": sgd, "adam": adam})


def _gain(
    worse: ByWidth, better: ByWidth, widths: tuple[int, ...] = tuple(FIRST_ROW)
) -> Float[np.ndarray, "seed"]:
    """Each seed's error in one cell less that in another, mean over widths."""
    return np.mean([worse[d] - better[d] for d in widths], axis=0)


def _grid_seeds(scale: Scale) -> tuple[int, ...]:
    """The published seeds at quick; at full others, for which a tenth of an error is told apart."""
    return SEEDS if scale == "quick" else tuple(seeds_of(scale, 10, 64))


def measure_optimizers(evidence: Evidence) -> Measurement:
    """M7: what a larger rate, a smaller batch and Adam each gain in error, seed by seed."""
    stored = _optimized(_grid_seeds(evidence.scale))
    parts = {
        "a larger rate": _gain(stored.by_rate[0.1], stored.by_rate[10.0]),
        "a smaller batch": _gain(stored.by_batch[1024], stored.by_batch[16]),
        "Adam": _gain(stored.best["sgd"], stored.best["adam"], (100, 1000)),
    }
    for d, published in FIRST_ROW.items():
        parts[f"first row, d = {d}"] = stored.by_rate[1.0][d] / published
        parts[f"best SGD, d = {d}"] = stored.best["sgd"][d]
        parts[f"best Adam, d = {d}"] = stored.best["adam"][d]
    by_seed = {}
    for d in FIRST_ROW:
        by_seed |= {f"SGD, rate {rate:g}, d={d}": x[d] for rate, x in stored.by_rate.items()}
        by_seed |= {f"SGD, batch {batch}, d={d}": x[d] for batch, x in stored.by_batch.items()}
        by_seed |= {f"best {kind}, d={d}": x[d] for kind, x in stored.best.items()}
    return Measurement(parts, by_seed)


def two_tokens(rate: float, correlation: float = 0.95, steps: int = 35) -> np.ndarray:
    """The loss before each step and after the last, of two correlated inputs.

    Their probabilities are 3/4 and 1/4.

    Args:
        rate: Of gradient descent.
        correlation: The inner product of the two embeddings.
        steps: How many are taken.
    """
    e = np.array([[1.0, 0.0], [correlation, np.sqrt(1 - correlation**2)]])
    p = np.array([0.75, 0.25])
    w = np.zeros((2, 2))
    losses = []
    for _ in range(steps + 1):
        logits = e @ w.T  # U is the identity, so scores are W e_x themselves
        top = logits.max(axis=1, keepdims=True)
        log_p = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
        losses.append(-(p * np.diag(log_p)).sum())
        w = w - rate * np.einsum("x,xo,xi->oi", p, np.exp(log_p) - np.eye(2), e)
    return np.array(losses)


def _largest_rise(losses: Float[np.ndarray, "step"]) -> float:
    """The largest rise of a loss in one step; 0 where it never rises."""
    return max(0.0, float(np.diff(losses).max()))


def _spike_map() -> dict[str, Grid]:
    """Largest rise and last loss over rates and correlations."""
    losses = np.array([[two_tokens(rate, a) for rate in STEPS] for a in CORRELATIONS])
    rise = np.maximum(np.diff(losses).max(axis=2), 0)  # correlation rate
    rates = [f"{rate:.2g}" if rate < 100 else f"{rate:.0f}" for rate in STEPS]
    rows = [f"{a:g}" for a in CORRELATIONS]
    return {"rise": Grid.of(rows, rates, rise), "last": Grid.of(rows, rates, losses[:, :, -1])}


def measure_spikes(evidence: Evidence) -> Measurement:
    """M8: the largest rise of the loss in one step and the loss after 35, at rates 10 and 1."""
    large = two_tokens(10.0)
    small = two_tokens(1.0)
    parts = {
        "spikes": _largest_rise(large),
        "learns faster": small[-1] - large[-1],
        "small steps": _largest_rise(small),
        "without correlation": _largest_rise(two_tokens(10.0, correlation=0.0)),
        "last loss at rate 10": large[-1],
        "last loss at rate 1": small[-1],
    }
    curves = {
        name: Curve.over_seeds(np.arange(len(each)), each[None])
        for name, each in {"rate 10": large, "rate 1": small}.items()
    }
    return Measurement(parts, plots=Plots(curves=curves, grids=_spike_map()))
