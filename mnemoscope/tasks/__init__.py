"""WHAT IS TRUE: distributions over sequences, their exact answers and loss floors."""

from mnemoscope.tasks.base import Example, Task, World
from mnemoscope.tasks.bigrams import Bigrams
from mnemoscope.tasks.corpus import Corpus, read_corpus, tiny_shakespeare
from mnemoscope.tasks.cycle import Cycle
from mnemoscope.tasks.facts import SHOWN, Facts, FactWorld, Shown
from mnemoscope.tasks.hops import Hops, HopWorld
from mnemoscope.tasks.permutation import Permutation, Role, Sequences, Split

__all__ = [
    "SHOWN",
    "Bigrams",
    "Corpus",
    "Cycle",
    "Example",
    "FactWorld",
    "Facts",
    "HopWorld",
    "Hops",
    "Permutation",
    "Role",
    "Sequences",
    "Shown",
    "Split",
    "Task",
    "World",
    "read_corpus",
    "tiny_shakespeare",
]
