"""Text as tokens and back: byte-level byte-pair encoding, with a model's vocabulary and merges.

    1. A text is cut into words: contractions, runs of letters, of numbers and of signs, each with
       one space before it, and spaces.
    2. Every byte of a word is written as one printable character (a space as the letter G with a
       dot).
    3. Of the pairs of neighbors, the one that comes first in the list of merges is joined, until
       none is in the list.
    4. What is left are tokens; their places in the vocabulary are the numbers.

Special tokens such as <|endoftext|> are never made from a text: what looks like one is encoded as
the characters it has.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError, short

# The cut is written for ASCII; any other character is represented by one of its class (letter,
# number, space, sign), so that it does not depend on what Python's \w takes for a letter.
WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


def _stand_in(character: str) -> str:
    if character.isascii():
        # four control characters count as space for Python only
        return "!" if character in "\x1c\x1d\x1e\x1f" else character
    if character.isspace():
        return "\n"  # as a space, but never the one before a word
    return {"L": "Z", "N": "0"}.get(unicodedata.category(character)[0], "!")


@cache
def byte_characters() -> tuple[str, ...]:
    """The printable character that stands for each byte.

    Itself where it is one in Latin-1, else the next from 256 on.
    """
    printable = {
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    }
    others = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


@dataclass(frozen=True)
class Tokenizer:
    """Byte-level byte-pair encoding, as a model was trained with it."""

    vocabulary: tuple[str, ...]
    """The tokens, by number."""
    merges: tuple[tuple[str, str], ...]
    """The pairs that are joined, in order of preference."""
    single_digits: bool
    """Whether every digit is a word of its own."""
    nfc: bool = False
    """Whether a text is put into Unicode's form NFC first."""

    def __repr__(self) -> str:
        return f"<Tokenizer of {len(self.vocabulary):,} tokens>"

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.vocabulary)}

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        return {pair: rank for rank, pair in enumerate(self.merges)}

    def words(self, text: str) -> list[str]:
        """The text cut into the words within which merges are made."""
        shadow = "".join(map(_stand_in, text))
        parts = re.split(r"([0-9])", shadow) if self.single_digits else [shadow]
        lengths = [len(word) for part in parts for word in WORDS.findall(part)]
        ends = accumulate(lengths, initial=0)
        return [text[start:end] for start, end in pairwise(ends)]

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        if any("\ud800" <= c <= "\udfff" for c in text):
            raise UserError(f"the text {short(text)} holds half a character, which has no bytes")
        found = []
        normal = unicodedata.normalize("NFC", text) if self.nfc else text
        for word in self.words(normal):
            parts = self._merged(word)
            for part in parts:
                if part not in self._numbers:
                    raise UserError(f"the vocabulary has no token for {part!r}, a part of {word!r}")
            found += [self._numbers[part] for part in parts]
        return found

    def _merged(self, word: str) -> list[str]:
        """The parts of a word that are left when no pair of neighbors can be joined."""
        parts = [byte_characters()[byte] for byte in word.encode()]
        while True:
            pairs = list(pairwise(parts))
            known = [pair for pair in pairs if pair in self._ranks]
            if not known:
                return parts
            best = min(known, key=self._ranks.__getitem__)
            at = pairs.index(best)
            parts[at : at + 2] = ["".join(best)]

    def decode(self, tokens: Any) -> str:
        """The text of a row of tokens; bytes that are no text become the replacement character.

        Args:
            tokens: A list or an array, such as what `generate` makes of one prompt.
        """
        row = np.asarray(tokens, dtype=int)
        n_tokens = len(self.vocabulary)
        if row.ndim != 1 or ((row < 0) | (row >= n_tokens)).any():
            raise UserError(
                f"text is made of one row of tokens 0 to {n_tokens - 1}, got {short(row)}"
            )
        byte_of = {character: byte for byte, character in enumerate(byte_characters())}
        characters = "".join(self.vocabulary[token] for token in row)
        return bytes(byte_of.get(c, ord("?")) for c in characters).decode(errors="replace")

    def one(self, word: str) -> int:
        """The first token of a word that follows other words."""
        return self.encode(f" {word}")[0]
