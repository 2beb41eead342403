"""Evidence for the permutation study: models written by hand, planted report cards,
and what a claim comes to on them.
"""

import math
from functools import cache

import numpy as np
from planted import entry_of, evidence_of, planted, rows_of, silent

from mnemoscope.probes.skills import report_card
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.library.remember.conditions import build_conditions
from mnemoscope.studies.library.remember.mastery import elimination_rate
from mnemoscope.tasks import Permutation

STUDY = find_study("remember")

N = 40  # seeds: enough that all of them show "at least 90%"
STEPS = 5  # of the study's sequences; the pairs before the last one are one fewer
READINGS = ("", "/post", "/lr3e-3")


@cache
def conditions(scale):
    return build_conditions(scale)


@cache
def runs(scale):
    """Runs in which nothing is planted but that every seed finished."""
    return {name: planted(each.spec, N) for name, each in conditions(scale).items()}


def entry(claim, measured, scale="full", changed_runs=None):
    """What a claim comes to where all that probes read is planted.

    `measured` has what a probe reads, by condition and probe; `changed_runs` other runs.
    """
    known = runs(scale) | (changed_runs or {})
    evidence = evidence_of(known, scale, measured=measured, conditions=conditions(scale))
    return entry_of(STUDY, claim, evidence)


def part_of(entry, name, reading="plain"):
    """What one part came to in one reading."""
    return next(p for p in entry.parts if p.name == name and p.reading == reading)


def in_every_reading(name, scale="full"):
    """A condition and its other readings."""
    return [name + end for end in READINGS if name + end in conditions(scale)]


def first(n, yes, no, seeds=N):
    """One value for the first n seeds and another for the rest."""
    return np.where(np.arange(seeds) < n, yes, no)


def column(n, yes, no):
    """The same as a column, for something read at several steps."""
    return first(n, yes, no)[:, None]


def card(seeds=N, **entries):
    """A report card of perfect seeds, but for what is given:
    a number, a number for each step or pair, or a row a seed.
    """
    shapes = dict.fromkeys(("accuracy", "loss", "mae", "max_ae"), (seeds, STEPS))
    shapes |= dict.fromkeys(("recall", "p_unused", "says_unused", "recall_mae"), (seeds, STEPS - 1))
    shapes["repeat_loss"] = (seeds, STEPS - 1, STEPS)
    perfect = {"accuracy": 1.0, "recall": 1.0}
    return {
        name: np.array(np.broadcast_to(entries.get(name, perfect.get(name, 0.0)), shape), float)
        for name, shape in shapes.items()
    }


def wobble(x, width=1e-4):
    """A number for each seed, on average x: means of values that all agree have no interval."""
    return x + np.linspace(-width, width, N)


def cards(found, *names, scale="full"):
    """The same report card for conditions and all their readings."""
    return {(each, report_card): found for name in names for each in in_every_reading(name, scale)}


def rates(value, *names, scale="full"):
    """The same accuracy at the last step for conditions and all their readings."""
    found = np.array(np.broadcast_to(value, N), float)
    return {
        (each, elimination_rate): found for name in names for each in in_every_reading(name, scale)
    }


# ---- models written by hand
# Four symbols instead of five: every probe reads each of 5 x 24 held-out sequences instead of
# 24 x 120, and no rule that is tested on these models counts symbols.

FOUR = Permutation(n_symbols=4)
SURE = 120.0  # a logit that settles an answer
FAR = 400.0  # a score that settles where a head looks


class Directions:
    """Orthogonal directions of the stream, given out by name."""

    def __init__(self, **sizes):
        ends = np.cumsum(list(sizes.values())).tolist()
        self.parts = {
            name: np.arange(end - size, end)
            for (name, size), end in zip(sizes.items(), ends, strict=True)
        }

    def __getattr__(self, name):
        return self.parts[name]


def written_eliminator(spec):
    """One head that looks evenly at the outputs shown so far;
    each token that it finds there is ruled out.

    The first query sees nothing but itself, and takes it for an output: five hidden units, which
    speak at the first position alone, take that back. So every answer is the exact posterior of
    elimination, and nothing is ever recalled.
    """
    v, p = spec.task.n_symbols, silent(spec)
    at = Directions(token=v, output=1, first=1, used=v)
    symbols = np.arange(v)
    p["embed.W_E"][1 + symbols, at.token] = 1
    p["pos_embed.W_pos"][1::2, at.output] = 1
    p["pos_embed.W_pos"][0, at.first] = 1
    p["blocks.0.attn.b_Q"][0, 0] = FAR * spec.model.d_head**0.5
    p["blocks.0.attn.W_K"][0, at.output, 0] = 1
    p["blocks.0.attn.W_V"][0, at.token, symbols] = 1
    p["blocks.0.attn.W_O"][0, symbols, at.used] = 1
    p["blocks.0.mlp.W_in"][at.used, symbols] = 1
    p["blocks.0.mlp.W_in"][at.first, symbols] = 2
    p["blocks.0.mlp.b_in"][symbols] = -2
    p["blocks.0.mlp.W_out"][symbols, at.used] = -1
    p["unembed.W_U"][at.used, 1 + symbols] = -SURE
    p["unembed.b_U"][0] = -SURE
    return p


def written_recaller(spec, local):
    """Two heads that divide the work: head 0 eliminates as above,
    head 1 finds out whether the first pair is asked again.

    The last query of head 1 looks at the first pair, at x1 with weight 3 if it asks for x1 and else
    with weight 1, at y1 with weight 3 if it asks for y1 and else with weight 1. What it carries: m,
    its weight on x1, and how much of each token it saw.

        asked for        m      token asked for    another token that was seen
        x1, not y1      3/4     3/4                y1: 1/4
        x1 = y1         1/2     1
        y1, not x1      1/4     3/4
        neither         1/2     0

    One set of hidden units speaks where m > .7, and most loudly for y1; another where m + what was
    seen of the token asked for is more than 1.25, which is so in the first two rows. The second is
    much the weaker and decides the second row alone.

    `local` says where head 1 looks at all other positions, from where it changes no last answer:
    queries to the output just before and outputs to themselves, or everything to the first pair.
    """
    v, p = spec.task.n_symbols, silent(spec)
    n = spec.task.n_ctx
    at = Directions(token=v, place=n, used=v, seen=v, m=1)
    symbols, places, root = np.arange(v), np.arange(n), spec.model.d_head**0.5
    p["embed.W_E"][1 + symbols, at.token] = 1
    p["pos_embed.W_pos"][places, at.place] = 1

    score = np.zeros((2, n, n))  # head, query, key: by place alone
    score[0][:, 1::2] = FAR
    score[1][:, :2] = FAR
    if local:
        before = np.where((places % 2 == 1) | (places == 0), places, places - 1)[:-1]
        score[1][:-1] = 0
        score[1][places[:-1], before] = FAR
    for head in (0, 1):
        keys = np.arange(n)
        p["blocks.0.attn.W_Q"][head, at.place[:, None], keys[None]] = root * score[head]
        p["blocks.0.attn.W_K"][head, at.place, keys] = 1
        p["blocks.0.attn.W_V"][head, at.token, symbols] = 1
    same = n + symbols  # of head 1: how alike two tokens are
    p["blocks.0.attn.W_Q"][1, at.token, same] = root * math.log(3)
    p["blocks.0.attn.W_K"][1, at.token, same] = 1
    p["blocks.0.attn.W_V"][1, at.place[0], v] = 1
    p["blocks.0.attn.W_O"][0, symbols, at.used] = 1
    p["blocks.0.attn.W_O"][1, symbols, at.seen] = 1
    p["blocks.0.attn.W_O"][1, v, at.m] = 1

    into, out, bias = (p[f"blocks.0.mlp.{name}"] for name in ("W_in", "W_out", "b_in"))
    first, shown, fixed = symbols, v + symbols, 2 * v + symbols  # three sets of hidden units
    into[at.used, first] = 1
    into[at.place[0], first] = 2
    bias[first] = -2
    out[first, at.used] = -1
    into[at.seen, shown] = 1
    into[at.token, shown] = -1
    into[at.m, shown] = 10
    bias[shown] = -10 * 0.7
    out[shown, at.used] = -20
    into[at.seen, fixed] = 1
    into[at.token, fixed] = 1
    into[at.m, fixed] = 1
    bias[fixed] = -2.25
    out[fixed, at.used] = -4
    into[
        at.place[0], np.concatenate([shown, fixed])
    ] = -100  # at the first position nothing can be asked again
    p["unembed.W_U"][at.used, 1 + symbols] = -SURE
    p["unembed.b_U"][0] = -SURE * 100
    return p


def measured_once(name, written, probes):
    """What the probes read in a few written models, a row each."""
    spec = build_conditions("full")[name].spec.model_copy(update={"task": FOUR})
    models = written(spec)
    evidence = evidence_of({name: planted(spec, len(models), params=models)})
    return {probe: evidence.measure(name, probe) for probe in probes}


def like(measured, *counts):
    """What is read of seeds that are such models: (row, how many) for each kind."""
    rows = [row for row, many in counts for _ in range(many)]
    return {probe: rows_of(found, rows) for probe, found in measured.items()}
