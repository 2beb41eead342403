r"""A forward pass as a list of small equations with their numbers, in the order of the computation.

Every matrix is a `Line`: a name, the formula that made it from lines before it, and its values
(rows are positions or tokens). Values are the model's own, read from its trace; formulas are exact
and are written so that a reader, or a test, can work each line out again from the lines above:

    X = E + P    QKV = X @ W_QKV + b_QKV    S = Q @ K^T / sqrt(d_head)    A = softmax(mask(S))   ...

A step ends with one sentence on what it did to the prediction. What the residual stream would say
if it were read out at once (through the final norm where there is one) is the prediction so far.

`components` splits the logits into what each part wrote: embedding, position, every head, biases,
feed-forward. Norms are held at the scale they had, which makes the split exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.errors import UserError
from mnemoscope.models import Transformer
from mnemoscope.models.support import ANY, Support

Rows = Float[np.ndarray, "row column"]


@dataclass(frozen=True)
class Line:
    """One matrix: `name = formula`."""

    name: str
    # how it follows from lines above; empty if it is given (a parameter)
    formula: str
    values: Rows
    # names of the rows
    rows: tuple[str, ...]
    # names of the columns, where they have any: tokens, or the positions looked at
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """Some lines that belong together."""

    title: str
    lines: tuple[Line, ...]
    # what they did to the prediction
    sentence: str


@dataclass(frozen=True)
class Walk:
    """The whole pass for one prompt."""

    # its tokens, as they are written
    prompt: tuple[str, ...]
    # how every token is written
    token_names: tuple[str, ...]
    # in the order of the computation
    steps: tuple[Step, ...]
    # the residual stream after each step that changed it
    stream: dict[str, Rows]
    # what each part of the model adds to the logits
    components: dict[str, Float[np.ndarray, "pos vocab"]]
    # what the model says
    logits: Float[np.ndarray, "pos vocab"]
    # the matrix and the bias that make logits of the stream
    read_out: tuple[Float[np.ndarray, "d_model vocab"], Float[np.ndarray, "vocab"]]

    @property
    def probabilities(self) -> Float[np.ndarray, "pos vocab"]:
        """softmax of the logits, by position."""
        return _softmax(self.logits)

    def contributions(self, position: int) -> dict[str, Float[np.ndarray, "vocab"]]:
        """What each part added to the logits at one position, and last their sum."""
        parts = {name: part[position] for name, part in self.components.items()}
        return parts | {"sum, the logits": np.sum(list(parts.values()), axis=0)}


SUPPORT = Support(
    "the walk",
    {
        "norm": ANY,
        "norm_type": ("layer",),
        "norm_eps": ANY,
        "bias": ANY,
        "unembed_bias": ANY,
        "tied": ANY,
        "act": ("relu", "linear"),
        "mlp_layers": ANY,
    },
)


def walk(model: Transformer, tokens: Sequence[int], token_names: tuple[str, ...]) -> Walk:
    """Walk one prompt through a model.

    Args:
        model: a plain transformer.
        tokens: the prompt.
        token_names: how the tokens are written.
    """
    SUPPORT.require(model.config)
    if not model.config.tied and model.params["unembed.W_U"].shape[1] != len(token_names):
        raise UserError(
            "a walk is written for models whose answers are their tokens; "
            "this model has answers of its own"
        )
    way = _Way(model, model.check(tokens), token_names)
    way.look_up()
    for layer in range(model.config.n_layers):
        way.project(layer)
        for head in range(model.config.n_heads):
            way.attend(layer, head)
        way.write(layer)
        if model.config.has_mlp(layer):
            way.feed_forward(layer)
    way.read_out()
    return Walk(
        prompt=way.prompt,
        token_names=way.token_names,
        steps=tuple(way.steps),
        stream=way.stream,
        components=components(model, way.ids),
        logits=way.logits,
        read_out=way.reading,
    )


class _Way:
    """A walk being written: `at` names the line that holds the residual stream, `x` is its
    value."""

    def __init__(self, model: Transformer, tokens: Array, token_names: tuple[str, ...]):
        logits, trace = model.run_with_trace(tokens)
        self.config = model.config
        self.p = _numbers(model.params)
        self.trace = _numbers(trace)
        self.logits = np.asarray(logits, np.float64)
        self.ids = np.asarray(tokens)
        self.token_names = token_names
        self.prompt = tuple(token_names[i] for i in self.ids)
        self.places = tuple(f"{i} {name}" for i, name in enumerate(self.prompt))
        w_u = self.p["embed.W_E"].T if self.config.tied else self.p["unembed.W_U"]
        self.reading = (w_u, self.p.get("unembed.b_U", np.zeros(w_u.shape[1])))
        self.steps: list[Step] = []
        self.stream: dict[str, np.ndarray] = {}
        self.at = "X"
        self.x = self.trace["blocks.0.hook_resid_pre"]

    def line(
        self, name: str, formula: str, values: np.ndarray, columns: tuple[str, ...] = ()
    ) -> Line:
        """A matrix with a row for each position."""
        return Line(name, formula, values, self.places, columns)

    def given(
        self, name: str, values: np.ndarray, rows: Sequence[str] = (), columns: tuple[str, ...] = ()
    ) -> Line:
        """A parameter; a vector is one row."""
        values = np.atleast_2d(values)
        numbered = ("",) if len(values) == 1 else tuple(map(str, range(len(values))))
        return Line(name, "", values, tuple(rows) or numbered, columns)

    def name(self, base: str, layer: int, head: int | None = None) -> str:
        """Q; Q_1 in the second of several layers; Q_h0 for the first of several heads."""
        name = base
        if self.config.n_layers > 1:
            name += f"_{layer}"
        if head is not None and self.config.n_heads > 1:
            name += f"_h{head}"
        return name

    def affine(
        self, result: str, of: str, names: tuple[str, str], params: tuple[str, str], out: np.ndarray
    ) -> list[Line]:
        """result = of @ w + b, with its parameters above it; the bias where the model has one.

        `names` are how w and b are written, `params` what the model calls them.
        """
        w, b = names
        weight, bias = params
        matrix = self.p[weight]
        lines = [self.given(w, matrix.reshape(-1, matrix.shape[-1]))]
        formula = f"{of} @ {w}"
        if bias in self.p:
            lines.append(self.given(b, self.p[bias]))
            formula += f" + {b}"
        return [*lines, self.line(result, formula, out)]

    def norm(self, site: str, of: str, result: str) -> list[Line]:
        """result = norm(of) * w + b."""
        w = self.p[f"{site}.w"]
        b = self.p[f"{site}.b"]
        value = self.trace[f"{site}.hook_normalized"] * w + b
        return [
            self.given(f"w_{result}", w),
            self.given(f"b_{result}", b),
            self.line(result, f"norm({of}) * w_{result} + b_{result}", value),
        ]

    def answers(self) -> tuple[str, ...]:
        """What each position would say if the stream were read out now."""
        x = self.x
        if self.config.norm == "pre":
            x = _scaled(x, self.config.norm_eps) * self.p["ln_final.w"] + self.p["ln_final.b"]
        w, b = self.reading
        return tuple(self.token_names[i] for i in (x @ w + b).argmax(axis=-1))

    def move(self, key: str, at: str, x: np.ndarray, did: str) -> str:
        """Put the stream where it is now, and say which answers that changed."""
        before = self.answers() if self.stream else None
        self.at = at
        self.x = x
        self.stream[key] = x
        after = self.answers()
        says = f"{did}; read out now, the answers would be {', '.join(after)}"
        if before is None:
            return f"{says}."
        changes = []
        for where, a, b in zip(self.prompt, before, after, strict=True):
            if a != b:
                changes.append(f"after {where} from {a} to {b}")
        return f"{says} ({'; '.join(changes) or 'none changed'})."

    def pushes(self, who: str, out: np.ndarray) -> str:
        """Which answer a part favours most at each position, against the mean of all answers."""
        change = out @ self.reading[0]
        over = change - change.mean(axis=-1, keepdims=True)
        favours = []
        for where, row in zip(self.prompt, over, strict=True):
            favours.append(f"{self.token_names[row.argmax()]} after {where} (+{row.max():.2f})")
        return f"{who} pushes towards {', '.join(favours)}"

    def look_up(self) -> None:
        """Tokens and positions, added."""
        lines = (
            self.given("W_E", self.p["embed.W_E"], self.token_names),
            self.given("W_pos", self.p["pos_embed.W_pos"]),
            self.line("E", f"W_E[{self.ids.tolist()}]", self.trace["hook_embed"]),
            self.line("P", f"W_pos[0:{len(self.ids)}]", self.trace["hook_pos_embed"]),
            self.line("X", "E + P", self.x),
        )
        did = "Each position starts as its token plus its place"
        sentence = self.move("embedding + position", "X", self.x, did)
        self.steps.append(Step("Look up the tokens and their positions", lines, sentence))

    def normed(self, site: str, base: str, layer: int) -> tuple[str, list[Line]]:
        """What a part reads: the stream, or its norm where the model takes one before; and the
        lines of that norm."""
        if self.config.norm != "pre":
            return self.at, []
        name = self.name(base, layer)
        return name, self.norm(site, self.at, name)

    def project(self, layer: int) -> None:
        """The packed product of queries, keys and values, and its split by head."""
        attn = f"blocks.{layer}.attn"
        d = self.config.d_model
        packed = self.name("QKV", layer)
        source, lines = self.normed(f"blocks.{layer}.ln1", "N", layer)
        weights = [self.p[f"{attn}.W_{n}"].transpose(1, 0, 2).reshape(d, d) for n in "QKV"]
        lines.append(self.given(f"W_{packed}", np.concatenate(weights, axis=1)))
        formula = f"{source} @ W_{packed}"
        if f"{attn}.b_Q" in self.p:
            biases = [self.p[f"{attn}.b_{n}"].ravel() for n in "QKV"]
            lines.append(self.given(f"b_{packed}", np.concatenate(biases)))
            formula += f" + b_{packed}"
        views = [self.trace[f"{attn}.hook_{n}"].reshape(-1, d) for n in "qkv"]
        whole = np.concatenate(views, axis=1)
        lines.append(self.line(packed, formula, whole))
        lines += self.split_by_head(layer, packed, whole)
        sentence = (
            "Three views of the same vectors; nothing is written yet, "
            f"so the answers stay {', '.join(self.answers())}."
        )
        title = "Q, K, V: queries, keys and values"
        self.steps.append(Step(title, tuple(lines), sentence))

    def split_by_head(self, layer: int, packed: str, whole: np.ndarray) -> list[Line]:
        """Each head's columns of the packed product: all queries, then all keys, then values."""
        lines = []
        end = 0
        for base in "QKV":
            for head in range(self.config.n_heads):
                begin = end
                end = begin + self.config.d_head
                formula = f"{packed}[:, {begin}:{end}]"
                lines.append(self.line(self.name(base, layer, head), formula, whole[:, begin:end]))
        return lines

    def attend(self, layer: int, head: int) -> None:
        """One head: scores, mask, softmax, and the values it carries."""
        attn = f"blocks.{layer}.attn"
        d_head = self.config.d_head
        q, k, v, s, m, a, z = (self.name(base, layer, head) for base in "QKVSMAZ")
        queries = self.trace[f"{attn}.hook_q"][:, head]
        keys = self.trace[f"{attn}.hook_k"][:, head]
        carried = self.trace[f"{attn}.hook_z"][:, head]
        masked = self.trace[f"{attn}.hook_attn_scores"][head]
        pattern = self.trace[f"{attn}.hook_pattern"][head]
        scores = queries @ keys.T * d_head**-0.5
        lines = (
            self.line(s, f"{q} @ {k}^T / sqrt({d_head})", scores, self.places),
            self.line(m, f"mask({s})", masked, self.places),
            self.line(a, f"softmax({m})", pattern, self.places),
            self.line(z, f"{a} @ {v}", carried),
        )
        last = pattern[-1]
        many = self.config.n_heads > 1
        who = f"Head {head}" if many else "The head"
        sentence = (
            f"{who} looks, from the last position, most at {self.places[last.argmax()]} "
            f"({last.max():.0%}); the answers stay {', '.join(self.answers())} until it writes."
        )
        self.steps.append(Step(f"Attend, head {head}" if many else "Attend", lines, sentence))

    def write(self, layer: int) -> None:
        """What the heads carry, through W_O and into the stream."""
        block = f"blocks.{layer}"
        n_heads = self.config.n_heads
        z, o, result = (self.name(base, layer) for base in "ZOR")
        lines = []
        if n_heads > 1:
            parts = ", ".join(self.name("Z", layer, head) for head in range(n_heads))
            carried = self.trace[f"{block}.attn.hook_z"].reshape(len(self.ids), -1)
            lines.append(self.line(z, f"concat({parts})", carried))
        out = self.trace[f"{block}.hook_attn_out"]
        names = (self.name("W_O", layer), self.name("b_O", layer))
        lines += self.affine(o, z, names, (f"{block}.attn.W_O", f"{block}.attn.b_O"), out)
        lines += self.add(f"{block}.ln1", o, result, out)
        did = self.pushes("Attention", out)
        sentence = self.move(f"attention{self.which(layer)}", lines[-1].name, lines[-1].values, did)
        title = "Write what attention found into the stream"
        self.steps.append(Step(title, tuple(lines), sentence))

    def feed_forward(self, layer: int) -> None:
        """Two matrices with the activation between them, at each position by itself."""
        block = f"blocks.{layer}"
        mlp = f"{block}.mlp"
        h, g, f, result = (self.name(base, layer) for base in "HGFY")
        source, lines = self.normed(f"{block}.ln2", "N2", layer)
        names = (self.name("W_in", layer), self.name("b_in", layer))
        hidden = self.trace[f"{mlp}.hook_pre"]
        lines += self.affine(h, source, names, (f"{mlp}.W_in", f"{mlp}.b_in"), hidden)
        formula = f"relu({h})" if self.config.act == "relu" else h
        lines.append(self.line(g, formula, self.trace[f"{mlp}.hook_post"]))
        out = self.trace[f"{block}.hook_mlp_out"]
        names = (self.name("W_out", layer), self.name("b_out", layer))
        lines += self.affine(f, g, names, (f"{mlp}.W_out", f"{mlp}.b_out"), out)
        lines += self.add(f"{block}.ln2", f, result, out)
        did = self.pushes("The feed-forward layer", out)
        key = f"feed-forward{self.which(layer)}"
        sentence = self.move(key, lines[-1].name, lines[-1].values, did)
        title = "Feed forward, each position by itself"
        self.steps.append(Step(title, tuple(lines), sentence))

    def which(self, layer: int) -> str:
        """The number of a layer, where there are several."""
        return f" {layer}" if self.config.n_layers > 1 else ""

    def add(self, norm: str, part: str, result: str, out: np.ndarray) -> list[Line]:
        """A part's output added to the stream, and the norm of the sum where the model takes one
        after; the last line is the stream from here on."""
        lines = [self.line(result, f"{self.at} + {part}", self.x + out)]
        if self.config.norm == "post":
            lines += self.norm(norm, result, f"N_{result}")
        return lines

    def read_out(self) -> None:
        """Logits, probabilities, and the answer after every token."""
        w, b = self.reading
        lines = []
        source = self.at
        if self.config.norm == "pre":
            source = "N_final"
            lines = self.norm("ln_final", self.at, source)
        lines.append(self.given("W_U", w, (), self.token_names))
        formula = f"{source} @ W_U"
        if "unembed.b_U" in self.p:
            lines.append(self.given("b_U", b, (), self.token_names))
            formula += " + b_U"
        p = _softmax(self.logits)
        lines.append(self.line("L", formula, self.logits, self.token_names))
        lines.append(self.line("Pr", "softmax(L)", p, self.token_names))
        told = []
        for where, row in zip(self.prompt, p, strict=True):
            told.append(f"after {where} comes {self.token_names[row.argmax()]} ({row.max():.1%})")
        self.steps.append(Step("Read out", tuple(lines), f"The model says: {', '.join(told)}."))


def _numbers(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The same arrays on the host, in 64 bits."""
    return {name: np.asarray(value, np.float64) for name, value in arrays.items()}


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _centred(x: np.ndarray) -> np.ndarray:
    return x - x.mean(axis=-1, keepdims=True)


def _scale(centered: np.ndarray, eps: float) -> np.ndarray:
    """What a norm divides by."""
    return np.sqrt(np.square(centered).mean(axis=-1, keepdims=True) + eps)


def _scaled(x: np.ndarray, eps: float) -> np.ndarray:
    centered = _centred(x)
    return centered / _scale(centered, eps)


def components(
    model: Transformer, tokens: Int[np.ndarray, "pos"]
) -> dict[str, Float[np.ndarray, "pos vocab"]]:
    """What each part of the model adds to every logit; the parts sum to the logits exactly.

    A norm is linear once its scale is held: (x - mean) / scale * w, with b as a part of its own.
    """
    config = model.config
    p = _numbers(model.params)
    trace = _numbers(model.run_with_trace(jnp.asarray(tokens))[1])
    parts = {"embedding": trace["hook_embed"], "position": trace["hook_pos_embed"]}
    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        which = f" of layer {layer}" if config.n_layers > 1 else ""
        result = trace[f"{block}.attn.hook_result"]
        for head in range(config.n_heads):
            parts[f"head {head}{which}"] = result[:, head]
        if f"{block}.attn.b_O" in p:
            bias = np.broadcast_to(p[f"{block}.attn.b_O"], result[:, 0].shape)
            parts[f"attention's bias{which}"] = bias
        if config.norm == "post":
            parts = _through_norm(parts, p, f"{block}.ln1", config.norm_eps)
        if config.has_mlp(layer):
            parts[f"feed-forward{which}"] = trace[f"{block}.hook_mlp_out"]
            if config.norm == "post":
                parts = _through_norm(parts, p, f"{block}.ln2", config.norm_eps)
    if config.norm == "pre":
        parts = _through_norm(parts, p, "ln_final", config.norm_eps)
    w_u = p["embed.W_E"].T if config.tied else p["unembed.W_U"]
    split = {name: part @ w_u for name, part in parts.items()}
    if "unembed.b_U" in p:
        split["read-out's bias"] = np.broadcast_to(p["unembed.b_U"], split["embedding"].shape)
    return split


def _through_norm(
    parts: dict[str, np.ndarray], p: dict[str, np.ndarray], name: str, eps: float
) -> dict[str, np.ndarray]:
    """The parts of a normalized stream, from the parts of the stream before."""
    total = np.sum(list(parts.values()), axis=0)
    scale = _scale(_centred(total), eps)
    normed = {key: _centred(part) / scale * p[f"{name}.w"] for key, part in parts.items()}
    normed[f"bias of {name}"] = np.broadcast_to(p[f"{name}.b"], total.shape)
    return normed
