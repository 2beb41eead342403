"""Bigram counts of a text: which characters it has, and which follows which how often.

    pi_u(a) = count(a, .) / total          pi_b(b | a) = count(a, b) / count(a, .)

Characters are numbered in the order of their code points. There is no smoothing: what never
followed has probability 0.
"""

import csv
from collections import Counter
from functools import cached_property, lru_cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from mnemoscope.core.axes import Float, Int, UInt
from mnemoscope.core.errors import UserError
from mnemoscope.core.strict import Strict

Number = Annotated[int, Field(ge=0)]  # of a character
Count = tuple[Number, Number, Annotated[int, Field(ge=1, le=2**53)]]  # first, second, how often
MOST_CHARACTERS = 8192  # different ones; tables have their square, half a gigabyte


class Corpus(Strict):
    """A text's bigram counts, with the characters that the numbers stand for."""

    name: str
    """What the text is called."""

    characters: str
    """All characters; their places are their numbers."""

    counts: tuple[Count, ...]
    """(first, second, how often the second followed the first)."""

    @model_validator(mode="after")
    def _check(self) -> "Corpus":
        n = len(self.characters)
        if n < 2 or len(set(self.characters)) != n:
            raise ValueError(
                f"a corpus needs at least two different characters, got {self.characters[:20]!r}"
            )
        if n > MOST_CHARACTERS:
            raise ValueError(
                f"a corpus has at most {MOST_CHARACTERS} different characters, got {n}"
            )
        for first, second, _ in self.counts:
            if first >= n or second >= n:
                raise ValueError(f"a count is about character {max(first, second)}; there are {n}")
        silent = set(range(n)) - {first for first, _, _ in self.counts}
        if silent:
            raise ValueError(f"nothing ever follows {self.characters[min(silent)]!r}")
        return self

    @cached_property
    def table(self) -> Float[np.ndarray, "vocab next"]:
        """The counts as a matrix, a row for each first character; read-only, like all that follows
        from it."""
        counts = np.zeros((len(self.characters),) * 2)
        for first, second, count in self.counts:
            counts[first, second] += count
        return _kept(counts)

    @cached_property
    def unigrams(self) -> Float[np.ndarray, "vocab"]:
        """pi_u."""
        return _kept(self.table.sum(axis=1) / self.table.sum())

    @cached_property
    def bigrams(self) -> Float[np.ndarray, "vocab next"]:
        """pi_b, a row for each first character."""
        return _kept(self.table / self.table.sum(axis=1, keepdims=True))

    @cached_property
    def alias(self) -> tuple[UInt[np.ndarray, "vocab next"], Int[np.ndarray, "vocab next"]]:
        """Walker's tables for pi_b: draw a column evenly, keep it with the share given there (of
        2^32), else take the other."""
        n = len(self.bigrams)
        shares = np.ones((n, n))
        others = np.tile(np.arange(n, dtype=np.int32), (n, 1))
        for row in range(n):
            mass = self.bigrams[row] * n
            small = np.flatnonzero(mass < 1).tolist()
            large = np.flatnonzero(mass >= 1).tolist()
            while small and large:
                # what a small one lacks is filled up by a large one, which may become small itself
                low = small.pop()
                high = large[-1]
                shares[row, low] = mass[low]
                others[row, low] = high
                mass[high] -= 1 - mass[low]
                if mass[high] < 1:
                    small.append(large.pop())
        of_32_bits = np.minimum(np.round(shares * 2.0**32), 2.0**32 - 1)
        return _kept(of_32_bits.astype(np.uint32)), _kept(others)


def _kept(array: np.ndarray) -> np.ndarray:
    """The array, read-only from now on."""
    array.setflags(write=False)
    return array


@lru_cache
def tiny_shakespeare() -> Corpus:
    """The bigram counts of the tiny Shakespeare text: 65 characters, 1,115,393 pairs."""
    file = resources.files("mnemoscope.tasks").joinpath("tinyshakespeare_bigrams.csv")
    _, *rows = csv.reader(file.read_text(encoding="utf-8").splitlines())  # below the header
    pairs = [(int(first), int(second), int(count)) for first, second, count in rows]
    code_points = {first for first, _, _ in pairs} | {second for _, second, _ in pairs}
    characters = "".join(chr(point) for point in sorted(code_points))
    number = {ord(character): i for i, character in enumerate(characters)}
    counts = tuple((number[first], number[second], count) for first, second, count in pairs)
    return Corpus(name="tiny Shakespeare", characters=characters, counts=counts)


def read_corpus(path: Path) -> Corpus:
    """The counts of a text file, read as a circle: its first character follows its last, so that
    each has a successor."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read the corpus {str(path)!r} ({error.strerror})") from error
    except UnicodeDecodeError:
        raise UserError(f"the corpus {str(path)!r} is not text in UTF-8") from None
    if "\x00" in text:
        raise UserError(f"the corpus {str(path)!r} is not text: it holds zero bytes")
    characters = sorted(set(text))
    if len(characters) < 2:
        raise UserError(
            f"the corpus {str(path)!r} has {len(characters)} different characters; "
            "at least 2 are needed"
        )
    number = {c: i for i, c in enumerate(characters)}
    pairs = Counter((number[a], number[b]) for a, b in pairwise(text + text[0]))
    counts = tuple((a, b, n) for (a, b), n in sorted(pairs.items()))
    return Corpus(name=path.name, characters="".join(characters), counts=counts)
