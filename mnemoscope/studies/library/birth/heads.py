"""B1-B3: what one and two layers can do, and what the two heads attend to."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.memories import head_scores
from mnemoscope.studies.claims import Map, Outcome, Pictures, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.conditions import ALL, ONE, RANDOM, TWO
from mnemoscope.studies.library.birth.curves import drawn
from mnemoscope.studies.library.birth.sample import answers, sampled, task_of
from mnemoscope.studies.library.birth.scale_rules import settled, trained
from mnemoscope.studies.statistics import MOST, mean_interval, share_verdict
from mnemoscope.tasks import Bigrams

SHOWN = 28  # tokens of an attention map


def one_or_two_layers(evidence: Evidence) -> Outcome:
    """B1."""
    trained(evidence, ONE, "General models of one and two layers")
    right = {name: evidence.measure(name, answers)["right"] for name in (ONE, TWO)}
    least = min(map(len, right.values()))
    gain = right[TWO][:least] - right[ONE][:least]
    value, interval = mean_interval(right[TWO])
    solved, one = (right[TWO] >= 0.95).mean(), right[ONE].mean()
    verdict: Verdict = "partly" if (gain >= 0.2).mean() >= MOST else "refuted"
    if solved >= MOST and 0.4 <= one <= 0.7:
        verdict = "reproduced"
    sentence = (
        f"Right where the context knows: one layer {one:.1%} (seeds from {right[ONE].min():.1%} to {right[ONE].max():.1%}), "
        f"two layers {value:.1%} ({right[TWO].min():.1%} to {right[TWO].max():.1%}); {solved:.0%} of the two-layer seeds "
        "reach 95%."
    )
    curves = {f"{n} layer{'s' * (n > 1)}": drawn(evidence, name, "right") for n, name in ((1, ONE), (2, TWO))}
    seeds = {"one layer": right[ONE], "two layers": right[TWO]}
    return Outcome(verdict, value, interval, sentence, seeds, Pictures(curves=curves))


def _repeated(tokens: Array) -> Array:
    """Whether each token of a sequence was there before."""
    same = tokens[:, :, None] == tokens[:, None, :]
    return (same & jnp.tril(jnp.ones(same.shape[1:], bool), -1)[None]).any(axis=2)


def attention(task: Bigrams, model: Transformer, _: Any) -> dict[str, Array]:
    """Head scores at predictable positions, and at repeated tokens that are no triggers."""
    tokens, triggers = sampled(task)
    inputs = tokens[:, :-1]
    roles = jax.vmap(task.roles)(inputs, triggers)
    asked = head_scores(model, inputs, (roles >= 2).astype(float), task.length // 4)
    others = head_scores(model, inputs, (_repeated(inputs) & (roles == 0)).astype(float))
    return asked | {"induction at others": others["induction"]}


def _maps(evidence: Evidence, name: str) -> dict[str, Map]:
    """Both heads of the first finished seed on one sequence of the sample."""
    run, task = evidence.run(name), task_of(evidence, name)
    seed = next(seed for seed in run.seeds if run.outcome(seed) == "finished")
    tokens = np.asarray(sampled(task, 1)[0][0])[:-1][:SHOWN]
    trace = run.model(seed).run_with_cache(tokens.tolist())[1]
    names = tuple(task.token_names[t] for t in tokens)
    return {
        f"layer {layer}": Map(
            tokens=names, weights=tuple(tuple(round(float(x), 3) for x in row) for row in trace["pattern", layer][0])
        )
        for layer in (0, 1)
    }


def two_heads(evidence: Evidence) -> Outcome:
    """B2."""
    seen = evidence.measure(ALL, attention)
    verdict, share, interval = share_verdict((seen["previous"] >= 0.5) & (seen["induction"] >= 0.5))
    sentence = (
        f"Layer 0 gives {seen['previous'].mean():.1%} of its attention to the position before, layer 1 "
        f"{seen['induction'].mean():.1%} to positions after an earlier occurrence, {seen['to answer'].mean():.1%} to "
        f"positions that hold the answer; both are above half in {share:.0%} of seeds."
    )
    seeds = {
        "layer 0 to the position before": seen["previous"],
        "layer 1 after an earlier occurrence": seen["induction"],
    }
    curves = {name: drawn(evidence, ALL, name) for name in ("previous", "induction", "to answer")}
    return Outcome(verdict, share, interval, sentence, seeds, Pictures(curves=curves, maps=_maps(evidence, ALL)))


def any_token(evidence: Evidence) -> Outcome:
    """B3."""
    seen, fixed = evidence.measure(RANDOM, attention), evidence.measure(ALL, attention)
    others = seen["induction at others"]
    verdict, share, interval = share_verdict(others >= 0.5)
    verdict = settled(evidence, verdict)
    sentence = (
        f"Trained with random triggers, layer 1 gives {others.mean():.1%} of its attention to positions after an earlier "
        f"occurrence at repeated tokens that are no triggers, {seen['induction'].mean():.1%} at triggers; trained with fixed "
        f"triggers, {fixed['induction at others'].mean():.1%} and {fixed['induction'].mean():.1%}."
    )
    seeds = {
        "random triggers: at other tokens": others, "random triggers: at triggers": seen["induction"],
        "fixed triggers: at other tokens": fixed["induction at others"], "fixed triggers: at triggers": fixed["induction"],
    }  # fmt: skip
    return Outcome(verdict, share, interval, sentence, seeds, Pictures(maps=_maps(evidence, RANDOM)))
