"""R12-R15: what the two heads do, by where they look and by what is lost without them."""

from collections.abc import Callable
from functools import wraps

import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.ablation import forced_patterns, knock_outs, list_cases
from mnemoscope.probes.attention import mean_pattern, roles
from mnemoscope.studies.claims import Outcome
from mnemoscope.studies.evidence import MIN_SEEDS, Evidence
from mnemoscope.studies.library.remember.conditions import TWO
from mnemoscope.studies.library.remember.mastery import masters, percent, short
from mnemoscope.studies.statistics import share_interval, share_verdict
from mnemoscope.tasks import Permutation, Split

# a skill after a knock-out
DAMAGED = 0.6  # at most
INTACT = 0.9  # at least


def _attention(task: Permutation, model: Transformer, split: Split) -> dict[str, dict[str, Array]]:
    """Where the heads look when the last pair is new, and when it is the first one again."""
    found = {}
    for name, last_pair in (("new", task.n_symbols - 1), ("again", 0)):
        tokens = task.list_tokens(split.held_out, (last_pair,))
        found[name] = roles(task, mean_pattern(task, model, tokens))
    return found


def roles_of_heads(evidence: Evidence) -> Outcome:
    """R12: where each of the two heads looks.

    A seed does it if one head averages (90% of a query on outputs, within .15 of even) and the
    other is local (.9 of an output on itself, .5 of a query on the output before): reproduced if at
    least 90% of seeds do, refuted if at most 10%, partly in between.
    """
    both = evidence.measure(TWO, _attention)
    seen = both["new"]
    averages = (seen["x_to_outputs"] >= 0.9) & (seen["unevenness"] <= 0.15)
    local = (seen["y_to_self"] >= 0.9) & (seen["x_to_preceding_output"] >= 0.5)
    # one head averages and the other one is local
    verdict, share, interval = share_verdict((averages & local[:, ::-1]).any(axis=1))
    before = seen["x_to_preceding_output"].max(axis=1)
    to_self = seen["y_to_self"].max(axis=1)
    sentence = (
        f"{percent(share)} of seeds have one averaging and one local head; an averaging head is in "
        f"{percent(averages.any(axis=1).mean())}, a local one in "
        f"{percent(local.any(axis=1).mean())}. The more local head gives {before.mean():.2f} of a "
        "query to the output before it, the more self-attending one "
        f"{to_self.mean():.2f} of an output to itself."
    )
    by_seed = {
        "averaging head": averages.any(axis=1),
        "local head": local.any(axis=1),
        "x to preceding output": before,
        "y to self": to_self,
        "repeated x to first x": both["again"]["last_x_to_first_x"].max(axis=1),
        "repeated x to first output": both["again"]["last_x_to_first_output"].max(axis=1),
    }
    return Outcome(verdict, share, interval, sentence, by_seed)


def among_masters(
    judge: Callable[[Evidence, np.ndarray], Outcome],
) -> Callable[[Evidence], Outcome]:
    """Judge only the seeds that master both skills: what a model cannot do, no part of it does."""

    @wraps(judge)
    def judged(evidence: Evidence) -> Outcome:
        able = masters(evidence, TWO)
        if able.sum() >= MIN_SEEDS:
            return judge(evidence, able)
        share, interval = share_interval(able)
        sentence = f"Only {int(able.sum())} seeds master both skills; {MIN_SEEDS} are needed."
        return Outcome("undecided", share, interval, sentence)

    return judged


def _divided(elimination: np.ndarray, recall: np.ndarray) -> np.ndarray:
    """Seeds in which one head's loss takes elimination alone, and the other's recall alone.

    Both are skills without one head: (seed, head).
    """
    only_elimination = (elimination <= DAMAGED) & (recall >= INTACT)
    only_recall = (recall <= DAMAGED) & (elimination >= INTACT)
    return np.any(only_elimination & only_recall[:, ::-1], axis=1)


@among_masters
def division_of_work(evidence: Evidence, able: np.ndarray) -> Outcome:
    """R13: both skills without each head, set to its mean, by seeds that master both.

    A seed divides if one head's loss takes elimination to at most 60% and leaves recall at 90% or
    more, and the other's the reverse: reproduced if at least 90% of seeds do, refuted if at most
    10%, partly in between.
    """
    out = evidence.measure(TWO, knock_outs)

    def without(kind: str) -> tuple[np.ndarray, np.ndarray]:
        return out[kind]["elimination"][:, 1:3], out[kind]["recall"][:, 1:3]  # seed, head

    elimination, recall = without("mean")
    divided = _divided(elimination, recall)
    verdict, share, interval = share_verdict(divided[able])
    with_zero = _divided(*without("zero"))[able].mean()
    both_fall = np.any((elimination <= DAMAGED) & (recall <= DAMAGED), axis=1)[able].mean()
    idle = np.any((elimination >= INTACT) & (recall >= INTACT), axis=1)[able].mean()
    sentence = (
        f"Of {int(able.sum())} seeds that master both skills, {percent(share)} divide them between "
        f"the heads when heads are set to their mean ({percent(with_zero)} when set to zero). In "
        f"{percent(both_fall)} of seeds losing one head takes both skills down, and in "
        f"{percent(idle)} some head is needed for neither."
    )
    by_seed = {
        "masters both": able,
        "divided": divided,
        "elimination without head 0": elimination[:, 0],
        "elimination without head 1": elimination[:, 1],
        "recall without head 0": recall[:, 0],
        "recall without head 1": recall[:, 1],
    }
    return Outcome(verdict, share, interval, sentence, by_seed)


@among_masters
def attention_and_mlp(evidence: Evidence, able: np.ndarray) -> Outcome:
    """R14: recall with attention, and with the feed-forward layer, at its mean.

    Of the seeds that master both skills: reproduced if both leave recall at 50% or less in at least
    90%, refuted if in at most 10%, partly in between.
    """
    recall = evidence.measure(TWO, knock_outs)["mean"]["recall"]
    names = list_cases(evidence.conditions[TWO].spec.model)
    attention = recall[:, names.index("L0 attention")]
    mlp = recall[:, names.index("L0 mlp")]
    verdict, share, interval = share_verdict(((attention <= 0.5) & (mlp <= 0.5))[able])
    sentence = (
        f"Recall falls to {percent(attention[able].mean())} with attention at its mean and to "
        f"{percent(mlp[able].mean())} with the feed-forward layer at its mean; both are at or "
        f"below 50% in {percent(share)} of seeds."
    )
    by_seed = {
        "masters both": able,
        "recall without attention": attention,
        "recall without mlp": mlp,
    }
    return Outcome(verdict, share, interval, sentence, by_seed)


@among_masters
def local_pattern(evidence: Evidence, able: np.ndarray) -> Outcome:
    """R15: where the head that recall needs most looks, and recall with an even pattern forced.

    A seed that masters both skills does it if that head gives at least half of a query to the
    output before and the even pattern takes recall to at most 50%: reproduced if at least 90% do,
    refuted if at most 10%, partly in between. A short training can only refute it.
    """
    seen = evidence.measure(TWO, _attention)["again"]
    forced = evidence.measure(TWO, forced_patterns)
    without = evidence.measure(TWO, knock_outs)["mean"]["recall"][:, 1:3]  # seed, head
    needed_most = without.argmin(axis=1)

    def of_recall_head(values: np.ndarray) -> np.ndarray:
        return values[np.arange(len(able)), needed_most]

    preceding = of_recall_head(seen["x_to_preceding_output"])
    even, kept = (of_recall_head(forced[pattern]["recall"]) for pattern in ("even", "local"))
    local = preceding >= 0.5
    verdict, share, interval = share_verdict((local & (even <= 0.5))[able])
    if verdict != "refuted" and short(evidence, TWO):
        # where heads look still moves late in training
        verdict = "undecided"
    places = ("last_x_to_first_x", "last_x_to_first_output", "last_x_to_preceding_output")
    first_x, first_y, before = (
        f"{of_recall_head(seen[place])[able].mean():.2f}" for place in places
    )
    sentence = (
        "The head that recall needs most looks mostly at the output just before in "
        f"{percent(local[able].mean())} of seeds; asked again for x1, it gives {first_x} to x1, "
        f"{first_y} to y1 and {before} to the output before. Made to look evenly, recall is "
        f"{percent(even[able].mean())}; made to look only at the output before, "
        f"{percent(kept[able].mean())}. (In one layer, where outputs look cannot change any "
        "answer.)"
    )
    by_seed = {
        "masters both": able,
        "mass on preceding output": preceding,
        "recall, even pattern": even,
        "recall, local pattern": kept,
    }
    return Outcome(verdict, share, interval, sentence, by_seed)
