"""B4 and B13: an induction head without training, written down by hand or by three gradient steps."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.core.seeds import on_devices
from mnemoscope.models import Transformer, init
from mnemoscope.models.rewrites import score_tables
from mnemoscope.probes.memories import first_keys, output_memory, second_keys
from mnemoscope.studies.claims import Outcome, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.conditions import ALL, OUTPUT
from mnemoscope.studies.library.birth.sample import sampled, task_of
from mnemoscope.studies.statistics import MOST, mean_interval, share_interval
from mnemoscope.tasks import Bigrams
from mnemoscope.theory.gradients import output_gradient, sampled_gradient, theorem_model, theorem_task, three_steps
from mnemoscope.theory.induction import induction_weights, simplified_model

WIDTHS = (128, 256, 512, 1024)
THEOREM = {"quick": (12, 24, 128, 128), "full": (24, 64, 512, 1024)}  # tokens, length; batches, sequences in each


def _answered(model: Transformer, task: Bigrams, tokens: Array, triggers: Array) -> tuple[Array, Array, Array]:
    """What a model answers on a sample of sequences, where it is asked, and where it is right."""
    rows = jnp.broadcast_to(jnp.arange(task.length)[None], tokens[:, :-1].shape)
    said = score_tables.read_logits(model.config, model.params, tokens[:, :-1], rows).argmax(axis=-1)
    asked = jax.vmap(task.roles)(tokens[:, :-1], triggers) >= 2
    return said, asked, asked & (said == tokens[:, 1:])


def written_by_hand(evidence: Evidence) -> Outcome:
    """B4."""
    seeds, size = evidence.settings[ALL].seeds, 64 if evidence.scale == "full" else 16
    task = task_of(evidence, ALL).model_copy(update={"length": 256})
    sample = sampled(task, size)

    def one(d: int, seed: Array) -> Array:
        config = simplified_model(d)
        params = init(config, task.d_vocab, task.length, key=jax.random.key(seed))
        model = Transformer(config, induction_weights(config, params, task.fixed_triggers))
        _, asked, right = _answered(model, task, *sample)
        return right.sum() / asked.sum()

    right = {d: on_devices(partial(one, d), seeds)(np.arange(seeds)) for d in WIDTHS}
    value, interval = mean_interval(right[256])
    means = [right[d].mean() for d in WIDTHS]
    verdict: Verdict = "partly" if value > 0.5 else "refuted"
    if means[-1] >= 0.95 and all(a < b for a, b in pairwise(means)):
        verdict = "reproduced"
    table = ", ".join(f"{right[d].mean():.1%} at d={d}" for d in WIDTHS)
    sentence = f"Three sums of outer products, no training, {seeds} draws of the embeddings: right in {table}."
    return Outcome(verdict, value, interval, sentence, {f"d={d}": right[d] for d in WIDTHS})


def written_by_three_steps(evidence: Evidence) -> Outcome:
    """B13."""
    n_tokens, length, batches, batch = THEOREM[evidence.scale]
    task = theorem_task(n_tokens, length)
    config, params = theorem_model(task)
    sample = sampled(task)

    def one(seed: Array) -> Array:
        model = Transformer(config, three_steps(task, config, params, batches, batch, key=jax.random.key(seed)).params)
        said, asked, right = _answered(model, task, *sample)
        wrong = asked & ~right
        trigger = (wrong & (said == sample[1])).sum() / jnp.maximum(wrong.sum(), 1)
        memories = output_memory(model), second_keys(model), first_keys(model)
        return jnp.stack([*memories, right.sum() / asked.sum(), trigger])

    seeds = evidence.settings[ALL].seeds
    rows = on_devices(one, seeds)(np.arange(seeds))
    recalls, right, trigger = rows[:, :3], rows[:, 3], rows[:, 4]
    formed = (recalls >= 0.9).all(axis=1)
    share, interval = share_interval(formed & (right >= 0.9))
    verdict: Verdict = "reproduced" if share >= MOST else "partly" if formed.mean() >= MOST else "refuted"
    exact = output_gradient(task)
    found = sampled_gradient(task, config, params, OUTPUT, batches, batch, key=jax.random.key(seeds))
    off = float(np.abs(np.asarray(found.mean) - exact).max() / np.abs(exact).max())
    sentence = (
        f"After one step each the recalls are {' '.join(f'{x:.2f}' for x in recalls.mean(axis=0))} (output, second-layer "
        f"keys, first-layer keys), all at least .9 in {formed.mean():.0%} of {seeds} samples of {batches * batch:,} "
        f"sequences; right in {right.mean():.1%}. Of the wrong answers {trigger.mean():.0%} are the trigger itself: the "
        "first step also writes what layer 0 carries along, the token before the answer. No entry of the sampled first "
        f"gradient is off the exact one by more than {off:.1%} of the largest."
    )
    names = ("output memory", "second keys", "first keys")
    seen = dict(zip(names, recalls.T, strict=True)) | {"right": right, "wrong answers that are the trigger": trigger}
    return Outcome(verdict, share, interval, sentence, seen)
