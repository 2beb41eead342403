"""The lines of a walk, and what writes them: names, formulas and the stream as it is so far.

A formula is exact and is made of names of lines above, numbers and a few functions:

    A @ B, A * B, A^T, A[:, i:j]    matrix product, entry by entry, transpose, columns i to j - 1
    concat(A, B)                    side by side
    layer_norm(X, eps)              rows without their mean, over sqrt(mean square + eps)
    rms_norm(X, eps)                rows over sqrt(mean square + eps)
    softmax(S)                      by rows
    relu(H), gelu(H), silu(H) ...   entry by entry
    mask(S), mask(S, 0)             what a position may not see becomes -inf, or 0
    angles(n, d, base)              of position p and pair i: p * base^(-2i/d)
    interleave(A, B)                a column of A, one of B, and so on
    rotate(Q, Phi)                  each pair of columns (a, b) that Phi names, turned by its angle
                                    into (a cos - b sin, a sin + b cos)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float
from mnemoscope.models import HookedModel, unembed
from mnemoscope.models.consumer_support import as_transformer
from mnemoscope.probes.logit_attribution import decompose_logits, on_host

Rows = Float[np.ndarray, "row column"]


@dataclass(frozen=True)
class Line:
    """One matrix: `name = formula`."""

    name: str
    """What lines below call it."""
    formula: str
    """How it follows from lines above; empty if it is given (a parameter)."""
    values: Rows
    """Its numbers, as the model has them."""
    rows: tuple[str, ...]
    """Names of the rows."""
    columns: tuple[str, ...] = ()
    """Names of the columns, where they have any: tokens, positions looked at, pairs that turn."""


@dataclass(frozen=True)
class Step:
    """Some lines that belong together."""

    title: str
    """What is done."""
    lines: tuple[Line, ...]
    """In the order of the computation."""
    sentence: str
    """What they did to the prediction."""


class Writer:
    """A walk being written."""

    def __init__(self, model: HookedModel, tokens: Array, token_names: tuple[str, ...]):
        """Run the model once.

        Args:
            model: A plain transformer.
            tokens: The prompt.
            token_names: How every token is written.
        """
        logits, trace = model.run_with_trace(tokens)
        self.model = model
        self.config = as_transformer(model.config, "the walk")
        self.params = on_host(model.params)
        self.trace = on_host(trace)
        self.logits = np.asarray(logits, np.float64)
        self.components = decompose_logits(model, trace)
        self.ids = np.asarray(tokens)
        self.token_names = token_names
        self.prompt = tuple(token_names[i] for i in self.ids)
        self.places = tuple(f"{i} {name}" for i, name in enumerate(self.prompt))
        w_u = self.params["embed.W_E"].T if self.config.tied else self.params["unembed.W_U"]
        self.reading = (w_u, self.params.get("unembed.b_U", np.zeros(w_u.shape[1])))
        self.steps: list[Step] = []
        self.stream: dict[str, Rows] = {}
        # the line that holds the stream, and its values
        self.at = "X"
        self.x = self.trace["blocks.0.hook_resid_pre"]
        # what was written but is added only together with what comes next
        self.waiting: list[Line] = []

    # ---- names

    def name(self, base: str, layer: int) -> str:
        """Q; Q_1 in the second of several layers."""
        return f"{base}_{layer}" if self.config.n_layers > 1 else base

    def names_by_head(self, base: str, layer: int, n: int) -> list[str]:
        """Q_h0, Q_h1 of several heads; K_g0, K_g1 where fewer keys and values serve groups of them.

        Args:
            base: What it is.
            layer: Whose.
            n: How many there are.
        """
        whole = self.name(base, layer)
        letter = "h" if n == self.config.n_heads else "g"
        return [whole] if n == 1 else [f"{whole}_{letter}{i}" for i in range(n)]

    def which(self, layer: int) -> str:
        """The number of a layer, where there are several."""
        return f" {layer}" if self.config.n_layers > 1 else ""

    # ---- lines

    def line(self, name: str, formula: str, values: Rows, columns: tuple[str, ...] = ()) -> Line:
        """A matrix with a row for each position.

        Args:
            name: What lines below call it.
            formula: How it follows from lines above.
            values: Its numbers.
            columns: Names of the columns, where they have any.
        """
        return Line(name, formula, values, self.places, columns)

    def given(
        self, name: str, values: np.ndarray, rows: Sequence[str] = (), columns: tuple[str, ...] = ()
    ) -> Line:
        """A parameter; a vector is one row.

        Args:
            name: What lines below call it.
            values: Its numbers.
            rows: Names of the rows; none given: their numbers.
            columns: Names of the columns, where they have any.
        """
        values = np.atleast_2d(values)
        numbered = ("",) if len(values) == 1 else tuple(map(str, range(len(values))))
        return Line(name, "", values, tuple(rows) or numbered, columns)

    def affine(
        self, result: str, of: str, names: tuple[str, str], params: tuple[str, str], out: Rows
    ) -> list[Line]:
        """result = of @ w + b, with its parameters above it; the bias where the model has one.

        Args:
            result: The name of the result.
            of: The name of what is multiplied.
            names: How w and b are written.
            params: What the model calls them.
            out: The result's numbers.
        """
        w, b = names
        weight, bias = params
        matrix = self.params[weight]
        lines = [self.given(w, matrix.reshape(-1, matrix.shape[-1]))]
        formula = f"{of} @ {w}"
        if bias in self.params:
            lines.append(self.given(b, self.params[bias]))
            formula += f" + {b}"
        return [*lines, self.line(result, formula, out)]

    def angles(self, dims: int, base: float, pairs: Sequence[Sequence[int]]) -> Line:
        """The angle of every pair of dimensions at every position.

        Args:
            dims: How many dimensions there are in all pairs.
            base: Of the angles.
            pairs: The dimensions of each.
        """
        frequencies = base ** (-np.arange(0, dims, 2) / dims)
        values = np.arange(len(self.ids))[:, None] * frequencies
        columns = tuple(",".join(map(str, pair)) for pair in pairs)
        formula = f"angles({len(self.ids)}, {dims}, {exact(base)})"
        return self.line("Phi", formula, values, columns)

    def norm(self, site: str, of: str, result: str) -> list[Line]:
        """result = layer_norm(of, eps) * w + b, with its parameters above it.

        Args:
            site: What the model calls the norm.
            of: The name of what is normalized.
            result: The name of the result.
        """
        config = self.config
        w = self.params[f"{site}.w"]
        # the site has what the weights receive
        values = self.trace[f"{site}.hook_normalized"] * w
        lines = [self.given(f"w_{result}", w)]
        formula = f"{config.norm_type}_norm({of}, {exact(config.norm_eps)}) * w_{result}"
        if f"{site}.b" in self.params:
            b = self.params[f"{site}.b"]
            values = values + b
            lines.append(self.given(f"b_{result}", b))
            formula += f" + b_{result}"
        return [*lines, self.line(result, formula, values)]

    def normed(self, site: str, base: str, layer: int) -> tuple[str, list[Line]]:
        """What a part reads, and the lines that make it: the stream, or its norm where the model
        takes one before.

        Args:
            site: What the model calls the norm.
            base: The name of the result.
            layer: Whose.
        """
        if self.config.norm != "pre":
            return self.at, []
        name = self.name(base, layer)
        return name, self.norm(site, self.at, name)

    def add(self, norm: str, part: Line, result: str, residual: bool = True) -> list[Line]:
        """A part's output added to the stream, and the norm of the sum where the model takes one
        after; the last line, if there is one, is the stream from here on.

        Args:
            norm: What the model calls the norm.
            part: What is added, after what waits for it.
            result: The name of the sum.
            residual: Whether the stream is added, and not replaced.
        """
        parts = [*self.waiting, part]
        self.waiting = []
        lines = []
        now = part
        if residual:
            names = [self.at, *(each.name for each in parts)]
            total = self.x + np.sum([each.values for each in parts], axis=0)
            now = self.line(result, " + ".join(names), total)
            lines.append(now)
        if self.config.norm == "post":
            lines += self.norm(norm, now.name, f"N_{result}")
        return lines

    # ---- sentences

    def answers(self) -> tuple[str, ...]:
        """What each position would say if the stream were read out now."""
        logits = unembed(self.config, self.model.params, jnp.asarray(self.x, dtype=float))
        return tuple(self.token_names[i] for i in np.argmax(logits, axis=-1))

    def stay(self) -> str:
        """That the answers are what they were."""
        return f"the answers stay {', '.join(self.answers())}"

    def move(self, key: str, to: Line, did: str) -> str:
        """Put the stream where it is now, and say which answers that changed.

        Args:
            key: What moved it.
            to: The line that holds it from here on.
            did: What was done, in words.
        """
        before = self.answers() if self.stream else None
        self.at = to.name
        self.x = to.values
        self.stream[key] = to.values
        after = self.answers()
        says = f"{did}; read out now, the answers would be {', '.join(after)}"
        if before is None:
            return f"{says}."
        changes = []
        for where, a, b in zip(self.prompt, before, after, strict=True):
            if a != b:
                changes.append(f"after {where} from {a} to {b}")
        return f"{says} ({'; '.join(changes) or 'none changed'})."

    def pushes(self, who: str, out: Rows) -> str:
        """Which answer a part favors most at each position, against the mean of all answers.

        Args:
            who: The part, as a sentence begins.
            out: What it wrote.
        """
        change = out @ self.reading[0]
        over = change - change.mean(axis=-1, keepdims=True)
        favors = []
        for where, row in zip(self.prompt, over, strict=True):
            favors.append(f"{self.token_names[row.argmax()]} after {where} (+{row.max():.2f})")
        return f"{who} pushes towards {', '.join(favors)}"


def exact(number: float) -> str:
    """A number in full, as a formula has it: 10000, 1e-05.

    Args:
        number: Of the model's configuration.
    """
    return repr(float(number)).removesuffix(".0")
