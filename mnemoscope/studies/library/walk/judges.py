"""W1-W5: does the ABC model learn the cycle, do the published numbers hold together, and is attention needed?"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer, force_pattern, knock_out_head
from mnemoscope.studies.claims import Outcome, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.walk import published
from mnemoscope.studies.library.walk.conditions import ABC, MLP, POST, PRE, settings
from mnemoscope.studies.statistics import share_verdict
from mnemoscope.tasks import Cycle

REACHED = 0.00015  # rounds to the published 0.0001
NORM_FLOOR = 2 * np.log(2) / 3  # three answers, two values


def cycle(task: Cycle, model: Transformer, world: tuple[()]) -> dict[str, Array]:
    """One model on the whole cycle: loss, right answers, and both again with attention cut to the last token or off."""
    sequences = jnp.asarray(task.sequences())
    alone = force_pattern(model.config, 0, 0, jnp.eye(task.length))
    cuts = {"": (), "last token": (alone,), "no attention": (knock_out_head(model.config, 0, 0),)}
    found: dict[str, Array] = {}
    for name, edits in cuts.items():
        logits = jax.vmap(lambda row, edits=edits: model(row, edits))(sequences[:, :-1])
        targets = sequences[:, 1:]
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, :, None], axis=-1)
        found[f"loss {name}".strip()] = -chosen.mean()
        found[f"right {name}".strip()] = (logits.argmax(axis=-1) == targets).mean()
    return found


def every_prompt(task: Cycle, model: Transformer, world: tuple[()]) -> Array:
    """Share of all prompts up to the context, in the cycle or not, whose answer is the last token's successor."""
    right = []
    for length in range(1, task.length + 1):
        prompts = jnp.array(list(itertools.product(range(task.n_symbols), repeat=length)))
        answers = jax.vmap(model)(prompts)[:, -1].argmax(axis=-1)
        right.append(answers == (prompts[:, -1] + 1) % task.n_symbols)
    return jnp.concatenate(right).mean()


def _nats(loss: float) -> str:
    return f"{loss:.2g}" if loss >= 1e-7 else "less than 1e-7"  # about where float32 ends


def _short(evidence: Evidence) -> bool:
    return evidence.settings[ABC].spec.steps < settings("full")[ABC].spec.steps


def learns(evidence: Evidence) -> Outcome:
    """W1."""
    losses = {name: evidence.measure(name, cycle)["loss"] for name in (ABC, MLP, POST, PRE)}
    verdict, share, interval = share_verdict(losses[ABC] < REACHED)
    if verdict != "reproduced" and _short(evidence):
        verdict = "undecided"
    others = ", ".join(f"{name.split('/')[1]} {(losses[name] < REACHED).mean():.0%}" for name in (MLP, POST, PRE))
    sentence = (
        f"{share:.0%} of seeds come below {REACHED}; median cross-entropy {_nats(np.median(losses[ABC]))}, largest "
        f"{_nats(losses[ABC].max())}. Other readings: {others}. With a norm the median is {np.median(losses[POST]):.2g} (post) and "
        f"{np.median(losses[PRE]):.2g} (pre): two dimensions normalised are nearly always one of two values, for which 2 ln(2)/3 = "
        f"{NORM_FLOOR:.2g} is the best."
    )
    return Outcome(verdict, share, interval, sentence, losses)


def answers(evidence: Evidence) -> Outcome:
    """W2."""
    right, prompts = evidence.measure(ABC, cycle)["right"], evidence.measure(ABC, every_prompt)
    verdict, share, interval = share_verdict(right == 1)
    sentence = (
        f"{share:.0%} of seeds give B, C, A for ABC and its two turns at every position. On all 39 prompts of up to three tokens, "
        f"most of which no training shows, the last token's successor is the answer in {prompts.mean():.0%} on average."
    )
    return Outcome(verdict, share, interval, sentence, {"right": right, "right on all prompts": prompts})


def _exact(statements: list[published.Statement], sentence: str) -> Outcome:
    held = float(np.mean([s.holds for s in statements]))
    verdict: Verdict = "reproduced" if held == 1 else "refuted" if held == 0 else "partly"
    wrong = "; ".join(f"not: {s.said}, but {s.follows}" for s in statements if not s.holds)
    told = f"{sentence} {sum(s.holds for s in statements)} of {len(statements)} hold{f' ({wrong})' if wrong else ''}."
    return Outcome(verdict, held, (held, held), told)


def sums(_: Evidence) -> Outcome:
    """W3."""
    apart = np.abs(published.W_E + published.W_POS - published.INPUTS).max()
    return _exact(published.inputs(), f"Embedding plus position is at most {apart:.4f} from the published inputs.")


def directions(_: Evidence) -> Outcome:
    """W4."""
    return _exact(published.readings(), "Of the three directions read with the published output matrix,")


def facts(evidence: Evidence) -> Outcome:
    """W5."""
    found = evidence.measure(ABC, cycle)
    able = found["right"] == 1
    last, cut = found["right last token"], found["right no attention"]
    if able.sum() < 8:
        return Outcome(
            "undecided", float(able.mean()), (0.0, 1.0), f"Only {able.sum()} seeds answer the whole cycle.", found
        )
    verdict, share, interval = share_verdict(last[able] == 1)
    before, after = np.median(found["loss"][able]), np.median(found["loss last token"][able])
    sentence = (
        f"Of {able.sum()} seeds that answer the whole cycle, {share:.0%} still do when attention sees the last token alone, with "
        f"a median cross-entropy of {_nats(after)} instead of {_nats(before)}. "
        f"With attention cut altogether {(cut[able] == 1).mean():.0%} do; {cut[able].mean():.0%} of answers stay right."
    )
    return Outcome(verdict, share, interval, sentence, found)
