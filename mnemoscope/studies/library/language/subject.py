"""The model that is studied: found, read once, and run on all cores."""

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from mnemoscope.core.axes import Int, Params
from mnemoscope.core.seeds import SAME, device_mesh, for_each_seed, seeds_per_device, shard
from mnemoscope.models import Transformer
from mnemoscope.models.language import (
    Tokenizer,
    find_weights,
    read_model,
    read_tokenizer,
)
from mnemoscope.models.language.find import HOW_TO
from mnemoscope.studies.measurement import InconclusiveError

KNOWN = {"SmolLM2-135M-Instruct.Q4_1": "SmolLM2-135M-Instruct (four-bit, instruction-tuned)"}
LANES = 4  # batches at once on an accelerator
DEVICES = 4  # at most: each holds a copy of the weights
WEIGHT_FILES = (".gguf", ".json", ".safetensors")  # what a model is read from


class Subject:
    """One language model, named by a path or found.

    Nothing is read until something is asked of it.
    """

    def __init__(self, path: Path | None = None):
        self._given = path
        self._programs: dict[tuple[Any, int], Callable[..., Any]] = {}

    @cached_property
    def path(self) -> Path | None:
        """Where the weights are; None where there are none, or no package that reads them."""
        path = self._given or find_weights()
        readable = path is not None and (path.is_dir() or find_spec("gguf") is not None)
        return path if readable else None

    @cached_property
    def _mesh(self) -> Mesh:
        return device_mesh(DEVICES)

    def fingerprint(self) -> str:
        """The hash of the weights' bytes; empty where there is no model.

        The same model has the same one wherever it lies.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:  # once: the files of a model are large
        if self.path is None:
            return ""
        digest = hashlib.sha256()
        files = sorted(self.path.iterdir()) if self.path.is_dir() else [self.path]
        for file in files:
            if file.suffix in WEIGHT_FILES:
                with file.open("rb") as opened:
                    digest.update(hashlib.file_digest(opened, "sha256").digest())
        return digest.hexdigest()

    @property
    def name(self) -> str:
        """The model in words."""
        assert self.path is not None
        return KNOWN.get(self.path.stem, self.path.name)

    @property
    def note(self) -> str:
        """The sentence of a ledger that says which model was asked."""
        return f"Measured in {self.name}."

    def _installed(self) -> Path:
        """Where the weights are; without any, nothing can be judged."""
        if self.path is None:
            raise InconclusiveError(f"No language model is installed: {HOW_TO}.")
        return self.path

    @cached_property
    def model(self) -> Transformer:
        """The model, read once; each device has a copy of its weights."""
        found = read_model(self._installed())
        copied = jax.device_put(found.params, NamedSharding(self._mesh, SAME))
        return Transformer(found.config, copied)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        return read_tokenizer(self._installed())

    def program(self, f: Callable[[Transformer, Any], Any], n: int) -> Callable[..., Any]:
        """g(each) = f(model, one batch) for each of n batches, compiled once, on all devices.

        g(each, changed) takes the parameters in `changed` instead of the model's own.
        """
        if (f, n) not in self._programs:
            self._programs[f, n] = self._program(f, n)
        return self._programs[f, n]

    def _program(self, f: Callable[[Transformer, Any], Any], n: int) -> Callable[..., Any]:
        model = self.model
        mesh = self._mesh

        def one(batch: Any, params: Params) -> Any:
            return f(Transformer(model.config, params), batch)

        run = jax.jit(for_each_seed(one, mesh, seeds_per_device(mesh, n, LANES)))

        def program(each: Any, changed: Params | None = None) -> Any:
            params = model.params | jax.device_put(changed or {}, NamedSharding(mesh, SAME))
            found = run(shard(mesh, each), params)
            return jax.tree.map(lambda x: np.asarray(x)[:n], found)

        return program

    def map_rows(self, f: Callable[[Transformer, Any], Any], each: Any, size: int) -> Any:
        """f over rows in batches of one size, and the results as rows again.

        Args:
            f: Takes the model and one batch of rows.
            each: Arrays with a leading row axis, as many rows in all of them.
            size: Rows in a batch.
        """
        n = len(jax.tree.leaves(each)[0])
        program = self.program(f, -(-n // size))
        return rows(program(batches(each, size)), n)


def batches(rows: Any, size: int) -> Any:
    """Rows in batches of one size (batch, row, ...).

    The last row stands in where the number does not divide evenly.
    """

    def cut(x: Any) -> np.ndarray:
        x = np.asarray(x)
        missing = -len(x) % size
        x = np.concatenate([x, np.repeat(x[-1:], missing, axis=0)])
        return x.reshape(-1, size, *x.shape[1:])

    return jax.tree.map(cut, rows)


def rows(batched: Any, n: int) -> Any:
    """The n rows of what came back in batches."""
    return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:])[:n], batched)


def padded(
    texts: Sequence[Sequence[int]],
) -> tuple[Int[np.ndarray, "text pos"], Int[np.ndarray, "text"]]:
    """Token lists as one array and each one's last position.

    What fills up the end comes after that position, so that it is never seen.
    """
    longest = max(map(len, texts))
    tokens = [[*text, *[0] * (longest - len(text))] for text in texts]
    last = [len(text) - 1 for text in texts]
    return np.array(tokens), np.array(last)
