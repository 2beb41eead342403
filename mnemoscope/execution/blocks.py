"""A cluster's bookkeeping: blocks of seeds, attempts to train them, and how far all of it is."""

from dataclasses import dataclass, field
from typing import NamedTuple

from mnemoscope.execution.local import ACCELERATOR_BLOCK, BLOCK
from mnemoscope.training.spec import Spec

TRIES = 3
# blocks cut for each worker: the last ones to finish then keep the others waiting for a quarter of
# the time
SHARES = 4
SMALLEST_ON_ACCELERATOR = 256  # fewer seeds leave an accelerator idle (BENCHMARKS.md)


class Lacking(NamedTuple):
    """Seeds of one Spec that the store does not hold."""

    name: str  # of the condition, for people
    spec: Spec  # what is trained
    seeds: set[int]  # those that are missing

    @property
    def samples(self) -> int:
        """Sequences that all its seeds together train on."""
        return len(self.seeds) * self.spec.steps * self.spec.batch


@dataclass(eq=False)
class Block:
    """Consecutive seeds of one Spec, and what became of them."""

    number: int  # by which a worker's signs of life name it
    name: str  # of the condition, for people
    spec: Spec  # what is trained
    seeds: list[int]  # consecutive
    stored: bool = False  # whether its seeds are stored
    failures: list[str] = field(default_factory=list)  # why each try failed
    tried: set[str] = field(default_factory=set)  # workers that failed it

    @property
    def settled(self) -> bool:
        """Whether nothing more is done about it: it is stored, or given up."""
        return self.stored or len(self.failures) >= TRIES

    @property
    def samples(self) -> int:
        """Sequences that all its seeds together train on."""
        return len(self.seeds) * self.spec.steps * self.spec.batch

    def __str__(self) -> str:
        return f"{self.name} (Spec {self.spec.digest()}), seeds {self.seeds[0]}-{self.seeds[-1]}"


@dataclass
class Attempt:
    """A block on a worker."""

    block: Block  # what is trained
    seen: float  # when it last gave a sign of life, on the monotonic clock
    steps: int = 0  # how far it is
    failed: bool = False  # whether it counts as failed already

    @property
    def samples(self) -> int:
        """Sequences that its seeds together have trained on so far."""
        return self.steps * self.block.spec.batch * len(self.block.seeds)


class ClusterProgress(NamedTuple):
    """How far a cluster is, all workers together."""

    stored: int  # blocks that are stored
    blocks: int  # of so many
    workers: int  # that are fit to train
    busy: int  # of which so many train a block now
    samples: int  # sequences trained on
    of_samples: int  # of so many
    per_second: float  # sequences, on average since the start


def block_size(seeds: int, workers: int, devices: int, accelerator: bool) -> int:
    """Seeds in a block: some blocks for every worker, none that leaves devices of a worker idle.

    None is above the usual block either.

    Args:
        seeds: how many have to be trained.
        workers: how many share them.
        devices: of one worker.
        accelerator: whether these are more than CPU cores.
    """
    if accelerator:
        least = SMALLEST_ON_ACCELERATOR
        most = ACCELERATOR_BLOCK
    else:
        least = devices
        most = BLOCK
    share = -(-seeds // (SHARES * workers))  # rounded up
    return min(max(share, least), max(least, most))
