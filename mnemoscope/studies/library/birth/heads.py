"""B1-B3: what one and two layers can do, and what the two heads attend to."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.weight_memories import head_scores
from mnemoscope.studies.claims import AttentionMap, Outcome, Plots, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.conditions import ALL, ONE, RANDOM, TWO
from mnemoscope.studies.library.birth.curves import drawn
from mnemoscope.studies.library.birth.sample import answers, sampled, task_of
from mnemoscope.studies.library.birth.scale_rules import settled, trained
from mnemoscope.studies.statistics import MOST, mean_interval, share_verdict
from mnemoscope.tasks import Bigrams

SHOWN = 28  # tokens of an attention map


def one_or_two_layers(evidence: Evidence) -> Outcome:
    """B1: accuracy at predictable positions with one layer and with two.

    Reproduced if two layers reach 95% in at least 90% of seeds and one layer's mean lies between
    40% and 70%; partly if two layers are better by at least 20 points in 90% of seeds; else
    refuted.
    """
    trained(evidence, ONE, "General models of one and two layers")
    one = evidence.measure(ONE, answers)["accuracy"]
    two = evidence.measure(TWO, answers)["accuracy"]
    n_pairs = min(len(one), len(two))
    gain = two[:n_pairs] - one[:n_pairs]
    solved = (two >= 0.95).mean()
    verdict: Verdict = "partly" if (gain >= 0.2).mean() >= MOST else "refuted"
    if solved >= MOST and 0.4 <= one.mean() <= 0.7:
        verdict = "reproduced"
    value, interval = mean_interval(two)
    sentence = (
        f"Right where the context knows: one layer {one.mean():.1%} "
        f"(seeds from {one.min():.1%} to {one.max():.1%}), "
        f"two layers {value:.1%} ({two.min():.1%} to {two.max():.1%}); "
        f"{solved:.0%} of the two-layer seeds reach 95%."
    )
    curves = {
        "1 layer": drawn(evidence, ONE, "accuracy"),
        "2 layers": drawn(evidence, TWO, "accuracy"),
    }
    seeds = {"one layer": one, "two layers": two}
    return Outcome(verdict, value, interval, sentence, seeds, Plots(curves=curves))


def _repeated(tokens: Array) -> Array:
    """Whether each token of a sequence was there before."""
    same = tokens[:, :, None] == tokens[:, None, :]
    before = jnp.tril(jnp.ones(same.shape[1:], bool), -1)[None]
    return (same & before).any(axis=2)


def attention(task: Bigrams, model: Transformer, _: Any) -> dict[str, Array]:
    """Head scores at predictable positions, and at repeated tokens that are no triggers.

    Args:
        task: the text that the model was trained on.
        model: the model of one seed.
        _: the seed's world, of which bigram text has none.
    """
    tokens, triggers = sampled(task)
    inputs = tokens[:, :-1]
    roles = jax.vmap(task.roles)(inputs, triggers)
    predictable = (roles >= 2).astype(float)
    asked = head_scores(model, inputs, predictable, task.length // 4)
    repeated_others = (_repeated(inputs) & (roles == 0)).astype(float)
    others = head_scores(model, inputs, repeated_others)
    return asked | {"induction at others": others["induction"]}


def _attention_map(tokens: tuple[str, ...], pattern: np.ndarray) -> AttentionMap:
    """A head's pattern on named tokens, three decimals of it."""
    weights = tuple(tuple(round(float(x), 3) for x in row) for row in pattern)
    return AttentionMap(tokens=tokens, weights=weights)


def _maps(evidence: Evidence, name: str) -> dict[str, AttentionMap]:
    """Both heads of the first finished seed on one sequence of the sample."""
    run = evidence.run(name)
    task = task_of(evidence, name)
    seed = next(seed for seed in run.seeds if run.outcome(seed) == "finished")
    tokens = np.asarray(sampled(task, 1)[0][0])[:-1][:SHOWN]
    cache = run.model(seed).run_with_cache(tokens.tolist())[1]
    names = tuple(task.token_names[t] for t in tokens)
    return {
        f"layer {layer}": _attention_map(names, np.asarray(cache["pattern", layer][0]))
        for layer in (0, 1)
    }


def two_heads(evidence: Evidence) -> Outcome:
    """B2: how much attention layer 0 gives to the position before, and layer 1 after a repeat.

    A seed does it if layer 0 gives at least half of its attention to the position before (over the
    first quarter of the positions) and layer 1, at predictable positions, at least half to
    positions after an earlier occurrence: reproduced if at least 90% of seeds do, refuted if at
    most 10% do, partly in between.
    """
    seen = evidence.measure(ALL, attention)
    does_it = (seen["previous"] >= 0.5) & (seen["induction"] >= 0.5)
    verdict, share, interval = share_verdict(does_it)
    sentence = (
        f"Layer 0 gives {seen['previous'].mean():.1%} of its attention to the position before, "
        f"layer 1 {seen['induction'].mean():.1%} to positions after an earlier occurrence, "
        f"{seen['to answer'].mean():.1%} to positions that hold the answer; "
        f"both are above half in {share:.0%} of seeds."
    )
    seeds = {
        "layer 0 to the position before": seen["previous"],
        "layer 1 after an earlier occurrence": seen["induction"],
    }
    curves = {name: drawn(evidence, ALL, name) for name in ("previous", "induction", "to answer")}
    plots = Plots(curves=curves, maps=_maps(evidence, ALL))
    return Outcome(verdict, share, interval, sentence, seeds, plots)


def any_token(evidence: Evidence) -> Outcome:
    """B3: layer 1's attention after an earlier occurrence, at repeated tokens that are no triggers.

    A seed trained with random triggers does it if that is at least half: reproduced if at least 90%
    of seeds do, refuted if at most 10% do, partly in between; the quick scale is undecided unless
    reproduced.
    """
    seen = evidence.measure(RANDOM, attention)
    fixed = evidence.measure(ALL, attention)
    others = seen["induction at others"]
    verdict, share, interval = share_verdict(others >= 0.5)
    verdict = settled(evidence, verdict)
    sentence = (
        f"Trained with random triggers, layer 1 gives {others.mean():.1%} of its attention "
        "to positions after an earlier occurrence at repeated tokens that are no triggers, "
        f"{seen['induction'].mean():.1%} at triggers; trained with fixed triggers, "
        f"{fixed['induction at others'].mean():.1%} and {fixed['induction'].mean():.1%}."
    )
    seeds = {
        "random triggers: at other tokens": others,
        "random triggers: at triggers": seen["induction"],
        "fixed triggers: at other tokens": fixed["induction at others"],
        "fixed triggers: at triggers": fixed["induction"],
    }
    plots = Plots(maps=_maps(evidence, RANDOM))
    return Outcome(verdict, share, interval, sentence, seeds, plots)
