"""Where a block that is being trained is kept, so that one that was cut off goes on where it was.

Training asks `is_due` at each of its stops and saves when it is; `Store` writes and reads the file.
"""

import time

import numpy as np

from mnemoscope.store.store import Store

# A block under way is saved so often, or every 20 times as long as saving takes, whichever is less
# often: what is large must not cost more than a twentieth of the training.
SECONDS_BETWEEN = 30
TIMES_AS_LONG = 20


class StoreCheckpointer:
    """Saves one block under way in a store, from time to time.

    Args:
        store: where it is saved.
        block: the block's name, as `block_id` makes it.
        by: who saves it. What anybody else saved is not gone on with: only the same program on the
            same machine goes on to the same bits.
    """

    def __init__(self, store: Store, block: str, by: str):
        self.store = store
        self.name = f"runs/{block}.part"
        self.by = by
        self.next = time.monotonic() + SECONDS_BETWEEN

    def restore(self) -> dict[str, np.ndarray] | None:
        """What was saved of the block, if it is ours to go on with."""
        saved = self.store.read_checkpoint(self.name)
        if saved is None:
            return None
        arrays, by = saved
        return arrays if by == self.by else None

    def is_due(self) -> bool:
        """Whether it is time to save it again."""
        return time.monotonic() >= self.next

    def save(self, arrays: dict[str, np.ndarray]) -> None:
        """Save the block as it is now."""
        began = time.monotonic()
        self.store.save_checkpoint(self.name, arrays, self.by)
        took = time.monotonic() - began
        self.next = time.monotonic() + max(SECONDS_BETWEEN, TIMES_AS_LONG * took)

    def drop(self) -> None:
        """Forget what was saved: the block is stored."""
        self.store.drop_checkpoint(self.name)
