r"""Token ids of one's own: rows of sequences, or one long stream that is cut into windows.

    rows      (n, L + 1)    row r:     tokens r_0 .. r_{L-1}, targets r_1 .. r_L
    stream    (N,)          window i:  tokens s_{iL} .. s_{iL+L-1}, targets one further;
                            (N - 1) // L windows: every token but the first is once a target

A training sequence is drawn evenly from those that are not held out, with replacement. The array is
named by its content (`data_files`), is an argument of the compiled program, and is there once on
each device for all seeds. Nobody knows what is true of it, so there is no posterior and no floor.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from mnemoscope.core.axes import Array, Int, PRNGKeyArray
from mnemoscope.core.errors import UserError
from mnemoscope.tasks.base import Example, Task
from mnemoscope.tasks.data_files import (
    Content,
    Source,
    content_of,
    file_of,
    find_array,
    open_array,
    place_of,
)

Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]
Type = Literal["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


class TokenArray(Task):
    """Token ids of one's own: `TokenArray("tokens.npy", length=64)`, or an array instead of a file.

    Rows of sequences need no length; one long stream is cut into windows of it.
    """

    kind: Literal["token-array"] = "token-array"
    """The name of this task in files."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """The SHA-256 of the numbers, in row-major order and little-endian; not that of the file."""

    shape: tuple[Positive] | tuple[Positive, Positive]
    """The axes of the array: (sequence, token), or (token) alone."""

    dtype: Type
    """The type of its numbers."""

    vocabulary: Annotated[int, Field(ge=1, le=2**31 - 1)]
    """How many tokens there are: ids are below it. Left out, one more than the largest id."""

    length: Positive | None = None
    """How many tokens of a stream the model sees; None with rows, which say it themselves."""

    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of all sequences that is never trained on, and that models are evaluated on."""

    split_seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """What decides which sequences are held out: the same ones for every seed."""

    padding: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """The token that fills up short rows; where it is the target nothing is asked."""

    def __init__(self, source: Source | None = None, /, **fields: Any) -> None:
        """A task of the token ids in a .npy file or an array.

        Args:
            source: the file or the array; None: the fields say which content is meant.
            **fields: the fields above.
        """
        if source is not None:
            fields = _with_content(source, fields)
        elif "sha256" not in fields:
            raise UserError(
                "TokenArray needs token ids: a .npy file or an array of whole numbers, "
                "TokenArray('tokens.npy', length=64)"
            )
        super().__init__(**fields)

    @model_validator(mode="after")
    def _check_length(self) -> "TokenArray":
        if len(self.shape) == 2 and self.length is not None:
            raise ValueError(
                f"length={self.length} goes with one long stream; these are rows of "
                f"{self.shape[1]} tokens"
            )
        if len(self.shape) == 1 and self.length is None:
            raise ValueError(
                f"length is missing: how many tokens of this stream of {self.shape[0]:,} the model "
                "sees at once"
            )
        n_held_out = self.n_sequences - self._n_training()
        if self.n_ctx < 1 or self._n_training() < 1 or (self.held_out and not n_held_out):
            raise ValueError(
                f"{self.n_sequences} sequences of {self.n_ctx} tokens, of which {n_held_out} are "
                "held out, cannot be trained on; allowed: one at least to train on, and one held "
                "out if held_out is not 0"
            )
        return self

    @property
    def d_vocab(self) -> int:
        return self.vocabulary

    @property
    def n_ctx(self) -> int:
        return self.shape[1] - 1 if len(self.shape) == 2 else self.length or 0

    @property
    def n_sequences(self) -> int:
        """How many rows or windows there are."""
        return self.shape[0] if len(self.shape) == 2 else (self.shape[0] - 1) // self.n_ctx

    def _n_training(self) -> int:
        """How many of them are trained on."""
        return self.n_sequences - round(self.held_out * self.n_sequences)

    @property
    def content(self) -> Content:
        """What the array is, wherever it stands."""
        return Content(self.sha256, self.shape, self.dtype)

    @cached_property
    def order(self) -> Int[np.ndarray, "sequence"]:
        """All sequences in the order of the split: those that are trained on come first."""
        bits = np.random.Philox(key=self.split_seed).random_raw(self.n_sequences)
        return np.argsort(bits, kind="stable").astype(np.int32)

    def load_arrays(self) -> Mapping[str, np.ndarray]:
        """The token ids, whose content is what it was, and the order of the split if there is
        one."""
        ids = find_array(self.content)
        if ids.dtype.itemsize == 8 or not ids.dtype.isnative:
            ids = ids.astype(np.int32)
        return {"ids": ids, "order": self.order} if self.held_out else {"ids": ids}

    def files(self) -> Mapping[str, str]:
        """The file of the token ids; raises for an array in memory."""
        path = file_of(self.content)
        if path is None:
            raise UserError(
                f"the data {self.content} is no file that another process could read; save it "
                "with numpy.save where all of them see it, and use ms.TokenArray('FILE.npy')"
            )
        return {self.sha256: str(path)}

    def sample(self, world: tuple[()], *, key: PRNGKeyArray) -> Example:
        """One of the sequences that are trained on."""
        return self._sequence(jax.random.randint(key, (), 0, self._n_training()))

    @property
    def n_examples(self) -> int:
        """Those that are held out, or all of them where none are."""
        return self.n_sequences - self._n_training() if self.held_out else self.n_sequences

    def example(self, world: tuple[()], index: Int[Array, ""]) -> Example:
        """A sequence that is held out, or any where none are."""
        return self._sequence(index + self._n_training() if self.held_out else index)

    def _sequence(self, place: Int[Array, ""]) -> Example:
        """The sequence at a place of the split's order."""
        ids = jnp.asarray(self.arrays["ids"])
        number = jnp.asarray(self.arrays["order"])[place] if self.held_out else place
        if len(self.shape) == 2:
            row = ids[number]
        else:
            row = jax.lax.dynamic_slice_in_dim(ids, number * self.n_ctx, self.n_ctx + 1)
        row = row.astype(int)
        targets = row[1:]
        weights = jnp.ones(self.n_ctx)
        if self.padding is not None:
            weights = (targets != self.padding).astype(float)
        return Example(row[:-1], targets, weights)


def _with_content(source: Source, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a task with those that its array decides."""
    found = content_of(source)
    for name, value in found._asdict().items():
        if name in fields and fields[name] != value:
            raise UserError(f"{name}={fields[name]!r} is not that of these token ids, {value!r}")
    ids = open_array(place_of(source))
    low = int(ids.min())
    high = int(ids.max())
    vocabulary = fields.get("vocabulary", high + 1)
    if low < 0 or high >= vocabulary:
        raise UserError(
            f"token ids go from {low} to {high}; allowed: from 0 to {vocabulary - 1}, below the "
            "vocabulary"
        )
    return {**found._asdict(), "vocabulary": vocabulary, **fields}
