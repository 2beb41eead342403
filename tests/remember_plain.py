"""R6, R7 and R17 by a second route: what they read of a model, from its weights alone.

A one-layer transformer written out in NumPy with loops over sequences' steps, and posteriors by
counting; nothing of the package is used but the names of parameters. Mappings are rows of symbols
0..V-1, tokens are 1..V.
"""

import itertools

import numpy as np


def norm(p, name, x):
    """A layer norm after a sum; none if the model has no such weights."""
    if f"{name}.w" not in p:
        return x
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5)
    return x * p[f"{name}.w"] + p[f"{name}.b"]


def answers(p, sequences):
    """The probabilities of all tokens at every x: (sequence, step, token)."""
    p = {name: np.asarray(value, np.float64) for name, value in p.items()}
    sequences = np.asarray(sequences)
    length = sequences.shape[1] - 1
    x = p["embed.W_E"][sequences[:, :length]] + p["pos_embed.W_pos"][:length]
    added = np.zeros_like(x)
    attn = "blocks.0.attn"
    for head in range(p[f"{attn}.W_Q"].shape[0]):
        q, k, v = (x @ p[f"{attn}.W_{n}"][head] + p[f"{attn}.b_{n}"][head] for n in "QKV")
        for t in range(length):
            scores = (k[:, : t + 1] @ q[:, t, :, None])[..., 0] / np.sqrt(q.shape[-1])
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            seen = (weights[..., None] * v[:, : t + 1]).sum(axis=1)
            added[:, t] += seen @ p[f"{attn}.W_O"][head]
    x = norm(p, "blocks.0.ln1", x + added + p[f"{attn}.b_O"])
    hidden = np.maximum(x @ p["blocks.0.mlp.W_in"] + p["blocks.0.mlp.b_in"], 0)
    x = x + hidden @ p["blocks.0.mlp.W_out"] + p["blocks.0.mlp.b_out"]
    logits = norm(p, "blocks.0.ln2", x) @ p["unembed.W_U"] + p["unembed.b_U"]
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True))[:, ::2]


def listed(mappings, again):
    """Every sequence x1 y1 ... of these mappings; the last pair is the first one again, or new."""
    rows = []
    for mapping in np.asarray(mappings).tolist():
        for order in itertools.permutations(range(len(mapping))):
            xs = [*order[:-1], order[0]] if again else order
            rows.append([token for x in xs for token in (x + 1, mapping[x] + 1)])
    return np.array(rows)


def asked_again(p, mappings):
    """R6: what is answered when x1 is asked again."""
    sequences = listed(mappings, again=True)
    last = answers(p, sequences)[:, -1]
    found = {"p(shown)": [], "p(unused)": [], "says shown": [], "says unused": []}
    for row, given in zip(sequences.tolist(), last, strict=True):
        shown = row[1]
        (unused,) = set(range(1, len(row) // 2 + 1)) - set(row[1:-2:2])
        found["p(shown)"].append(given[shown])
        found["p(unused)"].append(given[unused])
        found["says shown"].append(given.argmax() == shown)
        found["says unused"].append(given.argmax() == unused)
    return {name: np.mean(values) for name, values in found.items()}


def losses(p, mappings):
    """R7: the mean loss where nothing repeats, and where x1 does."""
    found = {}
    for name, again in (("nothing repeats", False), ("x1 repeats", True)):
        sequences = listed(mappings, again)
        given = answers(p, sequences)
        right = np.take_along_axis(given, sequences[:, 1::2, None], axis=-1)
        found[name] = -np.log(right).mean()
    return found


def by_heart(known, prefix, answer):
    """What whoever knows some mappings by heart gives an answer, by counting those that fit."""
    pairs, asked = prefix
    fitting = [m for m in known if all(m[x] == y for x, y in pairs)]
    return sum(m[asked] == answer for m in fitting) / len(fitting) if fitting else 0.0


def stored(p, trained, held_out):
    """R17: how much of what knowing the trained mappings by heart sets apart, a model sets apart,
    before the last step.
    """
    known = np.asarray(trained).tolist()
    of_model, of_heart = [], []
    for mappings in (trained, held_out):
        sequences = listed(mappings, again=False)
        given = answers(p, sequences)
        right = np.take_along_axis(given, sequences[:, 1::2, None], axis=-1)[..., 0]
        of_model.append(right[:, :-1].mean())
        counted = []
        for mapping in np.asarray(mappings).tolist():
            for order in itertools.permutations(range(len(mapping))):
                for step in range(len(mapping) - 1):
                    pairs = [(x, mapping[x]) for x in order[:step]]
                    asked = order[step]
                    counted.append(by_heart(known, (pairs, asked), mapping[asked]))
        of_heart.append(np.mean(counted))
    return (of_model[0] - of_model[1]) / (of_heart[0] - of_heart[1])
