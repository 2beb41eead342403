"""What tests of the walk share: models of every kind,
and a reader of what is printed that works each line out again in NumPy.
"""

import re
from contextlib import contextmanager
from functools import cache, partial
from math import erf, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemoscope.models import ModelConfig, Transformer, forward, parameter_shapes, unembed
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.attention_kinds import ATTENTION
from mnemoscope.models.norms import NORMS
from mnemoscope.probes.walk import walk
from mnemoscope.report.walk import cells, render_text

NAMES = ("A", "B", "C", "D")
N_CTX = 5
HEADING = re.compile(r"^   (\w+)(?: = (.+))? \((\d+) x (\d+)\)$")


# models ------------------------------------------------------------------------------------------

BASE = {"d_model": 4, "n_heads": 2, "d_mlp": 3}
PARTLY = {"positions": "rotary", "d_head": 6, "rotary_dim": 4}
# every row of the tables and every value that is another way to compute, by what is new in it
ROWS = {
    "as it is": {},
    "no biases": {"bias": False},
    "no bias at the read-out": {"unembed_bias": False},
    "tied": {"tied": True},
    **{f"act {name}": {"act": name} for name in ACTIVATIONS},
    **{
        f"norm {norm} {kind}": {"norm": norm, "norm_type": kind}
        for norm in ("pre", "post")
        for kind in NORMS
    },
    "norm_eps": {"norm": "pre", "norm_eps": 0.3},
    "norm_eps of rms": {"norm": "post", "norm_type": "rms", "norm_eps": 0.3},
    **{
        f"attention {name} causal {causal}": {"attention": name, "causal": causal}
        for name in ATTENTION
        for causal in (True, False)
    },
    "no positions": {"positions": "none"},
    "sinusoidal": {"positions": "sinusoidal"},
    "sinusoidal in odd dimensions": {"positions": "sinusoidal", "d_model": 5, "n_heads": 1},
    "rotary": {"positions": "rotary"},
    "rotary base": {"positions": "rotary", "d_head": 4, "rotary_base": 7.5},
    "rotary in part, halves": PARTLY,
    "rotary in part, adjacent": {**PARTLY, "rotary_adjacent_pairs": True},
    "gated": {"gated_mlp": True, "act": "silu"},
    "gated without activation": {"gated_mlp": True, "act": "linear", "bias": False},
    "groups of heads": {"n_heads": 4, "n_key_value_heads": 2},
    "one key-value head": {
        "n_heads": 4,
        "n_key_value_heads": 1,
        "positions": "rotary",
        "d_head": 2,
    },
    "parallel": {"parallel_attn_mlp": True},
    "parallel, each alone": {
        "parallel_attn_mlp": True,
        "n_layers": 2,
        "attn_layers": (0,),
        "mlp_layers": (1,),
    },
    "no residual": {"attn_residual": False},
    "no residual, later": {"attn_residual": False, "n_layers": 2, "attn_layers": (1,)},
    "no residual, norm post": {"attn_residual": False, "norm": "post"},
    "wide heads": {"d_head": 3},
    "two layers": {"n_layers": 2, "norm": "pre"},
    "attention in one layer": {"n_layers": 2, "attn_layers": (1,), "positions": "rotary"},
    "no attention": {"attn_layers": (), "positions": "rotary"},
    "feed-forward in one layer": {"n_layers": 2, "mlp_layers": (0,), "norm": "post"},
    # the models that these fields were made for
    "GPT-2": {"norm": "pre", "act": "gelu_new", "n_layers": 2, "tied": True, "unembed_bias": False},
    "GPT-J": {
        **PARTLY,
        "rotary_adjacent_pairs": True,
        "norm": "pre",
        "act": "gelu_new",
        "parallel_attn_mlp": True,
    },
    "GPT-NeoX": {
        **PARTLY,
        "norm": "pre",
        "act": "gelu",
        "parallel_attn_mlp": True,
        "n_layers": 2,
        "unembed_bias": False,
    },
    "Llama": {
        "n_heads": 4,
        "n_key_value_heads": 2,
        "d_head": 2,
        "positions": "rotary",
        "norm": "pre",
        "norm_type": "rms",
        "norm_eps": 1e-6,
        "act": "silu",
        "gated_mlp": True,
        "bias": False,
        "n_layers": 2,
    },
}


def config_of(changes):
    """A small model with so much changed."""
    return ModelConfig(**{**BASE, **changes})


def model_of(config, seed=0):
    """Parameters that are nowhere at their neutral start, so that a forgotten one shows."""
    rng = np.random.default_rng(seed)
    scales = (".ln1.w", ".ln2.w", "ln_final.w")
    params = {}
    for name, size in parameter_shapes(config, len(NAMES), N_CTX).items():
        drawn = name.endswith(scales) + 0.4 * rng.normal(size=size)
        params[name] = jnp.asarray(drawn, jnp.float32)
    return Transformer(config, params)


@cache
def walk_of(row, prompt=(1, 0, 3, 2)):
    """The model of a row of `ROWS`, and its walk of a prompt."""
    model = model_of(config_of(ROWS[row]))
    return model, walk(model, list(prompt), NAMES)


@contextmanager
def whole_passes():
    """A forward pass is one program here: operation by operation,
    each shape would be compiled a hundred times.
    """
    with pytest.MonkeyPatch.context() as quick:
        quick.setattr("mnemoscope.models.transformer.forward", jax.jit(forward, static_argnums=0))
        quick.setattr("mnemoscope.probes.walk_lines.unembed", jax.jit(unembed, static_argnums=0))
        yield


# what formulas mean, in NumPy ---------------------------------------------------------------------


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def rms_norm(x, eps):
    return x / np.sqrt((x**2).mean(1, keepdims=True) + eps)


def angles(n, dims, base):
    return np.array(
        [[p * base ** (-2 * i / dims) for i in range((dims + 1) // 2)] for p in range(n)]
    )


def interleave(a, b):
    out = np.zeros((len(a), 2 * a.shape[1]))
    out[:, 0::2] = a
    out[:, 1::2] = b
    return out


def rotate(pairs, x, phi):
    """Pair by pair, as the columns of Phi name them."""
    out = x.copy()
    for angle, (i, j) in zip(phi.T, pairs, strict=True):
        out[:, i] = x[:, i] * np.cos(angle) - x[:, j] * np.sin(angle)
        out[:, j] = x[:, i] * np.sin(angle) + x[:, j] * np.cos(angle)
    return out


FUNCTIONS = {
    "softmax": softmax,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(erf)(x / sqrt(2))) / 2,
    "gelu_new": lambda x: x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "mask": lambda x, hidden=-np.inf: np.where(np.tril(np.ones(x.shape, bool)), x, hidden),
    "layer_norm": lambda x, eps: rms_norm(x - x.mean(1, keepdims=True), eps),
    "rms_norm": rms_norm,
    "concat": lambda *parts: np.concatenate(parts, axis=1),
    "angles": angles,
    "interleave": interleave,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
}


# what is printed ----------------------------------------------------------------------------------


def printed_of(found, digits):
    """A walk as text in which nothing is folded or broken."""
    with pytest.MonkeyPatch.context() as whole:
        whole.setattr(cells, "MOST", 999)
        return render_text(found, "a walk", digits, width=10**6)


def parsed(printed):
    """(name, formula, values, names of columns) of every line of a printed walk, in order."""
    rows = printed.splitlines()
    for i, row in enumerate(rows):
        found = HEADING.match(row)
        if not found:
            continue
        name, formula = found.groups()[:2]
        n, m = int(found[3]), int(found[4])
        first = rows.index("", i) - n  # above may stand the names of the columns
        columns = rows[i + 1].split() if first > i + 1 else []
        values = [[float(x) for x in rows[first + j].split()[-m:]] for j in range(n)]
        yield name, formula, np.array(values), columns


def worked_out(formula, known, half, functions):
    """The formula on printed numbers, and how far each entry moves
    when they are off by half a digit, one by one.
    """
    names = [n for n in set(re.findall(r"[A-Za-z_]\w*", formula)) if n in known]
    code = compile(formula.replace("^T", ".T"), "formula", "eval")
    values = {n: known[n].copy() for n in names}
    result = eval(code, dict(functions), values)
    moved = np.zeros(result.shape)
    for value in values.values():
        for i in np.ndindex(value.shape):
            if np.isfinite(value[i]):
                value[i] += half
                here = np.isfinite(result)
                moved[here] += np.abs(eval(code, dict(functions), values)[here] - result[here])
                value[i] -= half
    return result, moved


def follow(printed, digits, more=()):
    """Every line by name, if each follows from those above it;
    `more` are functions that formulas have besides `FUNCTIONS`.
    """
    functions = {**FUNCTIONS, **dict(more)}
    known = {}
    half = 0.5 * 10.0**-digits
    for name, formula, values, columns in parsed(printed):
        assert name not in known, f"{name} is printed twice"
        if formula:
            again, moved = worked_out(formula, known, half, functions)
            hidden = np.isneginf(values)
            np.testing.assert_array_equal(np.isneginf(again), hidden, err_msg=name)
            # rounding of this line and of those above; float32 in the model
            allowed = half + 1.1 * moved + 2e-5
            apart = np.abs(np.where(hidden, 0.0, again) - np.where(hidden, 0.0, values))
            assert (apart <= allowed).all(), f"{name} = {formula}: {apart.max()} apart"
        if name == "Phi":
            pairs = [tuple(map(int, column.split(","))) for column in columns]
            functions["rotate"] = partial(rotate, pairs)
        known[name] = values
    return known
