"""WHAT IS TRUE: distributions over sequences, their exact answers and loss floors.

To add a task, write a file like `cycle.py`, after `base.py`, anywhere. Those of this package are
imported here, so that they are known.
"""

from typing import Annotated

from mnemoscope.core.kinds import any_kind
from mnemoscope.tasks.base import Example, Task, World
from mnemoscope.tasks.bigrams import Bigrams
from mnemoscope.tasks.corpus import Corpus, read_corpus, tiny_shakespeare
from mnemoscope.tasks.cycle import Cycle
from mnemoscope.tasks.facts import SHOWN, Facts, FactWorld, Shown
from mnemoscope.tasks.hops import Hops, HopWorld
from mnemoscope.tasks.permutation import Permutation, Role, Sequences, Split
from mnemoscope.tasks.token_array import TokenArray
from mnemoscope.tasks.vocabulary import Vocabulary

# what a Spec takes; a stored one names its task by `kind`
AnyTask = Annotated[Task, *any_kind(Task)]

__all__ = [
    "SHOWN",
    "AnyTask",
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
    "TokenArray",
    "Vocabulary",
    "World",
    "read_corpus",
    "tiny_shakespeare",
]
