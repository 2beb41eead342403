"""The birth study's probes and gradients once more, in plain NumPy with loops.

Nothing of the package is used but the names of parameters.
"""

import numpy as np


def best(scores):
    """The first of the highest."""
    at = 0
    for i in range(len(scores)):
        if scores[i] > scores[at]:
            at = i
    return at


def output_memory(p):
    tokens = p["embed.W_E"]
    right = 0
    for i in range(len(tokens)):
        carried = tokens[i] @ p["blocks.1.attn.W_V"][0] @ p["blocks.1.attn.W_O"][0]
        scores = [carried @ p["unembed.W_U"][:, j] for j in range(p["unembed.W_U"].shape[1])]
        right += best(scores) == i
    return right / len(tokens)


def second_keys(p, tokens):
    right = 0
    for i in tokens:
        query = p["embed.W_E"][i] @ p["blocks.1.attn.W_Q"][0]
        scores = []
        for j in tokens:
            marked = p["embed.W_E"][j] @ p["blocks.0.attn.W_V"][0] @ p["blocks.0.attn.W_O"][0]
            scores.append(query @ (marked @ p["blocks.1.attn.W_K"][0]))
        right += tokens[best(scores)] == i
    return right / len(tokens)


def first_keys(p, asked, candidates):
    """Share of the asked positions that find the one before, among candidates."""
    places = p["pos_embed.W_pos"]
    right = 0
    for t in asked:
        query = places[t] @ p["blocks.0.attn.W_Q"][0]
        scores = [query @ (places[s] @ p["blocks.0.attn.W_K"][0]) for s in candidates]
        right += candidates[best(scores)] == t - 1
    return right / len(asked)


# ---- losses of the two lemmas


def softmax(x):
    e = np.exp(x - max(x))
    return e / e.sum()


def loss_at_the_end(weights, x, y, v, u):
    mean = sum(w * row for w, row in zip(weights, x, strict=True))
    return -np.log(softmax(mean @ v @ u)[y])


def second_layer_loss(w, d):
    losses = []
    for x, y in zip(d["x"], d["y"], strict=True):
        scores = np.array([row @ w @ x[-1] for row in x])
        losses.append(loss_at_the_end(softmax(scores), x, y, d["v"], d["u"]))
    return np.mean(losses)


def first_layer_loss(w, d, linear):
    losses = []
    places = d["places"]
    for x, y in zip(d["x"], d["y"], strict=True):
        scores = np.zeros(len(x))
        for t in range(len(x)):
            look = softmax(np.array([places[s] @ w @ places[t] for s in range(t + 1)]))
            z = sum(look[s] * (x[s] @ d["c"]) for s in range(t + 1))
            scores[t] = z @ d["k"] @ x[-1]
        weights = (1 + scores - scores.mean()) / len(x) if linear else softmax(scores)
        losses.append(loss_at_the_end(weights, x, y, d["v"], d["u"]))
    return np.mean(losses)


def slopes(loss, shape, step=1e-5):
    """The gradient at zero by differences."""
    found = np.zeros(shape)
    for i in range(shape[0]):
        for j in range(shape[1]):
            w = np.zeros(shape)
            w[i, j] = step
            found[i, j] = (loss(w) - loss(-w)) / (2 * step)
    return found
