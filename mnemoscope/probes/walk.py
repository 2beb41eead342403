r"""A forward pass as a list of small equations with their numbers, in the order of the computation.

Every matrix is a `Line`: a name, the formula that made it from lines before it, and its values (rows are positions or
tokens). Values are the model's own, read from its trace; formulas are exact and are written so that a reader, or a
test, can work each line out again from the lines above:

    X = E + P        QKV = X @ W_QKV + b_QKV        S = Q @ K^T / sqrt(d_head)        A = softmax(mask(S))   ...

A step ends with one sentence on what it did to the prediction. What the residual stream would say if it were read out
at once (through the final norm where there is one) is the prediction so far.

`components` splits the logits into what each part wrote: embedding, position, every head, biases, feed-forward. Norms
are held at the scale they had, which makes the split exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.errors import UserError
from mnemoscope.models import Transformer
from mnemoscope.models.forward import NORM_EPS

Rows = Float[np.ndarray, "row column"]


@dataclass(frozen=True)
class Line:
    """One matrix: `name = formula`; no formula means that it is given (a parameter)."""

    name: str
    formula: str
    values: Rows
    rows: tuple[str, ...]
    columns: tuple[
        str, ...
    ] = ()  # names of the columns, where they have any: tokens, or the positions looked at


@dataclass(frozen=True)
class Step:
    """Some lines that belong together, and what they did to the prediction."""

    title: str
    lines: tuple[Line, ...]
    sentence: str


@dataclass(frozen=True)
class Walk:
    """The whole pass for one prompt. `stream` is the residual stream after each step that changed it."""

    prompt: tuple[str, ...]
    token_names: tuple[str, ...]
    steps: tuple[Step, ...]
    stream: dict[str, Rows]
    components: dict[str, Float[np.ndarray, "pos vocab"]]
    logits: Float[np.ndarray, "pos vocab"]
    read_out: tuple[Float[np.ndarray, "d_model vocab"], Float[np.ndarray, "vocab"]]

    @property
    def probabilities(self) -> Float[np.ndarray, "pos vocab"]:
        """softmax of the logits, by position."""
        return _softmax(self.logits)

    def contributions(self, position: int) -> dict[str, Float[np.ndarray, "vocab"]]:
        """What each part added to the logits at one position, and last their sum."""
        parts = {name: part[position] for name, part in self.components.items()}
        return parts | {"sum, the logits": np.sum(list(parts.values()), axis=0)}


def walk(model: Transformer, tokens: Sequence[int], token_names: tuple[str, ...]) -> Walk:
    """Walk one prompt through a model; `token_names` are how the tokens are written."""
    if unusual := model.config.unusual:
        raise UserError(
            f"a walk is written for a plain transformer's attention; this model has {', '.join(unusual)}"
        )
    if not model.config.tied and model.params["unembed.W_U"].shape[1] != len(token_names):
        raise UserError(
            "a walk is written for models whose answers are their tokens; this model has answers of its own"
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
        way.prompt,
        way.token_names,
        tuple(way.steps),
        way.stream,
        components(model, way.ids),
        way.logits,
        way.reading,
    )


class _Way:
    """A walk being written: `at` names the line that holds the residual stream, `x` is its value."""

    def __init__(self, model: Transformer, tokens: Array, token_names: tuple[str, ...]):
        logits, trace = model.run_with_trace(tokens)
        self.config, self.p, self.trace = model.config, _numbers(model.params), _numbers(trace)
        self.logits, self.ids, self.token_names = (
            np.asarray(logits, np.float64),
            np.asarray(tokens),
            token_names,
        )
        self.prompt = tuple(token_names[i] for i in self.ids)
        self.places = tuple(f"{i} {name}" for i, name in enumerate(self.prompt))
        w_u = self.p["embed.W_E"].T if self.config.tied else self.p["unembed.W_U"]
        self.reading = w_u, self.p.get("unembed.b_U", np.zeros(w_u.shape[1]))
        self.steps: list[Step] = []
        self.stream: dict[str, np.ndarray] = {}
        self.at, self.x = "X", self.trace["blocks.0.hook_resid_pre"]

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
        parts = [base, *([str(layer)] if self.config.n_layers > 1 else [])]
        return "_".join(
            [*parts, *([f"h{head}"] if head is not None and self.config.n_heads > 1 else [])]
        )

    def affine(
        self, result: str, of: str, w: str, b: str, params: tuple[str, str], values: np.ndarray
    ) -> list[Line]:
        """result = of @ w + b, with its parameters above it; the bias where the model has one."""
        weight = self.p[params[0]]
        lines, formula = [self.given(w, weight.reshape(-1, weight.shape[-1]))], f"{of} @ {w}"
        if params[1] in self.p:
            lines, formula = [*lines, self.given(b, self.p[params[1]])], f"{formula} + {b}"
        return [*lines, self.line(result, formula, values)]

    def norm(self, site: str, of: str, result: str) -> list[Line]:
        """result = norm(of) * w + b."""
        w, b = self.p[f"{site}.w"], self.p[f"{site}.b"]
        formula, value = (
            f"norm({of}) * w_{result} + b_{result}",
            self.trace[f"{site}.hook_normalized"] * w + b,
        )
        return [
            self.given(f"w_{result}", w),
            self.given(f"b_{result}", b),
            self.line(result, formula, value),
        ]

    def answers(self) -> tuple[str, ...]:
        """What each position would say if the stream were read out now."""
        x = self.x
        if self.config.norm == "pre":
            x = _scaled(x) * self.p["ln_final.w"] + self.p["ln_final.b"]
        w, b = self.reading
        return tuple(self.token_names[i] for i in (x @ w + b).argmax(axis=-1))

    def move(self, key: str, at: str, x: np.ndarray, did: str) -> str:
        """Put the stream where it is now, and say which answers that changed."""
        before = self.answers() if self.stream else None
        self.at, self.x = at, x
        self.stream[key] = x
        after = self.answers()
        says = f"{did}; read out now, the answers would be {', '.join(after)}"
        if before is None:
            return f"{says}."
        changes = zip(self.prompt, before, after, strict=True)
        moved = "; ".join(f"after {where} from {a} to {b}" for where, a, b in changes if a != b)
        return f"{says} ({moved or 'none changed'})."

    def pushes(self, who: str, out: np.ndarray) -> str:
        """Which answer a part favours most at each position, against the mean of all answers."""
        change = out @ self.reading[0]
        over = change - change.mean(axis=-1, keepdims=True)
        parts = (f"{self.token_names[row.argmax()]} after {where} (+{row.max():.2f})"
                 for where, row in zip(self.prompt, over, strict=True))  # fmt: skip
        return f"{who} pushes towards {', '.join(parts)}"

    def look_up(self) -> None:
        p, n = self.p, len(self.ids)
        lines = (
            self.given("W_E", p["embed.W_E"], self.token_names), self.given("W_pos", p["pos_embed.W_pos"]),
            self.line("E", f"W_E[{self.ids.tolist()}]", self.trace["hook_embed"]),
            self.line("P", f"W_pos[0:{n}]", self.trace["hook_pos_embed"]), self.line("X", "E + P", self.x),
        )  # fmt: skip
        sentence = self.move(
            "embedding + position", "X", self.x, "Each position starts as its token plus its place"
        )
        self.steps.append(Step("Look up the tokens and their positions", lines, sentence))

    def project(self, layer: int) -> None:
        """The packed product of queries, keys and values, and its split by head."""
        attn, d, dh, packed = (
            f"blocks.{layer}.attn",
            self.config.d_model,
            self.config.d_head,
            self.name("QKV", layer),
        )
        lines, source = [], self.at
        if self.config.norm == "pre":
            source = self.name("N", layer)
            lines = self.norm(f"blocks.{layer}.ln1", self.at, source)
        w = np.concatenate(
            [self.p[f"{attn}.W_{n}"].transpose(1, 0, 2).reshape(d, d) for n in "QKV"], axis=1
        )
        whole = np.concatenate(
            [self.trace[f"{attn}.hook_{n}"].reshape(-1, d) for n in "qkv"], axis=1
        )
        lines, formula = [*lines, self.given(f"W_{packed}", w)], f"{source} @ W_{packed}"
        if f"{attn}.b_Q" in self.p:
            lines.append(
                self.given(
                    f"b_{packed}", np.concatenate([self.p[f"{attn}.b_{n}"].ravel() for n in "QKV"])
                )
            )
            formula += f" + b_{packed}"
        lines.append(self.line(packed, formula, whole))
        for i, base in enumerate("QKV"):
            for head in range(self.config.n_heads):
                a = i * d + head * dh
                lines.append(
                    self.line(
                        self.name(base, layer, head),
                        f"{packed}[:, {a}:{a + dh}]",
                        whole[:, a : a + dh],
                    )
                )
        sentence = f"Three views of the same vectors; nothing is written yet, so the answers stay {', '.join(self.answers())}."
        self.steps.append(
            Step("Ask, offer and carry: queries, keys and values", tuple(lines), sentence)
        )

    def attend(self, layer: int, head: int) -> None:
        """One head: scores, mask, softmax, and the values it carries."""
        attn, many = f"blocks.{layer}.attn", self.config.n_heads > 1
        q, k, v, s, m, a, z = (self.name(base, layer, head) for base in "QKVSMAZ")
        values = {n: self.trace[f"{attn}.hook_{n}"][:, head] for n in "qkz"}
        pattern = self.trace[f"{attn}.hook_pattern"][head]
        lines = (
            self.line(s, f"{q} @ {k}^T / sqrt({self.config.d_head})", values["q"] @ values["k"].T * self.config.d_head**-0.5,
                      self.places),
            self.line(m, f"mask({s})", self.trace[f"{attn}.hook_attn_scores"][head], self.places),
            self.line(a, f"softmax({m})", pattern, self.places), self.line(z, f"{a} @ {v}", values["z"]),
        )  # fmt: skip
        last = pattern[-1]
        sentence = (
            f"{f'Head {head}' if many else 'The head'} looks, from the last position, most at {self.places[last.argmax()]} "
            f"({last.max():.0%}); the answers stay {', '.join(self.answers())} until it writes."
        )
        self.steps.append(Step(f"Attend, head {head}" if many else "Attend", lines, sentence))

    def write(self, layer: int) -> None:
        """What the heads carry, through W_O and into the stream."""
        block, config = f"blocks.{layer}", self.config
        z, o, r = (self.name(base, layer) for base in "ZOR")
        lines = []
        if config.n_heads > 1:
            parts = ", ".join(self.name("Z", layer, head) for head in range(config.n_heads))
            lines = [
                self.line(
                    z,
                    f"concat({parts})",
                    self.trace[f"{block}.attn.hook_z"].reshape(len(self.ids), -1),
                )
            ]
        out = self.trace[f"{block}.hook_attn_out"]
        params = f"{block}.attn.W_O", f"{block}.attn.b_O"
        lines += self.affine(o, z, self.name("W_O", layer), self.name("b_O", layer), params, out)
        self.add(block, "ln1", lines, o, r, out, f"attention{self.which(layer)}", "Attention",
                 "Write what attention found into the stream")  # fmt: skip

    def feed_forward(self, layer: int) -> None:
        """Two matrices with the activation between them, at each position by itself."""
        block, lines, source = f"blocks.{layer}", [], self.at
        h, g, f, y = (self.name(base, layer) for base in "HGFY")
        if self.config.norm == "pre":
            source = self.name("N2", layer)
            lines = self.norm(f"{block}.ln2", self.at, source)
        out = self.trace[f"{block}.hook_mlp_out"]
        w_in, b_in, w_out, b_out = (
            self.name(base, layer) for base in ("W_in", "b_in", "W_out", "b_out")
        )
        at = f"{block}.mlp"
        lines += self.affine(
            h, source, w_in, b_in, (f"{at}.W_in", f"{at}.b_in"), self.trace[f"{at}.hook_pre"]
        )
        formula = f"relu({h})" if self.config.act == "relu" else h
        lines.append(self.line(g, formula, self.trace[f"{at}.hook_post"]))
        lines += self.affine(f, g, w_out, b_out, (f"{at}.W_out", f"{at}.b_out"), out)
        self.add(block, "ln2", lines, f, y, out, f"feed-forward{self.which(layer)}", "The feed-forward layer",
                 "Feed forward, each position by itself")  # fmt: skip

    def which(self, layer: int) -> str:
        return f" {layer}" if self.config.n_layers > 1 else ""

    def add(
        self, block: str, norm: str, lines: list[Line], part: str, result: str, out: np.ndarray, key: str, who: str, title: str
    ) -> None:  # fmt: skip
        """Add a part's output to the stream, normalise the sum where the model does, and tell."""
        at, x = result, self.x + out
        lines.append(self.line(result, f"{self.at} + {part}", x))
        if self.config.norm == "post":
            at = f"N_{result}"
            lines += self.norm(f"{block}.{norm}", result, at)
            x = lines[-1].values
        self.steps.append(Step(title, tuple(lines), self.move(key, at, x, self.pushes(who, out))))

    def read_out(self) -> None:
        """Logits, probabilities, and the answer after every token."""
        lines, source, (w, b) = [], self.at, self.reading
        if self.config.norm == "pre":
            source = "N_final"
            lines = self.norm("ln_final", self.at, source)
        lines, formula = [*lines, self.given("W_U", w, (), self.token_names)], f"{source} @ W_U"
        if "unembed.b_U" in self.p:
            lines, formula = (
                [*lines, self.given("b_U", b, (), self.token_names)],
                f"{formula} + b_U",
            )
        p = _softmax(self.logits)
        lines += [
            self.line("L", formula, self.logits, self.token_names),
            self.line("Pr", "softmax(L)", p, self.token_names),
        ]
        told = (f"after {where} comes {self.token_names[row.argmax()]} ({row.max():.1%})"
                for where, row in zip(self.prompt, p, strict=True))  # fmt: skip
        self.steps.append(Step("Read out", tuple(lines), f"The model says: {', '.join(told)}."))


def _numbers(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value, np.float64) for name, value in arrays.items()}


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _scaled(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + NORM_EPS)


def components(
    model: Transformer, tokens: Int[np.ndarray, "pos"]
) -> dict[str, Float[np.ndarray, "pos vocab"]]:
    """What each part of the model adds to every logit; the parts sum to the logits exactly.

    A norm is linear once its scale is held: (x - mean) / scale * w, with b as a part of its own.
    """
    config, p = model.config, _numbers(model.params)
    trace = _numbers(model.run_with_trace(jnp.asarray(tokens))[1])
    w_u = p["embed.W_E"].T if config.tied else p["unembed.W_U"]
    parts = {"embedding": trace["hook_embed"], "position": trace["hook_pos_embed"]}

    def through_norm(name: str) -> None:
        total = np.sum(list(parts.values()), axis=0)
        scale = np.sqrt(
            np.square(total - total.mean(axis=-1, keepdims=True)).mean(axis=-1, keepdims=True)
            + NORM_EPS
        )
        for key, part in parts.items():
            parts[key] = (part - part.mean(axis=-1, keepdims=True)) / scale * p[f"{name}.w"]
        parts[f"bias of {name}"] = np.broadcast_to(p[f"{name}.b"], total.shape)

    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        which = f" of layer {layer}" if config.n_layers > 1 else ""
        result = trace[f"{block}.attn.hook_result"]
        for head in range(config.n_heads):
            parts[f"head {head}{which}"] = result[:, head]
        if f"{block}.attn.b_O" in p:
            parts[f"attention's bias{which}"] = np.broadcast_to(
                p[f"{block}.attn.b_O"], result[:, 0].shape
            )
        if config.norm == "post":
            through_norm(f"{block}.ln1")
        if config.has_mlp(layer):
            parts[f"feed-forward{which}"] = trace[f"{block}.hook_mlp_out"]
            if config.norm == "post":
                through_norm(f"{block}.ln2")
    if config.norm == "pre":
        through_norm("ln_final")
    split = {name: part @ w_u for name, part in parts.items()}
    if "unembed.b_U" in p:
        split["read-out's bias"] = np.broadcast_to(p["unembed.b_U"], split["embedding"].shape)
    return split
