"""R12-R15: what the two heads do, by where they look and by what is lost without them."""

from collections.abc import Callable
from functools import wraps

import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.ablation import cases, forced_patterns, knock_outs
from mnemoscope.probes.attention import mean_pattern, roles
from mnemoscope.studies.claims import Outcome
from mnemoscope.studies.evidence import MIN_SEEDS, Evidence
from mnemoscope.studies.library.remember.mastery import masters, percent, short
from mnemoscope.studies.library.remember.conditions import TWO
from mnemoscope.studies.statistics import share_interval, share_verdict
from mnemoscope.tasks import Permutation, Split

DAMAGED, INTACT = 0.6, 0.9  # a skill after a knock-out


def _attention(task: Permutation, model: Transformer, split: Split) -> dict[str, dict[str, Array]]:
    lists = {"new": (task.n_symbols - 1,), "again": (0,)}
    return {
        name: roles(task, mean_pattern(task, model, task.list_tokens(split.held_out, s))) for name, s in lists.items()
    }


def roles_of_heads(evidence: Evidence) -> Outcome:
    """R12."""
    both = evidence.measure(TWO, _attention)
    seen = both["new"]
    averages = (seen["x_to_outputs"] >= 0.9) & (seen["unevenness"] <= 0.15)
    local = (seen["y_to_self"] >= 0.9) & (seen["x_to_preceding_output"] >= 0.5)
    verdict, share, interval = share_verdict((averages & local[:, ::-1]).any(axis=1))
    sentence = (
        f"{percent(share)} of seeds have one averaging and one local head; an averaging head is in "
        f"{percent(averages.any(axis=1).mean())}, a local one in {percent(local.any(axis=1).mean())}. The more local head gives "
        f"{seen['x_to_preceding_output'].max(axis=1).mean():.2f} of a query to the output before it, the more self-attending "
        f"one {seen['y_to_self'].max(axis=1).mean():.2f} of an output to itself."
    )
    by_seed = {
        "averaging head": averages.any(axis=1), "local head": local.any(axis=1),
        "x to preceding output": seen["x_to_preceding_output"].max(axis=1), "y to self": seen["y_to_self"].max(axis=1),
        "repeated x to first x": both["again"]["last_x_to_first_x"].max(axis=1),
        "repeated x to first output": both["again"]["last_x_to_first_output"].max(axis=1),
    }  # fmt: skip
    return Outcome(verdict, share, interval, sentence, by_seed)


def among_masters(judge: Callable[[Evidence, np.ndarray], Outcome]) -> Callable[[Evidence], Outcome]:
    """Judge only the seeds that master both skills: what a model cannot do, no part of it does."""

    @wraps(judge)
    def judged(evidence: Evidence) -> Outcome:
        able = masters(evidence, TWO)
        if able.sum() >= MIN_SEEDS:
            return judge(evidence, able)
        share, interval = share_interval(able)
        return Outcome(
            "undecided", share, interval, f"Only {int(able.sum())} seeds master both skills; {MIN_SEEDS} are needed."
        )

    return judged


@among_masters
def division_of_work(evidence: Evidence, able: np.ndarray) -> Outcome:
    """R13."""
    out = evidence.measure(TWO, knock_outs)

    def without(kind: str) -> tuple[np.ndarray, np.ndarray]:
        return out[kind]["elimination"][:, 1:3], out[kind]["recall"][:, 1:3]  # seed, head

    def divided(kind: str) -> np.ndarray:
        e, r = without(kind)
        only_e, only_r = (e <= DAMAGED) & (r >= INTACT), (r <= DAMAGED) & (e >= INTACT)
        return np.any(only_e & only_r[:, ::-1], axis=1)

    verdict, share, interval = share_verdict(divided("mean")[able])
    e, r = without("mean")
    both_fall = np.any((e <= DAMAGED) & (r <= DAMAGED), axis=1)[able].mean()
    idle = np.any((e >= INTACT) & (r >= INTACT), axis=1)[able].mean()
    sentence = (
        f"Of {int(able.sum())} seeds that master both skills, {percent(share)} divide them between the heads when heads are set to "
        f"their mean ({percent(divided('zero')[able].mean())} when set to zero). In {percent(both_fall)} of seeds losing one head "
        f"takes both skills down, and in {percent(idle)} some head is needed for neither."
    )
    by_seed = {
        "masters both": able, "divided": divided("mean"), "elimination without head 0": e[:, 0],
        "elimination without head 1": e[:, 1], "recall without head 0": r[:, 0], "recall without head 1": r[:, 1],
    }  # fmt: skip
    return Outcome(verdict, share, interval, sentence, by_seed)


@among_masters
def attention_and_mlp(evidence: Evidence, able: np.ndarray) -> Outcome:
    """R14."""
    recall = evidence.measure(TWO, knock_outs)["mean"]["recall"]
    names = cases(evidence.settings[TWO].spec.model)
    attention, mlp = recall[:, names.index("L0 attention")], recall[:, names.index("L0 mlp")]
    verdict, share, interval = share_verdict(((attention <= 0.5) & (mlp <= 0.5))[able])
    sentence = (
        f"Recall falls to {percent(attention[able].mean())} with attention at its mean and to {percent(mlp[able].mean())} with the "
        f"feed-forward layer at its mean; both are at or below 50% in {percent(share)} of seeds."
    )
    by_seed = {"masters both": able, "recall without attention": attention, "recall without mlp": mlp}
    return Outcome(verdict, share, interval, sentence, by_seed)


@among_masters
def local_pattern(evidence: Evidence, able: np.ndarray) -> Outcome:
    """R15."""
    seen, forced = evidence.measure(TWO, _attention)["again"], evidence.measure(TWO, forced_patterns)
    needed_most = evidence.measure(TWO, knock_outs)["mean"]["recall"][:, 1:3].argmin(axis=1)

    def of_recall_head(values: np.ndarray) -> np.ndarray:
        return values[np.arange(len(able)), needed_most]

    preceding = of_recall_head(seen["x_to_preceding_output"])
    even, kept = (of_recall_head(forced[pattern]["recall"]) for pattern in ("even", "local"))
    verdict, share, interval = share_verdict(((preceding >= 0.5) & (even <= 0.5))[able])
    if verdict != "refuted" and short(evidence, TWO):  # where heads look still moves late in training
        verdict = "undecided"
    places = ("last_x_to_first_x", "last_x_to_first_output", "last_x_to_preceding_output")
    first_x, first_y, before = (f"{of_recall_head(seen[place])[able].mean():.2f}" for place in places)
    sentence = (
        f"The head that recall needs most looks mostly at the output just before in {percent((preceding >= 0.5)[able].mean())} of "
        f"seeds; asked again for x1, it gives {first_x} to x1, {first_y} to y1 and {before} to the output before. Made to look "
        f"evenly, recall is {percent(even[able].mean())}; made to look only at the output before, "
        f"{percent(kept[able].mean())}. (In one "
        "layer, where outputs look cannot change any answer.)"
    )
    by_seed = {
        "masters both": able,
        "mass on preceding output": preceding,
        "recall, even pattern": even,
        "recall, local pattern": kept,
    }
    return Outcome(verdict, share, interval, sentence, by_seed)
