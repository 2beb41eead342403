"""M2, M7 and M8: memories that are trained.

How much they hold, which optimizer stores more, and when the loss spikes.
"""

from typing import NamedTuple

import numpy as np

from mnemoscope.core.axes import Float
from mnemoscope.studies.claims import Curve, Grid, Outcome, Plots, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.memories.capacity import Memory, capacity, written_capacity
from mnemoscope.studies.library.memories.optimized import Cell, errors_by_rate
from mnemoscope.studies.statistics import Interval, mean_interval, slope


class Sizes(NamedTuple):
    """Which memories are filled at a scale.

    The paper has 5 seeds, and up to 32,768 steps for the two-layer memory.
    """

    seeds: int
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
        seeds=8,
        widths=(8, 11, 16),
        shapes=((8, 8), (8, 16), (11, 22)),
        steps=1024,
        few=((8, 16),),
        exact=(),
    ),
    "full": Sizes(
        seeds=8,
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
RATES = (0.1, 1.0, 10.0, 100.0)
FIRST_ROW = {10: 0.0638, 100: 0.0307, 1000: 0.0183}  # SGD, batch 64, 10,240 samples, rate 1
STEPS = tuple(np.geomspace(0.1, 100, 10).tolist())  # rates and correlations of the map of spikes
CORRELATIONS = (-0.9, -0.6, -0.3, 0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.99)
SPIKE = 0.1  # a rise of the loss in one step that is more is a spike
Filled = dict[str, list[tuple[int, np.ndarray]]]  # by kind: d^2 or m d, and N of every seed


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
    for d in sizes.widths:
        guess, room = _room(d**2 / PUBLISHED["linear"])
        found["linear"].append((d**2, capacity(Memory(d=d), seeds, guess, room)))
        found["written"].append((d**2, written_capacity(d, seeds, _room(d**2 / 4)[1])))
        if d in sizes.exact:
            found["trained"].append((d**2, capacity(Memory(d=d, level=1.0), seeds, guess, room)))
    two_layer = Memory(kind="two-layer", steps=sizes.steps, lr=0.03)
    for d, m in sizes.shapes:
        guess, room = _room(m * d / PUBLISHED["two-layer"])
        memory = two_layer.model_copy(update={"d": d, "m": m})
        found["two-layer"].append((m * d, capacity(memory, seeds, guess, room)))
    for d, m in sizes.few:
        guess = int(m * d / PUBLISHED["32 outputs"])
        memory = two_layer.model_copy(update={"d": d, "m": m, "classes": OUTPUTS})
        found["32 outputs"].append((m * d, capacity(memory, seeds, guess, int(1.5 * guess))))
    by_size = {kind: sorted(points, key=lambda point: point[0]) for kind, points in found.items()}
    return {kind: points for kind, points in by_size.items() if points}


def _lines(found: Filled) -> dict[str, Curve]:
    """N against parameters, for each kind with two sizes or more, and the published line."""
    curves = {}
    for kind, points in found.items():
        if len(points) < 2:
            continue
        size = np.array([parameters for parameters, _ in points], float)
        n = np.stack([n for _, n in points], axis=1).astype(float)
        panel = "all pairs" if kind in ("trained", "written") else kind
        how = "written" if kind == "written" else "trained"
        curves[f"{panel}: {how}"] = Curve.over_seeds(size, n)
        load = size / PUBLISHED[kind]
        said = load if kind == "32 outputs" else np.array([_root(x) for x in load])
        curves[f"{panel}: published"] = Curve.over_seeds(size, said[None])
    return curves


def _fit(
    found: Filled,
) -> tuple[dict[str, tuple[float, Interval]], dict[str, Float[np.ndarray, "seed"]]]:
    """The slope of log load against log parameters of both memories, and every kind's constant."""
    slopes = {}
    constants = {}
    for kind, points in found.items():
        size = np.array([parameters for parameters, _ in points], float)
        load = np.stack([_load(kind, n) for _, n in points])  # size seed
        constants[kind] = np.exp(np.log(size[:, None] / load).mean(axis=0))
        if kind in ("linear", "two-layer"):
            slopes[kind] = mean_interval([slope(size, each) for each in load.T])
    return slopes, constants


def _capacity_verdict(straight: list[bool], near: bool) -> Verdict:
    """The rule of M2: whether each memory's slope is 1, and both constants are as published."""
    if all(straight) and near:
        return "reproduced"
    return "partly" if any(straight) else "refuted"


def capacity_grows(evidence: Evidence) -> Outcome:
    """M2: the largest N that training stores, against the number of parameters.

    Reproduced if the slope of log(N ln N) against log(parameters) has its interval within .85 to
    1.15 for both memories and both constants are within a factor of 2 of the published ones,
    partly if one memory has such a slope, else refuted.
    """
    sizes = CAPACITY[evidence.scale]
    found = _filled(sizes)
    slopes, constants = _fit(found)
    straight = [low >= 0.85 and high <= 1.15 for _, (low, high) in slopes.values()]
    near = all(0.5 <= constants[kind].mean() / PUBLISHED[kind] <= 2 for kind in slopes)
    verdict = _capacity_verdict(straight, near)
    if evidence.scale == "quick" and verdict != "reproduced":
        # small widths, and a two-layer memory trained for a small part of the paper's steps
        verdict = "undecided"
    constant = {kind: f"{each.mean():.2f}" for kind, each in constants.items()}
    main = "; ".join(
        f"{kind}: slope {mean:.2f} [{low:.2f}, {high:.2f}], "
        f"parameters {'d^2' if kind == 'linear' else 'm d'} = "
        f"{constant[kind]} N ln N (published {PUBLISHED[kind]})"
        for kind, (mean, (low, high)) in slopes.items()
    )
    exact = [kind for kind in ("trained", "written") if kind in constants]
    whole = ", ".join(f"{constant[kind]} {kind}" for kind in exact)
    sentence = (
        f"Largest N stored at 99%, {sizes.seeds} seeds: {main}. With {OUTPUTS} outputs: "
        f"m d = {constant['32 outputs']} N (published {PUBLISHED['32 outputs']}). "
        f"All pairs right: d^2 / (N ln N) = {whole} (published {PUBLISHED['written']:g})."
    )
    value, interval = slopes["linear"]
    by_seed = {SERIES[kind]: each for kind, each in constants.items()}
    return Outcome(verdict, value, interval, sentence, by_seed, Plots(curves=_lines(found)))


def _best(cell: Cell) -> np.ndarray:
    """Every seed's error at the rate with the lowest mean: the best rate, never the best seed."""
    found = errors_by_rate(cell, RATES)
    return found[np.nan_to_num(found.mean(axis=1), nan=np.inf).argmin()]


ByWidth = dict[int, Float[np.ndarray, "seed"]]  # errors at each width of FIRST_ROW


class Stored(NamedTuple):
    """Errors of the cells that M7 compares, by width."""

    by_rate: dict[int, Float[np.ndarray, "rate seed"]]
    """SGD, batch 64, at the rates .1, 1 and 10."""
    small: ByWidth
    """SGD at rate 1, batch 16."""
    large: ByWidth
    """SGD at rate 1, batch 1024."""
    best: dict[str, ByWidth]
    """At the best rate, batch 256, by optimizer."""

    @property
    def first_row(self) -> ByWidth:
        """What the first published row says: SGD at rate 1, batch 64."""
        return {d: errors[1] for d, errors in self.by_rate.items()}


def _optimized() -> Stored:
    """Every cell that M7 compares."""
    by_rate = {d: errors_by_rate(Cell(d=d), (0.1, 1.0, 10.0)) for d in FIRST_ROW}
    small = {d: errors_by_rate(Cell(d=d, batch=16), (1.0,))[0] for d in FIRST_ROW}
    large = {d: errors_by_rate(Cell(d=d, batch=1024), (1.0,))[0] for d in FIRST_ROW}
    sgd = {d: _best(Cell(d=d, batch=256, optimizer="sgd")) for d in FIRST_ROW}
    adam = {d: _best(Cell(d=d, batch=256, optimizer="adam")) for d in FIRST_ROW}
    return Stored(by_rate, small, large, {"sgd": sgd, "adam": adam})


def _gains(stored: Stored) -> dict[str, Float[np.ndarray, "seed"]]:
    """What each of the three statements says is positive: differences of errors, over widths."""
    sgd = stored.best["sgd"]
    adam = stored.best["adam"]
    rates = [stored.by_rate[d][0] - stored.by_rate[d][2] for d in FIRST_ROW]
    batches = [stored.large[d] - stored.small[d] for d in FIRST_ROW]
    optimizers = [sgd[d] - adam[d] for d in (100, 1000)]
    return {
        "rate .1 minus rate 10": np.mean(rates, axis=0),
        "batch 1024 minus batch 16": np.mean(batches, axis=0),
        "best SGD minus best Adam": np.mean(optimizers, axis=0),
    }


def _optimizers_verdict(holds: list[bool], met: bool) -> Verdict:
    """The rule of M7: which statements hold, and whether the first published row is met."""
    if all(holds) and met:
        return "reproduced"
    return "partly" if any(holds) else "refuted"


def _means(errors: ByWidth) -> str:
    """The mean error at each width."""
    return " ".join(f"{each.mean():.4f}" for each in errors.values())


def what_optimizers_store(evidence: Evidence) -> Outcome:
    """M7: what a larger rate, a smaller batch and Adam each gain in error.

    Reproduced if all three gains have intervals above 0 and the first published row is met within
    25%, refuted if none has, else partly.
    """
    stored = _optimized()
    intervals = {name: mean_interval(gain) for name, gain in _gains(stored).items()}
    holds = [low > 0 for _, (low, _) in intervals.values()]
    row = stored.first_row
    met = all(abs(row[d].mean() / published - 1) <= 0.25 for d, published in FIRST_ROW.items())
    table = "; ".join(
        f"{name} {mean:.4f} [{low:.4f}, {high:.4f}]"
        for name, (mean, (low, high)) in intervals.items()
    )
    bests = "; ".join(f"{kind} {_means(each)}" for kind, each in stored.best.items())
    sentence = (
        f"SGD at rate 1, batch 64: {_means(row)} at d=10, 100, 1000 (published "
        f"{' '.join(f'{x:.4f}' for x in FIRST_ROW.values())}). Gained in error: {table}. "
        f"Best rates, batch 256: {bests}."
    )
    by_seed = {f"SGD, rate 1, d={d}": each for d, each in row.items()}
    for kind, by_width in stored.best.items():
        by_seed |= {f"best {kind}, d={d}": each for d, each in by_width.items()}
    value, interval = intervals["rate .1 minus rate 10"]
    return Outcome(_optimizers_verdict(holds, met), value, interval, sentence, by_seed)


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


def _spike_map() -> tuple[dict[str, Grid], str]:
    """Largest rise and last loss over rates and correlations, and what they say in one line."""
    losses = np.array([[two_tokens(rate, a) for rate in STEPS] for a in CORRELATIONS])
    rise = np.maximum(np.diff(losses).max(axis=2), 0)  # correlation rate
    last = losses[:, :, -1]
    rates = [f"{rate:.2g}" if rate < 100 else f"{rate:.0f}" for rate in STEPS]
    rows = [f"{a:g}" for a in CORRELATIONS]
    # argmax is the first rate that spikes, where any does
    first = [rates[row.argmax()] if row.any() else "none" for row in rise > SPIKE]
    best = [rates[at] for at in last.argmin(axis=1)]
    table = "; ".join(f"{a}: {s}, {b}" for a, s, b in zip(rows, first, best, strict=True))
    return {"rise": Grid.of(rows, rates, rise), "last": Grid.of(rows, rates, last)}, table


def _spikes_verdict(spike: bool, lower: bool) -> Verdict:
    """The rule of M8: whether only the large rate spikes, and whether it ends lower."""
    if spike and lower:
        return "reproduced"
    return "partly" if spike or lower else "refuted"


def spikes(evidence: Evidence) -> Outcome:
    """M8: the largest rise of the loss in one step and the loss after 35, at rates 10 and 1.

    Reproduced if only rate 10 rises by more than .1 in some step and its last loss is the lower
    one, partly if only one of the two is so, else refuted.
    """
    losses = {rate: two_tokens(rate) for rate in (10.0, 1.0)}
    rises = {rate: float(np.diff(each).max()) for rate, each in losses.items()}
    spike = rises[10.0] > SPIKE and rises[1.0] <= SPIKE
    lower = bool(losses[10.0][-1] < losses[1.0][-1])
    grids, table = _spike_map()
    ends = " and ".join(f"{each[-1]:.4f}" for each in losses.values())
    sentence = (
        f"The largest rise of the loss is {rises[10.0]:.2f} at rate 10 and "
        f"{max(rises[1.0], 0.0):.2f} at rate 1; after 35 steps it is {ends}. Of rates .1 to 100, "
        f"the smallest that spikes and the best after 35 steps, by correlation: {table}."
    )
    curves = {
        f"rate {rate:g}": Curve.over_seeds(np.arange(len(each)), each[None])
        for rate, each in losses.items()
    }
    end = float(losses[10.0][-1])
    plots = Plots(curves=curves, grids=grids)
    return Outcome(_spikes_verdict(spike, lower), end, (end, end), sentence, {}, plots)
