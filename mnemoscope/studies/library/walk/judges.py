"""W1-W5: does the ABC model learn the cycle, and is attention needed for it?

And do the published numbers hold together?
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer, force_pattern, knock_out_head
from mnemoscope.studies.claims import Outcome, Verdict
from mnemoscope.studies.evidence import MIN_SEEDS, Evidence
from mnemoscope.studies.library.walk import published
from mnemoscope.studies.library.walk.conditions import ABC, MLP, POST, PRE, build_conditions
from mnemoscope.studies.presentation import Statement
from mnemoscope.studies.statistics import share_verdict
from mnemoscope.tasks import Cycle

REACHED = 0.00015  # rounds to the published 0.0001
NORM_FLOOR = 2 * np.log(2) / 3  # three answers, two values


def cycle(task: Cycle, model: Transformer, world: tuple[()]) -> dict[str, Array]:
    """One model on the whole cycle: its loss and its accuracy.

    Both again with attention cut to the last token, and with attention off.

    Args:
        task: The cycle.
        model: One seed's.
        world: Nothing: a cycle has no world.
    """
    sequences = jnp.asarray(task.sequences())
    alone = force_pattern(model.config, 0, 0, jnp.eye(task.length))
    cuts = {
        "": (),
        "last token": (alone,),
        "no attention": (knock_out_head(model.config, 0, 0),),
    }
    found: dict[str, Array] = {}
    for name, edits in cuts.items():
        logits = jax.vmap(lambda row, edits=edits: model(row, edits))(sequences[:, :-1])
        targets = sequences[:, 1:]
        log_p = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(log_p, targets[:, :, None], axis=-1)
        found[f"loss {name}".strip()] = -chosen.mean()
        found[f"accuracy {name}".strip()] = (logits.argmax(axis=-1) == targets).mean()
    return found


def every_prompt(task: Cycle, model: Transformer, world: tuple[()]) -> Array:
    """Share of all prompts up to the context whose answer is the last token's successor.

    Args:
        task: The cycle; prompts need not be in it.
        model: One seed's.
        world: Nothing: a cycle has no world.
    """
    correct = []
    for length in range(1, task.length + 1):
        prompts = jnp.array(list(itertools.product(range(task.n_symbols), repeat=length)))
        answers = jax.vmap(model)(prompts)[:, -1].argmax(axis=-1)
        correct.append(answers == (prompts[:, -1] + 1) % task.n_symbols)
    return jnp.concatenate(correct).mean()


def _nats(loss: float) -> str:
    """A loss as a person writes it."""
    return f"{loss:.2g}" if loss >= 1e-7 else "less than 1e-7"  # about where float32 ends


def _short(evidence: Evidence) -> bool:
    """Whether training was shorter than at full scale."""
    return evidence.conditions[ABC].spec.steps < build_conditions("full")[ABC].spec.steps


def learns(evidence: Evidence) -> Outcome:
    """W1: the exact mean cross-entropy over the cycle at the end of training.

    A seed does it below 0.00015: reproduced if at least 90% of seeds do, refuted if at most 10%,
    partly in between. A shorter training that does not reproduce it leaves it undecided.
    """
    losses = {name: evidence.measure(name, cycle)["loss"] for name in (ABC, MLP, POST, PRE)}
    verdict, share, interval = share_verdict(losses[ABC] < REACHED)
    if verdict != "reproduced" and _short(evidence):
        verdict = "undecided"
    reached = {name: (losses[name] < REACHED).mean() for name in (MLP, POST, PRE)}
    others = ", ".join(f"{name.split('/')[1]} {each:.0%}" for name, each in reached.items())
    sentence = (
        f"{share:.0%} of seeds come below {REACHED}; median cross-entropy "
        f"{_nats(np.median(losses[ABC]))}, largest {_nats(losses[ABC].max())}. Other readings: "
        f"{others}. With a norm the median is {np.median(losses[POST]):.2g} (post) and "
        f"{np.median(losses[PRE]):.2g} (pre): two dimensions normalized are nearly always one of "
        f"two values, for which 2 ln(2)/3 = {NORM_FLOOR:.2g} is the best."
    )
    return Outcome(verdict, share, interval, sentence, losses)


def answers(evidence: Evidence) -> Outcome:
    """W2: accuracy over the cycle.

    A seed does it if all nine are right: reproduced if at least 90% of seeds do, refuted if at most
    10%, partly in between.
    """
    accuracy = evidence.measure(ABC, cycle)["accuracy"]
    prompts = evidence.measure(ABC, every_prompt)
    verdict, share, interval = share_verdict(accuracy == 1)
    sentence = (
        f"{share:.0%} of seeds give B, C, A for ABC and its two turns at every position. On all 39 "
        "prompts of up to three tokens, most of which no training shows, the last token's "
        f"successor is the answer in {prompts.mean():.0%} on average."
    )
    by_seed = {"accuracy": accuracy, "accuracy on all prompts": prompts}
    return Outcome(verdict, share, interval, sentence, by_seed)


def _exact(statements: list[Statement], sentence: str) -> Outcome:
    """Reproduced if all statements hold, refuted if none does, partly in between."""
    held = float(np.mean([s.holds for s in statements]))
    verdict: Verdict = "partly"
    if held == 1:
        verdict = "reproduced"
    elif held == 0:
        verdict = "refuted"
    wrong = "; ".join(f"not: {s.said}, but {s.follows}" for s in statements if not s.holds)
    count = f"{sum(s.holds for s in statements)} of {len(statements)} hold"
    in_words = f"{sentence} {count}{f' ({wrong})' if wrong else ''}."
    return Outcome(verdict, held, (held, held), in_words)


def sums(_: Evidence) -> Outcome:
    """W3: embedding plus position against the published inputs, six entries.

    An entry holds if it agrees within three roundings to four digits: reproduced if all do, refuted
    if none does, partly in between.
    """
    apart = np.abs(published.W_E + published.W_POS - published.INPUTS).max()
    return _exact(
        published.inputs(),
        f"Embedding plus position is at most {apart:.4f} from the published inputs.",
    )


def directions(_: Evidence) -> Outcome:
    """W4: which token the published output matrix reads in each of three published directions.

    Reproduced if all three are read as the paper says, refuted if none is, partly in between.
    """
    return _exact(
        published.readings(), "Of the three directions read with the published output matrix,"
    )


def facts(evidence: Evidence) -> Outcome:
    """W5: right answers with attention forced to the last token, by seeds that know the cycle.

    A seed does it if all nine stay right: reproduced if at least 90% do, refuted if at most 10%,
    partly in between; undecided if fewer than eight seeds answer the whole cycle.
    """
    found = evidence.measure(ABC, cycle)
    able = found["accuracy"] == 1
    last = found["accuracy last token"]
    cut = found["accuracy no attention"]
    if able.sum() < MIN_SEEDS:
        sentence = f"Only {able.sum()} seeds answer the whole cycle."
        return Outcome("undecided", float(able.mean()), (0.0, 1.0), sentence, found)
    verdict, share, interval = share_verdict(last[able] == 1)
    before = np.median(found["loss"][able])
    after = np.median(found["loss last token"][able])
    sentence = (
        f"Of {able.sum()} seeds that answer the whole cycle, {share:.0%} still do when attention "
        f"sees the last token alone, with a median cross-entropy of {_nats(after)} instead of "
        f"{_nats(before)}. With attention cut altogether {(cut[able] == 1).mean():.0%} do; "
        f"{cut[able].mean():.0%} of answers stay right."
    )
    return Outcome(verdict, share, interval, sentence, found)
