"""WHAT IS TRUE: distributions over sequences, their exact answers and loss floors."""

from mnemoscope.tasks.base import Example, Task, World
from mnemoscope.tasks.cycle import Cycle
from mnemoscope.tasks.permutation import Permutation, Role, Sequences, Split

__all__ = ["Cycle", "Example", "Permutation", "Role", "Sequences", "Split", "Task", "World"]
