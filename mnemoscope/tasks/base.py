"""What every task offers: a world drawn once for a seed, and sequences drawn from that world.

The *world* is whatever a task hides from the model and fixes for a whole run (for permutations:
which mappings are held out). Because it is an array argument and not a constant, runs with
different worlds train side by side in one compiled loop, and an interval over seeds covers the luck
of the world as well as that of the weights.

Arrays that all seeds read and none owns (a text, a table of measurements) are what `load_arrays`
returns. They are arguments of the compiled program too, one copy on each device for all seeds, and
`sample` reads them as `self.arrays`.

To add a task: a subclass of `Task` with a `kind` of its own, in a file anywhere. It needs
`d_vocab`, `n_ctx` and `sample`; the rest, where there is something to say. What is exact about a
task (`posterior`, `loss_floor`, `list_examples`) is None where it is not known, and
`mnemoscope.testing.check_task` holds what is there against what `sample` draws.
"""

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from mnemoscope.core.axes import Array, Float, Int, PRNGKeyArray, Tokens
from mnemoscope.core.errors import in_one_line
from mnemoscope.core.kinds import Kind

World = Any  # a pytree of arrays; each task names its own
Arrays = Any  # a pytree of arrays that all seeds share
T = TypeVar("T", bound="Task")


class Example(NamedTuple):
    """One sequence as the loss sees it: the mean of -log p(targets) weighted by `weights`."""

    tokens: Tokens
    """What the model reads."""

    targets: Tokens
    """What it should answer at each position."""

    weights: Float[Array, "pos"]
    """How much each position counts."""

    layer: Int[Array, ""] | None = None
    """After which layer, counted from 0, the answers are read; None, or one that the model does not
    have, is the last."""

    def __repr__(self) -> str:
        return in_one_line(type(self).__name__, self._asdict())


class Task(Kind):
    """A distribution over sequences whose exact answers are known.

    One of your own is a class with a kind, in a file anywhere. It needs

        kind: Literal["copy-back"] = "copy-back"    # its name in files; fields of yours follow
        d_vocab, n_ctx                              # properties: tokens, and the longest input
        sample(self, world, *, key)                 # one ms.Example(tokens, targets, weights)

    and says more where there is something to say:

        world(self, *, key)                         # what is hidden, drawn once for each seed
        posterior(self, tokens, world)              # the exact answers
        loss_floor(self, world)                     # the least loss that anybody can have
        n_examples, example(self, world, index)     # what run.accuracy() reads, one by one
        list_examples(self, world)                  # all that `sample` can draw, for exact checks
        token_names                                 # tokens as people write them

    mnemoscope.testing.check_task(CopyBack()) says whether all of it holds. `mnemoscope new task
    NAME` writes such a file; docs/your_own_task.md is ten minutes of it.
    """

    family: ClassVar[str] = "task"

    @property
    @abstractmethod
    def d_vocab(self) -> int:
        """Number of tokens."""

    @property
    def d_vocab_out(self) -> int:
        """Number of answers; they are the tokens, unless a task has others."""
        return self.d_vocab

    @property
    @abstractmethod
    def n_ctx(self) -> int:
        """Longest input."""

    @property
    def loss_positions(self) -> tuple[int, ...]:
        """Positions whose loss weight can be other than zero; every one, unless a task knows
        better."""
        return tuple(range(self.n_ctx))

    @property
    def sparse_loss(self) -> bool:
        """Whether the loss of most sequences is on few positions, which differ from sequence to
        sequence."""
        return False

    @property
    def reads_early(self) -> bool:
        """Whether answers may be read after an earlier layer than the last (`Example.layer`)."""
        return False

    @property
    def query_token(self) -> int | None:
        """The token that ends every sequence, if there is such a one and the loss is on it
        alone."""
        return None

    @property
    def token_names(self) -> tuple[str, ...]:
        """Each token as a person writes it."""
        return tuple(map(str, range(self.d_vocab)))

    def world(self, *, key: PRNGKeyArray) -> World:
        """Draw what stays fixed for a whole run; nothing, unless a task hides something."""
        return ()

    def at_step(self, world: World, step: Int[Array, ""]) -> World:
        """The world as `sample` finds it at a step of training; always the same, unless a task has
        a schedule."""
        return world

    @abstractmethod
    def sample(self, world: World, *, key: PRNGKeyArray) -> Example:
        """Draw one training sequence.

        Args:
            world: as `at_step` has it.
            key: everything random comes from it.
        """

    # ---- what is exact, where it is known

    def posterior(
        self, tokens: Tokens, world: World
    ) -> Float[Array | np.ndarray, "read answer"] | None:
        """p(target | tokens up to here, world) at each of `loss_positions`: the best answers that
        anybody can give who knows the task and this world. None: not known.

        A row at which a sequence asks nothing is never read. It may be written in JAX, or in NumPy
        for the host.

        Args:
            tokens: what the model reads.
            world: what the seed hides.
        """
        return None

    def loss_floor(self, world: World) -> float | None:
        """The least mean loss of any predictor that knows this world. None: not known.

        Args:
            world: what the seed hides.
        """
        return None

    def list_examples(self, world: World) -> tuple[Example, Float[Array, "batch"]] | None:
        """Every example that `sample` can draw, along a batch axis, and the probability of each.
        None: there are too many.

        With these, checks hold the posterior and the loss floor against counting. What a model is
        evaluated on is `n_examples` and `example`: it may be other sequences, such as those of a
        text that were held out, and they are made one by one inside a compiled program.

        Args:
            world: what the seed hides.
        """
        return None

    # ---- arrays that all seeds share

    def load_arrays(self) -> Arrays:
        """Arrays that every seed reads and none owns, on the host; none, unless a task has some."""
        return ()

    @cached_property
    def arrays(self) -> Arrays:
        """What `load_arrays` returns; inside a compiled program the argument that stands for it."""
        return self.load_arrays()

    def with_arrays(self: T, arrays: Arrays) -> T:
        """The same task inside a compiled program.

        Args:
            arrays: what `load_arrays` returned, as arguments of the program.
        """
        inside = self.__copy__()
        object.__setattr__(inside, "arrays", arrays)  # where `arrays` itself would keep them
        return inside

    def files(self) -> Mapping[str, str]:
        """The files that `load_arrays` reads, by SHA-256, each with its path on this machine.

        Workers of a cluster are told of them and look there. Raises where what is read is no file.
        """
        return {}

    # ---- what a model is evaluated on

    @property
    def n_examples(self) -> int | None:
        """How many sequences a model is evaluated on (`run.accuracy()`); None: as many as one asks
        for, drawn by `sample`. What `sample` can draw in all is `list_examples`."""
        return None

    def example(self, world: World, index: Int[Array, ""]) -> Example:
        """One of the sequences that a model is evaluated on; needed where `n_examples` is a number.

        Where some are more probable than others, their weights say so. It is called inside a
        compiled program, with an index that is known only there.

        Args:
            world: what the seed hides.
            index: which one, from 0 up.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `example`")
