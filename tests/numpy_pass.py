"""The forward pass once more, in plain NumPy with loops over heads and positions: a second opinion
on every row of the layer tables. Nothing of the package is used but the names of fields and
parameters.
"""

import math

import numpy as np

erf = np.vectorize(math.erf)


def activation(name, x):
    if name == "relu":
        return np.maximum(x, 0)
    if name == "linear":
        return x
    if name == "gelu":
        return x * (1 + erf(x / np.sqrt(2))) / 2
    if name == "gelu_new":
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    if name == "silu":
        return x / (1 + np.exp(-x))
    raise NotImplementedError(f"no activation {name!r}")


def norm(config, p, name, x):
    if config.norm_type == "rms":
        return x / np.sqrt((x**2).mean() + config.norm_eps) * p[f"{name}.w"]
    if config.norm_type != "layer":
        raise NotImplementedError(f"no norm {config.norm_type!r}")
    centered = x - x.mean()
    scale = np.sqrt((centered**2).mean() + config.norm_eps)
    return centered / scale * p[f"{name}.w"] + p[f"{name}.b"]


def rotated(config, x, position):
    """One head's query or key at a position: each pair of dimensions as a complex number,
    turned.
    """
    half = config.rotary_dim // 2
    out = x.copy()
    for i in range(half):
        one, two = (2 * i, 2 * i + 1) if config.rotary_adjacent_pairs else (i, i + half)
        angle = position * config.rotary_base ** (-2 * i / config.rotary_dim)
        turned = complex(x[one], x[two]) * complex(math.cos(angle), math.sin(angle))
        out[one] = turned.real
        out[two] = turned.imag
    return out


def weights_of(config, q, keys, position):
    """How much a query attends to each of the keys that it may see."""
    scores = np.array([q @ k for k in keys])
    if config.attention == "linear":
        return scores
    scores = scores / math.sqrt(config.d_head)
    if config.attention == "relu":
        return np.maximum(scores, 0)
    if config.attention != "softmax":
        raise NotImplementedError(f"no attention {config.attention!r}")
    e = np.exp(scores - scores.max())
    return e / e.sum()


def attention(config, p, block, seen):
    """What the heads of a layer add, position by position."""
    n_pos = len(seen)
    group = config.n_heads // config.n_key_value_heads
    out = np.zeros((n_pos, config.d_model))
    for head in range(config.n_heads):

        def project(name, of_head, is_rotated):
            w = p[f"{block}.attn.W_{name}"][of_head]
            b = p[f"{block}.attn.b_{name}"][of_head] if config.bias else 0
            rows = [x @ w + b for x in seen]
            if is_rotated and config.positions == "rotary":
                rows = [rotated(config, row, t) for t, row in enumerate(rows)]
            return rows

        q = project("Q", head, True)
        k = project("K", head // group, True)
        v = np.array(project("V", head // group, False))
        for t in range(n_pos):
            end = t + 1 if config.causal else n_pos
            mixed = weights_of(config, q[t], k[:end], t) @ v[:end]
            out[t] += mixed @ p[f"{block}.attn.W_O"][head]
    return out + (p[f"{block}.attn.b_O"] if config.bias else 0)


def feed_forward(config, p, block, seen):
    """What the hidden units of a layer add."""
    mlp = f"{block}.mlp"
    b_in = p[f"{mlp}.b_in"] if config.bias else 0
    into = seen @ p[f"{mlp}.W_in"]
    if config.gated_mlp:
        hidden = activation(config.act, seen @ p[f"{mlp}.W_gate"]) * into + b_in
    else:
        hidden = activation(config.act, into + b_in)
    return hidden @ p[f"{mlp}.W_out"] + (p[f"{mlp}.b_out"] if config.bias else 0)


def positions(config, p, n_pos):
    if config.positions == "learned":
        return p["pos_embed.W_pos"][:n_pos]
    if config.positions in ("none", "rotary"):
        return np.zeros((n_pos, config.d_model))
    if config.positions != "sinusoidal":
        raise NotImplementedError(f"no positions {config.positions!r}")
    table = np.zeros((n_pos, config.d_model))
    for t in range(n_pos):
        for i in range(0, config.d_model, 2):
            angle = t / 10_000 ** (i / config.d_model)
            table[t, i] = math.sin(angle)
            if i + 1 < config.d_model:
                table[t, i + 1] = math.cos(angle)
    return table


def numpy_logits(config, params, tokens):
    """The logits after every token, in float64."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}

    def normed(name, x):
        return np.stack([norm(config, p, name, row) for row in x])

    x = p["embed.W_E"][list(tokens)] + positions(config, p, len(tokens))
    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        before = x
        if config.attn_layers is None or layer in config.attn_layers:
            seen = normed(f"{block}.ln1", x) if config.norm == "pre" else x
            x = (x if config.attn_residual else 0) + attention(config, p, block, seen)
            if config.norm == "post":
                x = normed(f"{block}.ln1", x)
        if config.d_mlp and (config.mlp_layers is None or layer in config.mlp_layers):
            into = before if config.parallel_attn_mlp else x
            seen = normed(f"{block}.ln2", into) if config.norm == "pre" else into
            x = x + feed_forward(config, p, block, seen)
            if config.norm == "post":
                x = normed(f"{block}.ln2", x)
    if config.norm == "pre":
        x = normed("ln_final", x)
    w_u = p["embed.W_E"].T if config.tied else p["unembed.W_U"]
    return x @ w_u + (p["unembed.b_U"] if config.bias and config.unembed_bias else 0)
