"""The permutation study: does a tiny transformer remember what it was shown, or eliminate what is left?

Setup of the source: V = 5, 96 mappings trained and 24 held out, one layer, feed-forward of twice the width, 50 epochs of
100,000 samples with Adam; with repeats, 30% of the sequences end with the first pair again. Batch size and learning rate
are not published: `full` takes 128 and 1e-3 at the source's number of samples. Our choices: no norm (the source lists
none; `post` settings train the same with one), matrices and biases drawn as PyTorch draws a linear layer, and a split
of its own for every seed, so that an interval over seeds covers the luck of the split. `quick` trains on a tenth of
the samples, in smaller batches and with a larger rate that falls to zero: what longer training could overturn is
then `undecided`.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.model import ModelConfig
from mnemoscope.probes.attention import mean_pattern, roles
from mnemoscope.probes.knockout import cases, forced_patterns, knock_outs
from mnemoscope.probes.skills import against_training, answers, report_card, right
from mnemoscope.spec import Adam, Spec
from mnemoscope.studies.claims import Claim, Outcome, Scale, Setting, Study, Test, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.statistics import FEW, MOST, mean_interval, share_interval, share_verdict
from mnemoscope.tasks import Permutation
from mnemoscope.tasks.permutation import permutations
from mnemoscope.theory.elimination import eliminator_loss, guessing_loss, used_set_loss

SOURCE_SAMPLES = 50 * 100_000
PLAIN, SMALL, WIDE, TWO = "plain/d16h1", "repeat/d16h1", "repeat/d32h1", "repeat/d32h2"
WIDTHS = (4, 8, 12, 16, 24)  # for R18, one head, no repeats
ELIMINATION_WIDTHS = tuple(f"plain/d{d}h1" for d in WIDTHS)
GRID = tuple(f"repeat/d{d}h{h}" for d in (16, 32, 64) for h in (1, 2))
ANY = "any/d32h2"


def _spec(
    scale: Scale, d: int, heads: int, *, repeat: Literal["none", "first", "any"], n_symbols: int = 5,
    norm: Literal["none", "post"] = "none", lr: float = 1e-3,
) -> Spec:  # fmt: skip
    task = Permutation(
        n_symbols=n_symbols, repeat=0.0 if repeat == "none" else 0.3, repeat_of="any" if repeat == "any" else "first"
    )
    model = ModelConfig(d_model=d, n_heads=heads, d_mlp=2 * d, norm=norm)
    if scale == "full":
        return Spec(task=task, model=model, optimiser=Adam(lr=lr), batch=128, steps=SOURCE_SAMPLES // 128, snapshots=16)
    steps = 3000 if repeat == "none" else 8000
    return Spec(
        task=task, model=model, optimiser=Adam(lr=10 * lr, schedule="cosine"), batch=64, steps=steps, snapshots=12
    )


def settings(scale: Scale) -> dict[str, Setting]:
    """Every setting by name. At `full` those of R8, R9, R10 and R13 have 256 seeds, the rest 64; at `quick` all have 8."""
    many, some = (256, 64) if scale == "full" else (8, 8)
    found = {name: Setting(_spec(scale, d, 1, repeat="none"), some) for name, d in zip(ELIMINATION_WIDTHS, WIDTHS)}
    for name in GRID:
        d, heads = map(int, name.removeprefix("repeat/d").split("h"))
        found[name] = Setting(_spec(scale, d, heads, repeat="first"), many if name in (SMALL, WIDE, TWO) else some)
    for v in (4, 6):
        found[f"plain/v{v}"] = Setting(_spec(scale, 16, 1, repeat="none", n_symbols=v), some)
    found[ANY] = Setting(_spec(scale, 32, 2, repeat="any"), some)
    if scale == "full":  # would another reading of the source change a verdict?
        for name, d, heads in ((SMALL, 16, 1), (WIDE, 32, 1), (TWO, 32, 2)):
            found[f"{name}/post"] = Setting(_spec(scale, d, heads, repeat="first", norm="post"), some)
            found[f"{name}/lr3e-3"] = Setting(_spec(scale, d, heads, repeat="first", lr=3e-3), some)
        found[f"{PLAIN}/post"] = Setting(_spec(scale, 16, 1, repeat="none", norm="post"), some)
    return found


def _short(evidence: Evidence, name: str) -> bool:
    """Whether a setting was trained on fewer samples than the source's models."""
    spec = evidence.settings[name].spec
    return spec.steps * spec.batch < 0.99 * SOURCE_SAMPLES


def _variants(evidence: Evidence, name: str) -> list[str]:
    return [other for other in evidence.settings if other.startswith(f"{name}/")]


def _percent(x: float) -> str:
    return f"{100 * x:.4g}%"


def _card(evidence: Evidence, name: str) -> dict[str, np.ndarray]:
    return evidence.measure(name, report_card)


def _recall(evidence: Evidence, name: str) -> np.ndarray:
    return _card(evidence, name)["recall"][:, 0]


def _variant_note(evidence: Evidence, name: str) -> str:
    """How the other readings of the source came out, for the sentence."""
    notes = [
        f"{other.rsplit('/')[-1]}: {_percent(_recall(evidence, other).mean())}" for other in _variants(evidence, name)
    ]
    return f" Mean recall in other readings of the source: {', '.join(notes)}." if notes else ""


# --- exact claims -----------------------------------------------------------------------------------------------------


def judge_r1(evidence: Evidence) -> Outcome:
    task = Permutation()
    everything = task.sequences(permutations(5))
    exact = np.asarray(jax.vmap(task.posterior)(jnp.asarray(everything.tokens[:, :-1])), np.float64)
    given = np.take_along_axis(exact, everything.tokens[:, 1::2, None], axis=-1)
    counted, formula, guess = float(-np.log(given).mean()), eliminator_loss(5), guessing_loss(5)
    ok = abs(formula - 0.957) < 5e-4 and abs(guess - 1.609) < 5e-4 and abs(counted - formula) < 1e-6
    sentence = f"The eliminator's loss is {formula:.6f} by formula and {counted:.6f} by counting; guessing costs {guess:.6f}."
    return Outcome("reproduced" if ok else "refuted", formula, (formula, formula), sentence)


def judge_r2(evidence: Evidence) -> Outcome:
    task = Permutation()
    split = task.world(key=jax.random.key(0))
    counts = [len(np.unique(task.sequences(m).tokens, axis=0)) for m in (permutations(5), split.train, split.held_out)]
    shared = {tuple(row) for row in np.asarray(split.train).tolist()} & {tuple(r) for r in np.asarray(split.held_out).tolist()}
    ok = counts == [14_400, 11_520, 2_880] and not shared
    sentence = f"Listed and counted: {counts[0]:,} sequences, {counts[1]:,} trained and {counts[2]:,} held out; {len(shared)} mappings in both."
    return Outcome("reproduced" if ok else "refuted", counts[0], (counts[0], counts[0]), sentence)


# --- the eliminator ---------------------------------------------------------------------------------------------------


def judge_r3(evidence: Evidence) -> Outcome:
    card = _card(evidence, PLAIN)
    last, worst = card["right"][:, -1], float(np.median(card["max_ae"][:, -1]))
    verdict, share, interval = share_verdict(last == 1)
    if verdict == "reproduced" and worst > 0.013:
        verdict = "partly"
    if verdict != "reproduced" and _short(evidence, PLAIN):
        verdict = "undecided"
    others = [f"; with a norm {_percent((_card(evidence, name)['right'][:, -1] == 1).mean())} do" for name in _variants(evidence, PLAIN)]
    sentence = (
        f"{_percent(share)} of seeds answer step 5 right on every held-out sequence (mean accuracy {_percent(last.mean())}, "
        f"median Max-AE {worst:.2g}){''.join(others)}."
    )
    return Outcome(verdict, share, interval, sentence, {"step 5 right": last, "Max-AE": card["max_ae"][:, -1]})


def judge_r4(evidence: Evidence) -> Outcome:
    card = _card(evidence, PLAIN)
    by_step, by_seed = card["mae"].mean(axis=0), card["mae"].mean(axis=1)
    value, interval = mean_interval(by_seed)
    within = (card["max_ae"].max(axis=1) <= 0.15).mean()
    verdict: Verdict = "reproduced" if (by_step <= 0.02).all() and within >= MOST else "partly" if (by_step <= 0.05).all() else "refuted"
    if verdict != "reproduced" and _short(evidence, PLAIN):
        verdict = "undecided"
    steps, worst = (" ".join(f"{x:.4f}" for x in card[key].mean(axis=0)) for key in ("mae", "max_ae"))
    sentence = f"Mean distance from the elimination posterior by step: {steps}; largest: {worst} (means over seeds)."
    return Outcome(verdict, value, interval, sentence, {"MAE": by_seed, "Max-AE": card["max_ae"].max(axis=1)})


def judge_r5(evidence: Evidence) -> Outcome:
    card, closer = _card(evidence, PLAIN), evidence.measure(PLAIN, against_training)
    chance = 1 / np.arange(5, 1, -1)
    gap = card["right"][:, :4] - chance
    intervals = [mean_interval(gap[:, k])[1] for k in range(4)]
    below, straddle = sum(high < 0 for _, high in intervals), sum(low <= 0 <= high for low, high in intervals)
    value, interval = mean_interval(gap.mean(axis=1))
    verdict: Verdict = "refuted" if below >= 3 else "reproduced" if straddle == 4 else "partly"
    if verdict != "refuted" and _short(evidence, PLAIN):
        verdict = "undecided"
    measured = " ".join(f"{100 * x:.1f}" for x in card["right"][:, :4].mean(axis=0))
    best = " ".join(f"{100 * x:.1f}" for x in closer["right_training"][:, :4].mean(axis=0))
    nearer = (closer["mae_training"][:, :4].mean(axis=1) < closer["mae_all"][:, :4].mean(axis=1)).mean()
    sentence = (
        f"With a split of its own for each seed, held-out accuracy at steps 1-4 is {measured}% (chance 20.0 25.0 33.3 50.0), below "
        f"chance in {_percent((gap.mean(axis=1) < 0).mean())} of seeds: what the training mappings favour, the held-out ones lack. "
        f"A reader that knew the training mappings exactly would score {best}%; {_percent(nearer)} of seeds are nearer to it than to "
        "the eliminator."
    )
    return Outcome(verdict, value, interval, sentence, {"accuracy - chance, steps 1-4": gap.mean(axis=1)})


def judge_r6(evidence: Evidence) -> Outcome:
    card = _card(evidence, PLAIN)
    says, p = card["says_unused"][:, 0], card["p_unused"][:, 0]
    verdict, share, _ = share_verdict(says >= 0.99)
    value, interval = mean_interval(p)
    sentence = (
        f"Asked again for x1, the unused value gets probability {value:.4f} and is the answer to {_percent(says.mean())} of the "
        f"sequences; {_percent(share)} of seeds say it at least 99 times in 100."
    )
    return Outcome(verdict, value, interval, sentence, {"p(unused)": p, "says unused": says})


def judge_r7(evidence: Evidence) -> Outcome:
    names = (PLAIN, SMALL, TWO)
    new, again = ({n: _card(evidence, n)[key] for n in names} for key in ("loss", "repeat_loss"))
    new = {n: x.mean(axis=1) for n, x in new.items()}
    again = {n: x[:, 0].mean(axis=1) for n, x in again.items()}
    gap_new = abs(new[PLAIN].mean() - new[TWO].mean())
    gaps = again[PLAIN] - again[TWO].mean()
    value, interval = mean_interval(gaps)
    verdict: Verdict = "reproduced" if abs(value) < 0.05 else "partly" if gap_new < 0.01 else "refuted"
    if _short(evidence, TWO) and _recall(evidence, TWO).mean() < 0.5:
        verdict = "undecided"
    table = "; ".join(f"{n} {new[n].mean():.3f} / {again[n].mean():.3f}" for n in names)
    sentence = (
        f"Held-out loss without / with the first pair repeated: {table}. No reader of the used set alone can be below "
        f"{used_set_loss(5, 0.3):.3f} where 30% repeat, so .959 cannot be the loss of a model without recall on such data."
    )
    by_seed = {"loss gap where the first pair repeats": gaps}
    return Outcome(verdict, value, interval, sentence, by_seed)


# --- recall -----------------------------------------------------------------------------------------------------------


def judge_r8(evidence: Evidence) -> Outcome:
    recall = _recall(evidence, SMALL)
    verdict, share, _ = share_verdict(recall <= 0.1)
    value, interval = mean_interval(recall)
    if verdict == "reproduced" and _short(evidence, SMALL):
        verdict = "undecided"
    sentence = (
        f"d=16 with one head recalls x1 in {_percent(value)} of held-out repeats; {_percent(share)} of seeds stay at or below 10% "
        f"and {_percent((recall >= 0.99).mean())} reach 99%.{_variant_note(evidence, SMALL)}"
    )
    return Outcome(verdict, value, interval, sentence, {"recall": recall})


def judge_r9(evidence: Evidence) -> Outcome:
    recall = _recall(evidence, WIDE)
    value, interval = mean_interval(recall)
    inside = interval[0] >= 0.05 and interval[1] <= 0.95
    outside = interval[1] < 0.05 or interval[0] > 0.95
    verdict: Verdict = "reproduced" if inside else "refuted" if outside else "partly"
    if _short(evidence, WIDE) and value <= 0.95:
        verdict = "undecided"
    sentence = (
        f"d=32 with one head recalls x1 in {_percent(value)} of held-out repeats on average; {_percent((recall >= 0.99).mean())} of "
        f"seeds reach 99% and {_percent((recall <= 0.1).mean())} stay at or below 10%.{_variant_note(evidence, WIDE)}"
    )
    return Outcome(verdict, value, interval, sentence, {"recall": recall})


def _masters(evidence: Evidence, name: str) -> np.ndarray:
    """Seeds that get both skills right on at least 99% of held-out sequences."""
    return (_recall(evidence, name) >= 0.99) & (_card(evidence, name)["right"][:, -1] >= 0.99)


def judge_r10(evidence: Evidence) -> Outcome:
    card, recall = _card(evidence, TWO), _recall(evidence, TWO)
    eliminates = card["right"][:, -1]
    verdict, share, interval = share_verdict((recall == 1) & (eliminates == 1))
    if verdict != "reproduced" and _short(evidence, TWO):
        verdict = "undecided"
    sentence = (
        f"{_percent(share)} of seeds with d=32 and two heads make no mistake on either skill ({_percent(_masters(evidence, TWO).mean())} "
        f"make at most 1% of mistakes); at step 5 the mean MAE is {card['recall_mae'][:, 0].mean():.2g} for recall and "
        f"{card['mae'][:, -1].mean():.2g} for elimination.{_variant_note(evidence, TWO)}"
    )
    return Outcome(verdict, share, interval, sentence, {"recall": recall, "elimination": eliminates})


def _attention(task, model, split):
    """Roles of each head on new pairs and on repeats."""
    new, again = (task.list_tokens(split.held_out, (r,)) for r in (task.n_symbols - 1, 0))
    return {name: roles(task, mean_pattern(task, model, tokens)) for name, tokens in (("new", new), ("again", again))}


def judge_r11(evidence: Evidence) -> Outcome:
    seen = evidence.measure(PLAIN, _attention)["new"]
    uneven, mass = seen["unevenness"][:, 0], seen["x_to_outputs"][:, 0]
    verdict, share, _ = share_verdict(uneven <= 0.1)
    value, interval = mean_interval(uneven)
    sentence = (
        f"The largest distance of any mean attention weight from 1/k is {value:.3f} on average; {_percent(share)} of seeds stay within "
        f"0.1. Earlier outputs get {_percent(mass.mean())} of a query's attention."
    )
    return Outcome(verdict, value, interval, sentence, {"unevenness": uneven, "mass on outputs": mass})


def judge_r12(evidence: Evidence) -> Outcome:
    seen = evidence.measure(TWO, _attention)["new"]
    averages = (seen["x_to_outputs"] >= 0.9) & (seen["unevenness"] <= 0.15)
    local = (seen["y_to_self"] >= 0.9) & (seen["x_to_preceding_output"] >= 0.5)
    both = (averages[:, 0] & local[:, 1]) | (averages[:, 1] & local[:, 0])
    verdict, share, interval = share_verdict(both)
    sentence = (
        f"{_percent(share)} of seeds have one averaging and one local head; an averaging head is in {_percent(averages.any(axis=1).mean())}, "
        f"a local one in {_percent(local.any(axis=1).mean())}. The more local head gives {seen['x_to_preceding_output'].max(axis=1).mean():.2f} "
        f"to the preceding output and the more self-attending one {seen['y_to_self'].max(axis=1).mean():.2f} of an output to itself."
    )
    return Outcome(verdict, share, interval, sentence, {
        "averaging head": averages.any(axis=1), "local head": local.any(axis=1),
        "x to preceding output": seen["x_to_preceding_output"].max(axis=1), "y to self": seen["y_to_self"].max(axis=1),
    })  # fmt: skip


DAMAGED, INTACT = 0.6, 0.9  # a skill after a knock-out


def _few_masters(evidence: Evidence, masters: np.ndarray) -> Outcome | None:
    if masters.sum() >= 8:
        return None
    share, interval = share_interval(masters)
    return Outcome("undecided", share, interval, f"Only {int(masters.sum())} seeds master both skills; 8 are needed.")


def judge_r13(evidence: Evidence) -> Outcome:
    masters = _masters(evidence, TWO)
    if stop := _few_masters(evidence, masters):
        return stop
    out = evidence.measure(TWO, knock_outs)

    def divided(kind: str) -> np.ndarray:
        e, r = out[kind]["elimination"][masters, 1:3], out[kind]["recall"][masters, 1:3]  # seed, head
        only_e, only_r = (e <= DAMAGED) & (r >= INTACT), (r <= DAMAGED) & (e >= INTACT)
        return (only_e[:, 0] & only_r[:, 1]) | (only_e[:, 1] & only_r[:, 0])

    verdict, share, interval = share_verdict(divided("mean"))
    e, r = out["mean"]["elimination"][masters, 1:3], out["mean"]["recall"][masters, 1:3]
    sentence = (
        f"Of {int(masters.sum())} seeds that master both skills, {_percent(share)} divide them between the heads when heads are set to "
        f"their mean ({_percent(divided('zero').mean())} when set to zero). With a head at its mean, both skills fall in "
        f"{_percent(((e <= DAMAGED) & (r <= DAMAGED)).any(axis=1).mean())} of seeds, and in "
        f"{_percent(((e >= INTACT) & (r >= INTACT)).any(axis=1).mean())} some head is not needed for either."
    )
    return Outcome(verdict, share, interval, sentence, {
        "divided": divided("mean"), "elimination without head 0": e[:, 0], "elimination without head 1": e[:, 1],
        "recall without head 0": r[:, 0], "recall without head 1": r[:, 1],
    })  # fmt: skip


def judge_r14(evidence: Evidence) -> Outcome:
    masters = _masters(evidence, TWO)
    if stop := _few_masters(evidence, masters):
        return stop
    recall = evidence.measure(TWO, knock_outs)["mean"]["recall"][masters]
    names = cases(evidence.settings[TWO].spec.model)
    attention, mlp = recall[:, names.index("L0 attention")], recall[:, names.index("L0 mlp")]
    verdict, share, interval = share_verdict((attention <= 0.5) & (mlp <= 0.5))
    sentence = (
        f"Recall falls to {_percent(attention.mean())} with attention at its mean and to {_percent(mlp.mean())} with the feed-forward "
        f"layer at its mean; both are at or below 50% in {_percent(share)} of seeds."
    )
    by_seed = {"recall without attention": attention, "recall without mlp": mlp}
    return Outcome(verdict, share, interval, sentence, by_seed)


def _forced(task, model, split):
    """The recall head is the one whose mean hurts recall most; force its pattern."""
    head = knock_outs(task, model, split)["mean"]["recall"][1 : 1 + model.config.n_heads].argmin()
    again = mean_pattern(task, model, task.list_tokens(split.held_out, (0,)))
    seen = roles(task, again)
    return {"head": head, "preceding": seen["x_to_preceding_output"][head], "y_self": seen["y_to_self"][head],
            **forced_patterns(task, model, split, head)}  # fmt: skip


def judge_r15(evidence: Evidence) -> Outcome:
    masters = _masters(evidence, TWO)
    if stop := _few_masters(evidence, masters):
        return stop
    forced = evidence.measure(TWO, _forced)
    local = forced["preceding"][masters] >= 0.5
    even, kept = forced["even"]["recall"][masters], forced["local"]["recall"][masters]
    verdict, share, interval = share_verdict(local & (even <= 0.5))
    sentence = (
        f"The recall head looks mostly at the output just before in {_percent(local.mean())} of seeds. Made to look evenly, recall is "
        f"{_percent(even.mean())}; made to look only there, it is {_percent(kept.mean())}. So the local pattern is present and needed "
        f"in {_percent(share)}. (In one layer, where outputs look cannot change any answer.)"
    )
    by_seed = {"mass on preceding output": forced["preceding"][masters], "recall, even pattern": even, "recall, local pattern": kept}
    return Outcome(verdict, share, interval, sentence, by_seed)


# --- sizes ------------------------------------------------------------------------------------------------------------


def judge_r16(evidence: Evidence) -> Outcome:
    learned = {name: _recall(evidence, name) >= 0.99 for name in GRID}
    share = {name: float(hits.mean()) for name, hits in learned.items()}
    by_head, by_width = share[TWO] - share[WIDE], share["repeat/d64h1"] - share[WIDE]
    rng = np.random.default_rng(0)
    draws = {n: rng.choice(learned[n], (9999, len(learned[n]))).mean(axis=1) for n in (TWO, "repeat/d64h1")}
    low, high = np.percentile(draws[TWO] - draws["repeat/d64h1"], [2.5, 97.5])
    helps = by_head >= 0.25
    verdict: Verdict = "reproduced" if by_head >= 0.5 and by_width < 0.25 else "partly" if helps and by_head > by_width else "refuted"
    if max(share.values()) < 0.5:
        verdict = "undecided"
    table = ", ".join(f"{name.removeprefix('repeat/')} {_percent(x)}" for name, x in share.items())
    sentence = (
        f"Seeds that learn recall: {table}. At d=32 a second head changes the share by {by_head:+.2f}; doubling the width instead "
        f"changes it by {by_width:+.2f}."
    )
    by_seed = {f"recall {name}": _recall(evidence, name) for name in GRID}
    return Outcome(verdict, by_head - by_width, (float(low), float(high)), sentence, by_seed)


def _elimination(task, model, split):
    tokens = task.list_tokens(split.held_out, (task.n_symbols - 1,))
    return right(answers(task, model, tokens), tokens)[-1]


def judge_r17(evidence: Evidence) -> Outcome:
    names = {4: "plain/v4", 5: PLAIN, 6: "plain/v6"}
    skill = {v: evidence.measure(name, _elimination) for v, name in names.items()}
    stored = {}
    for v, name in names.items():
        run = evidence.run(name)
        task, rule = run.spec.task, eliminator_loss(v)
        n_train = len(permutations(v)) - task.n_held_out
        stored[v] = (rule - run.losses[run.finished, -1]).mean() / (rule - task.loss_floor(n_train))
    value, interval = mean_interval(skill[4])
    rest = min(skill[5].mean(), skill[6].mean())
    verdict: Verdict = "reproduced" if value < 0.9 and rest >= 0.99 else "refuted" if value >= 0.99 else "partly"
    if verdict != "refuted" and _short(evidence, PLAIN):
        verdict = "undecided"
    table = ", ".join(f"V={v} {_percent(skill[v].mean())}" for v in names)
    share = ", ".join(f"{_percent(stored[v])}" for v in names)
    sentence = (
        f"Right at the last step on held-out mappings: {table}. Of what knowing the training mappings by heart would gain in training "
        f"loss over elimination, the models gain {share}."
    )
    return Outcome(verdict, value, interval, sentence, {f"V={v}": x for v, x in skill.items()})


def judge_r18(evidence: Evidence) -> Outcome:
    recallers = tuple(name for name in GRID if name.endswith("h2"))
    skill = {d: evidence.measure(name, _elimination) for d, name in zip(WIDTHS, ELIMINATION_WIDTHS, strict=True)}
    works = {d: np.asarray(x) >= 0.99 for d, x in skill.items()}

    def smallest(shares: dict[int, float]) -> float:
        return next((float(d) for d in WIDTHS if shares[d] >= 0.5), float(2 * WIDTHS[-1]))

    value = smallest({d: float(x.mean()) for d, x in works.items()})
    rng = np.random.default_rng(0)
    draws = {d: rng.choice(x, (2000, len(x))).mean(axis=1) for d, x in works.items()}
    low, high = np.percentile([smallest({d: draws[d][i] for d in WIDTHS}) for i in range(2000)], [2.5, 97.5])
    verdict: Verdict = "reproduced" if value in (16, 24) else "refuted"
    if _short(evidence, PLAIN) and value > WIDTHS[0]:
        verdict = "undecided" if value in (16, 24) else verdict
    table = ", ".join(f"d={d} {_percent(x.mean())}" for d, x in works.items())
    both = ", ".join(f"{n.removeprefix('repeat/')} {_percent(_masters(evidence, n).mean())}" for n in recallers)
    sentence = f"Seeds that eliminate (99% right at step 5), one head: {table}. Seeds that also recall, two heads: {both}."
    by_seed = {f"step 5 right, d={d}": x for d, x in skill.items()}
    return Outcome(verdict, value, (float(low), float(high)), sentence, by_seed)


def judge_r19(evidence: Evidence) -> Outcome:
    first, every = _card(evidence, TWO)["recall"], _card(evidence, ANY)["recall"]
    others = first[:, 1:].mean(axis=1)
    value, interval = mean_interval(others)
    verdict: Verdict = "reproduced" if value >= MOST else "refuted" if value <= FEW else "partly"
    if _short(evidence, TWO) and _recall(evidence, TWO).mean() < 0.5:
        verdict = "undecided"
    by_first, by_any = (" ".join(_percent(x) for x in card.mean(axis=0)) for card in (first, every))
    sentence = f"Recall of pairs 1 2 3 4: {by_first} when only the first pair repeats in training; {by_any} when any earlier pair may."
    by_seed = {"others, trained on the first": others, "all, trained on any": every.mean(axis=1)}
    return Outcome(verdict, value, interval, sentence, by_seed)


def _test(id: str, judge, needs: tuple[str, ...], statement: str, source_figure: str, criterion: str) -> Test:
    claim = Claim(id=id, statement=statement, source_figure=source_figure, criterion=criterion)
    return Test(claim, needs, judge)


SHARE = "reproduced if at least 90% of seeds do, refuted if at most 10% do, partly in between"

STUDY = Study(
    name="remember",
    title="Can a tiny transformer learn to remember?",
    source="Can a Tiny Transformer Learn to Remember? (permutation study)",
    settings=settings,
    tests=(
        _test("R1", judge_r1, (), "An eliminator that knows only which outputs are used has mean loss (ln 5 + ln 4 + ln 3 + ln 2)/5; a guess has ln 5.",
              "0.957; 1.609", "Exact: formula and enumeration agree to 1e-6 and round to the published figures."),
        _test("R2", judge_r2, (), "120 mappings x 120 orders give 14,400 sequences; a 96/24 split gives 11,520 and 2,880 and shares no mapping.",
              "14,400; 11,520; 2,880", "Exact: all sequences are listed, distinct and counted."),
        _test("R3", judge_r3, (PLAIN, f"{PLAIN}/*"), "Trained without repeats, d=16 with one head gets step 5 right on every held-out mapping.",
              "100%, Max-AE 0.0013", f"A seed does it if all 2,880 held-out sequences are right at step 5: {SHARE}; reproduced also needs a median Max-AE of at most 0.013."),
        _test("R4", judge_r4, (PLAIN,), "Its output is the elimination posterior at each step.",
              "MAE .0124 .0155 .0184 .0154 .0003; Max-AE .034 .072 .102 .119 .0013",
              "Mean MAE over seeds, every held-out sequence: reproduced if at most .02 at each step with Max-AE at most .15 in 90% of seeds, partly if at most .05, else refuted."),
        _test("R5", judge_r5, (PLAIN,), "Held-out accuracy below chance at steps 1-4 is the luck of the split.",
              "9.6, 16.4, 24.6, 42.3% against 20, 25, 33, 50%",
              "Each seed has its own split, so luck would average out: reproduced if the 95% interval of accuracy minus chance holds 0 at all four steps, refuted if it lies below 0 at three or more."),
        _test("R6", judge_r6, (PLAIN,), "Trained without repeats and asked again for x1, the model answers the unused value, not y1.",
              ".9991 on the unused value", f"A seed does it if its answer is the unused value in at least 99% of held-out sequences that repeat x1: {SHARE}."),
        _test("R7", judge_r7, (PLAIN, SMALL, TWO), "Loss does not show the mechanism: the model that cannot recall and the one that can have almost the same loss.",
              ".959 and .956", "Held-out losses of both models: reproduced if they differ by less than .05 where x1 repeats, partly if they agree (within .01) only where nothing repeats, else refuted."),
        _test("R8", judge_r8, (SMALL, f"{SMALL}/*"), "Trained with repeats, d=16 with one head does not learn recall.",
              "0.01%", f"A seed fails if it recalls at most 10% of held-out repeats; the claim is that seeds fail: {SHARE}."),
        _test("R9", judge_r9, (WIDE, f"{WIDE}/*"), "Trained with repeats, d=32 with one head learns recall partly.",
              "partial", "Mean recall over seeds: reproduced if its 95% interval lies within .05 and .95, refuted if wholly outside, else partly."),
        _test("R10", judge_r10, (TWO, f"{TWO}/*"), "Trained with repeats, d=32 with two heads learns both skills fully.",
              "100% / 100%; MAE .000081 and .000838; Max-AE .0015 and .0557", f"A seed does it if all held-out sequences are right at step 5, repeated or not: {SHARE}."),
        _test("R11", judge_r11, (PLAIN,), "The single head spreads its attention evenly over earlier outputs, 1/k each.",
              "1.00; .49/.51; .34/.31/.35; .24/.22/.28/.25", f"A seed does it if no mean weight from a query to an earlier output is more than .1 from 1/k: {SHARE}."),
        _test("R12", judge_r12, (TWO,), "With two heads, one averages earlier outputs; in the other, outputs attend to themselves and queries to the output just before.",
              "1.00; .66", f"A seed does it if one head gives outputs 90% of a query's mass within .15 of even, and the other gives .9 of an output to itself and .5 of a query to the output before: {SHARE}."),
        _test("R13", judge_r13, (TWO,), "The two heads divide the work, one for elimination and one for recall, whatever the seed.",
              "consistently", f"Among seeds that master both skills, each head set to its mean: a seed divides if one head's loss takes elimination to at most 60% and leaves recall at 90% or more, and the other's the reverse: {SHARE}."),
        _test("R14", judge_r14, (TWO,), "Recall needs attention and the feed-forward layer; neither is enough.",
              "stated", f"Among seeds that master both skills: recall is at most 50% with attention at its mean, and with the feed-forward layer at its mean: {SHARE}."),
        _test("R15", judge_r15, (TWO,), "The local attention pattern of the recall head is necessary.",
              "stated", f"Among seeds that master both skills: the head that recall needs most gives at least half of a query to the output before, and an even pattern forced on it takes recall to at most 50%: {SHARE}."),
        _test("R16", judge_r16, GRID, "It is the second head, not the width, that makes the leap.",
              "stated", "Share of seeds with 99% recall at equal training: reproduced if the second head adds at least .5 at d=32 and doubling the width instead adds less than .25; partly if the head adds at least .25 and more than the width; else refuted."),
        _test("R17", judge_r17, ("plain/v4", PLAIN, "plain/v6"), "With V=4 the weights can store every mapping; V=5 forces a rule learned in context.",
              "stated", "Held-out accuracy at the last step: reproduced if below .9 at V=4 and at least .99 at V=5 and 6, refuted if at least .99 at V=4, else partly."),
        _test("R18", judge_r18, tuple(dict.fromkeys((*ELIMINATION_WIDTHS, *(n for n in GRID if n.endswith("h2"))))), "About 17 dimensions are needed (6 identity, 3 position, 8 state).",
              "d=16 'barely'", "The smallest width at which half of the seeds eliminate (99% right at step 5): reproduced if it is 16 or 24, refuted otherwise; widths 4, 8, 12, 16, 24."),
        _test("R19", judge_r19, (TWO, ANY), "Beyond the source: a model trained to recall the first pair also recalls the others.",
              "not in the source", "Mean recall of pairs 2-4 by models trained on repeats of the first: reproduced if at least .9, refuted if at most .1, else partly. Models trained on repeats of any pair are shown beside."),
    ),
)  # fmt: skip
