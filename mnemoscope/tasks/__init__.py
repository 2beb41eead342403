"""WHAT IS TRUE: distributions over sequences, their exact answers and loss floors."""

from mnemoscope.tasks.base import Example, Task, World
from mnemoscope.tasks.permutation import Permutation, Role, Sequences, Split

__all__ = ["Example", "Permutation", "Role", "Sequences", "Split", "Task", "World"]
