"""The second yardstick: the simplified induction model as people write it, in PyTorch,
with its text drawn in NumPy.

Two layers of one head with identity queries, frozen random values and embeddings; W_K of both
layers and W_O of the second are trained by SGD on the positions whose output the context has shown.
Sequences are drawn token by token.
"""

import math
import time

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy


class Text:
    """Bigram sequences with K fixed triggers and uniform outputs,
    as lists drawn one token after the other.
    """

    def __init__(
        self,
        unigrams: np.ndarray,
        bigrams: np.ndarray,
        triggers: tuple[int, ...],
        length: int,
        seed: int,
    ):
        self.unigrams, self.bigrams, self.triggers, self.length = (
            unigrams,
            bigrams,
            triggers,
            length,
        )
        self.rng = np.random.default_rng(seed)

    def sequence(self) -> tuple[list[int], list[bool]]:
        n = len(self.unigrams)
        outputs = {q: int(self.rng.integers(n)) for q in self.triggers}
        tokens, known, seen = [int(self.rng.choice(n, p=self.unigrams))], [], set()
        for _ in range(self.length):
            z = tokens[-1]
            known.append(z in seen)
            if z in outputs:
                seen.add(z)
                tokens.append(outputs[z])
            else:
                tokens.append(int(self.rng.choice(n, p=self.bigrams[z])))
        return tokens, known

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        tokens, known = zip(*(self.sequence() for _ in range(size)), strict=True)
        return torch.tensor(tokens), torch.tensor(known)


class Layer(nn.Module):
    """One head whose queries are the stream itself."""

    def __init__(self, d: int, train_output: bool):
        super().__init__()
        self.key, self.value, self.output = (nn.Linear(d, d, bias=False) for _ in range(3))
        for matrix in (self.key, self.value, self.output):
            nn.init.uniform_(matrix.weight, -(d**-0.5), d**-0.5)
        self.value.weight.requires_grad_(False)
        self.output.weight.requires_grad_(train_output)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = x @ self.key(x).transpose(1, 2) / math.sqrt(x.shape[-1])
        return x + self.output(torch.softmax(scores + mask, dim=-1) @ self.value(x))


class Model(nn.Module):
    """Frozen embeddings and read-out around two layers."""

    def __init__(self, n: int, length: int, d: int):
        super().__init__()
        self.tokens, self.positions, self.out = (
            nn.Embedding(n, d),
            nn.Embedding(length, d),
            nn.Linear(d, n, bias=False),
        )
        for part in (self.tokens, self.positions, self.out):
            part.weight.requires_grad_(False)
        self.layers = nn.ModuleList([Layer(d, False), Layer(d, True)])
        self.register_buffer(
            "mask", torch.triu(torch.full((length, length), -math.inf), diagonal=1)
        )

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        x = self.tokens(z) + self.positions.weight[: z.shape[1]]
        for layer in self.layers:
            x = layer(x, self.mask)
        return self.out(x)


def train(
    text: Text, d: int, batch: int, steps: int, seed: int = 0
) -> tuple[float, float, list[float]]:
    """Seconds a step after the first, of these seconds drawing text, and the loss of every step."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = Model(len(text.unigrams), text.length, d)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.03, momentum=0.9, weight_decay=1e-4)
    losses, drawing, began = [], 0.0, time.perf_counter()
    for step in range(steps + 1):
        if step == 1:
            drawing, began = 0.0, time.perf_counter()
        at = time.perf_counter()
        tokens, known = text.batch(batch)
        drawing += time.perf_counter() - at
        loss = cross_entropy(model(tokens[:, :-1])[known], tokens[:, 1:][known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return (time.perf_counter() - began) / steps, drawing / steps, losses
