"""The yardstick: the permutation study's training as people write it, in PyTorch.

A `Dataset` that draws one example at a time in Python, a `DataLoader`, `nn.TransformerEncoderLayer`
with a causal mask, and Adam, for the model with d=32 and two heads at batch 128. The paper's loop
is not published line by line; this is the plain way to write what it describes. `norm=False` takes
the two norms out of the layer.
"""

import itertools
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

V, D, HEADS, BATCH = 5, 32, 2, 128


class Permutations(Dataset):
    """Examples drawn on demand: a trained mapping, a random order,
    and in 30% of cases the first pair again.
    """

    def __init__(self, samples: int, seed: int):
        mappings = list(itertools.permutations(range(1, V + 1)))
        random.Random(seed).shuffle(mappings)
        self.train, self.samples, self.rng = mappings[:96], samples, random.Random(seed + 1)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, _: int) -> tuple[torch.Tensor, torch.Tensor]:
        mapping = self.rng.choice(self.train)
        order = list(range(V))
        self.rng.shuffle(order)
        if self.rng.random() < 0.3:
            order[-1] = order[0]
        tokens = [t for x in order for t in (x + 1, mapping[x])]
        return torch.tensor(tokens[:-1]), torch.tensor(tokens[1:])


class Model(nn.Module):
    """Token and position embeddings, one encoder layer with a causal mask, a linear read-out."""

    def __init__(self, norm: bool):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V + 1, D), nn.Embedding(2 * V - 1, D)
        self.layer = nn.TransformerEncoderLayer(D, HEADS, 2 * D, dropout=0.0, batch_first=True)
        if not norm:
            self.layer.norm1 = self.layer.norm2 = nn.Identity()
        self.out = nn.Linear(D, V + 1)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(2 * V - 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        return self.out(self.layer(h, src_mask=self.mask, is_causal=True))


def train(steps: int, norm: bool, seed: int = 0) -> tuple[float, list[float]]:
    """Samples per second after a warm-up, and the loss of every step."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = Model(norm)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses, warm, began = [], steps // 10, 0.0
    for step, (x, y) in enumerate(DataLoader(Permutations(steps * BATCH, seed), BATCH)):
        if step == warm:
            began = time.perf_counter()
        loss = nn.functional.cross_entropy(
            model(x)[:, ::2].reshape(-1, V + 1), y[:, ::2].reshape(-1)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return (steps - warm) * BATCH / (time.perf_counter() - began), losses
