"""F2 and F3: how many facts trained models store, and how attention and the feed-forward layer share the work."""

import numpy as np

from mnemoscope.studies.claims import Grid, NotSettledError, Outcome, Pictures, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.facts.sweep import LEVEL, Shape, capacity, trainer
from mnemoscope.studies.statistics import mean_interval

PUBLISHED = 0.15  # facts for each parameter
# Widths, shares of attention (H d_h / d) and of the MLP (m / d), seeds, and how each is trained. With eight heads a share of a
# half needs a width of 16. The source has 25 shares and widths to 181: three widths a factor of three apart settle a slope, and
# shares from a ninth to two thirds of the parameters in the MLP settle whether sharing matters.
SWEEP = {
    "quick": ((8, 16), (1.0,), (1.0,), 8, {"rates": (1e-2,), "batch": 256, "steps": 1024, "look": 128}),
    "full": ((16, 32, 48), (0.5, 2.0), (0.5, 2.0), 8, {}),
}
HEADS, HIDDEN, GRID_SEEDS = (2, 4, 5, 6, 8, 12, 16), (4, 16, 32, 48, 64, 96, 128), 8


def stored_facts(evidence: Evidence) -> Outcome:
    """F2."""
    widths, alphas, betas, seeds, training = SWEEP[evidence.scale]
    parameters, facts, shares = [], [], []
    for d in widths:
        for alpha in alphas:
            hidden = tuple(round(beta * d) for beta in betas)
            shape = Shape(d=d, d_head=int(alpha * d / 8), d_mlp=max(hidden), **training)
            guess = tuple(max(2, int((PUBLISHED * shape.parameters(m)) ** 0.5)) for m in hidden)
            found = capacity(shape, hidden, seeds, guess, room=int(1.6 * max(guess)) + 2)
            parameters += [shape.parameters(m) for m in hidden]
            facts += list(np.maximum(found, 1) ** 2)
            shares += [(alpha, beta) for beta in betas]
    sizes, stored = np.array(parameters, float), np.array(facts, float)  # shape, shape seed
    each = np.array([np.polyfit(np.log(sizes), np.log(stored[:, s]), 1)[0] for s in range(seeds)])
    slope, (low, high) = mean_interval(each)
    rates = stored / sizes[:, None]
    by_share = {share: rates[[s == share for s in shares]].mean(axis=0) for share in dict.fromkeys(shares)}
    means = [x.mean() for x in by_share.values()]
    holds = [low >= 0.8 and high <= 1.2, PUBLISHED / 2 <= rates.mean() <= 2 * PUBLISHED, max(means) <= 2 * min(means)]
    verdict: Verdict = "reproduced" if all(holds) else "refuted" if not any(holds) else "partly"
    if len(by_share) == 1 or evidence.scale == "quick":
        verdict = "undecided"  # one share says nothing of others, and training is cut to an eighth of its steps
    table = ", ".join(f"{x.mean():.3f} at H d_h = {a:g} d, m = {b:g} d" for (a, b), x in by_share.items())
    sentence = (
        f"Facts stored grow as parameters to the power {slope:.2f} [{low:.2f}, {high:.2f}]; facts per parameter: {table} "
        f"(published {PUBLISHED}), {sizes.min():,.0f} to {sizes.max():,.0f} parameters."
    )
    seen = {f"H d_h = {a:g} d, m = {b:g} d": x for (a, b), x in by_share.items()}
    value, interval = mean_interval(rates.mean(axis=0))
    return Outcome(verdict, value, interval, sentence, seen)


def should_recall(d: int, d_head: int, heads: int, hidden: int) -> bool:
    """What the published boundary says of a cell of the trade-off grid."""
    attention = d * d_head * heads
    return attention >= 1280 and d * hidden >= 2300 - attention / 2


def trade_off(evidence: Evidence) -> Outcome:
    """F3."""
    if evidence.scale == "quick":
        raise NotSettledError(
            "The grid of S = R = 32 takes hours on two cores; 'mnemoscope run facts --scale full' on a GPU settles it."
        )
    found = np.zeros((len(HEADS), len(HIDDEN), GRID_SEEDS))
    seeds, hidden = np.tile(np.arange(GRID_SEEDS), len(HIDDEN)), np.repeat(HIDDEN, GRID_SEEDS)
    for i, heads in enumerate(HEADS):
        # the one rate of the source's program for this grid
        shape = Shape(d=32, n_heads=heads, d_head=8, d_mlp=max(HIDDEN), rates=(1e-2,))
        best = trainer(shape, 32, len(seeds))(seeds, np.full(len(seeds), 32), hidden)
        found[i] = best.reshape(len(HIDDEN), GRID_SEEDS)
    return judge_grid(found)


def judge_grid(best: np.ndarray) -> Outcome:
    """F3's verdict from the best accuracies: heads, hidden units, seeds."""
    recalls = (best >= LEVEL).mean(axis=2) >= 0.5
    expected = np.array([[should_recall(32, 8, heads, m) for m in HIDDEN] for heads in HEADS])
    agree = float((recalls == expected).mean())

    def least(heads: int) -> float:
        row = recalls[HEADS.index(heads)]
        return float(HIDDEN[int(np.argmax(row))]) if row.any() else np.inf

    trades = least(16) < least(6)
    verdict: Verdict = "reproduced" if agree >= 0.85 and trades else "partly" if agree >= 0.7 else "refuted"
    # each seed's own agreement, so that the interval is over seeds
    by_seed = np.array([((best[:, :, s] >= LEVEL) == expected).mean() for s in range(best.shape[2])])
    needs = ", ".join(
        f"{heads}: {'none of these' if np.isinf(least(heads)) else f'{least(heads):.0f}'}" for heads in HEADS
    )
    sentence = (
        f"{agree:.0%} of {recalls.size} cells are as the published boundary says. Hidden units needed, by number of heads: "
        f"{needs}."
    )
    grid = Grid(
        rows=tuple(map(str, HEADS)), columns=tuple(map(str, HIDDEN)),
        values=tuple(tuple(float(f"{x:.4g}") for x in row) for row in best.mean(axis=2)),
    )  # fmt: skip
    return Outcome(
        verdict, agree, mean_interval(by_seed)[1], sentence, {"agreement with the boundary": by_seed},
        Pictures(grids={"accuracy": grid}),
    )  # fmt: skip
