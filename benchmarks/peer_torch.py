"""What a user would write in PyTorch: an ensemble with stacked parameters, trained side by side.

Products are batched over seeds, attention is `scaled_dot_product_attention`, the optimizer fused,
the step compiled, products in TF32 on a GPU. `bfloat16` is autocast.
"""

import numpy as np
import torch
from peer_cases import Advance, Stock
from torch.nn import functional

from mnemoscope import ModelConfig, Spec

ACTIVATIONS = {"relu": torch.relu, "gelu": functional.gelu}
Params = dict[str, torch.Tensor]


def norm(model: ModelConfig, p: Params, name: str, x: torch.Tensor) -> torch.Tensor:
    """A layer or RMS norm of (seed, column, d)."""
    over = (model.d_model,)
    if model.norm_type == "layer":
        standard = functional.layer_norm(x, over, eps=model.norm_eps)
        return standard * p[f"{name}.w"][:, None] + p[f"{name}.b"][:, None]
    return functional.rms_norm(x, over, eps=model.norm_eps) * p[f"{name}.w"][:, None]


def linear(p: Params, at: str, name: str, x: torch.Tensor) -> torch.Tensor:
    """x W + b for (seed, column, d)."""
    weights = p[f"{at}.W_{name}"]
    if f"{at}.b_{name}" not in p:
        return torch.bmm(x, weights)
    return torch.baddbmm(p[f"{at}.b_{name}"][:, None], x, weights)


def rotate(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions of (sequence, head, pos, d_head), by halves."""
    half = x.shape[-1] // 2
    steps = torch.arange(half, device=x.device) / half
    angles = torch.arange(x.shape[2], device=x.device)[:, None] * 10_000.0**-steps
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def attention(model: ModelConfig, p: Params, at: str, x: torch.Tensor, n_pos: int) -> torch.Tensor:
    """Causal softmax attention of all heads, of all seeds at once."""
    heads = (-1, n_pos, model.n_heads, model.d_head)
    q, k, v = (linear(p, at, name, x).reshape(heads).transpose(1, 2) for name in "QKV")
    if model.positions == "rotary":
        q, k = rotate(q), rotate(k)
    z = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return linear(p, at, "O", z.transpose(1, 2).reshape(*x.shape[:2], -1))


def logits(model: ModelConfig, p: Params, tokens: torch.Tensor) -> torch.Tensor:
    """(seed, batch, pos, vocab) of tokens (seed, batch, pos)."""
    seeds, batch, n_pos = tokens.shape
    columns = tokens.reshape(seeds, -1, 1).expand(-1, -1, model.d_model)
    x = torch.gather(p["embed.W_E"], 1, columns)
    if model.positions == "learned":
        x = (x.reshape(seeds, batch, n_pos, -1) + p["pos_embed.W_pos"][:, None]).reshape(x.shape)
    for layer in range(model.n_layers):
        at = f"blocks.{layer}"
        seen = norm(model, p, f"{at}.ln1", x) if model.norm == "pre" else x
        x = x + attention(model, p, f"{at}.attn", seen, n_pos)
        x = norm(model, p, f"{at}.ln1", x) if model.norm == "post" else x
        if model.d_mlp:
            seen = norm(model, p, f"{at}.ln2", x) if model.norm == "pre" else x
            hidden = ACTIVATIONS[model.act](linear(p, f"{at}.mlp", "in", seen))
            x = x + linear(p, f"{at}.mlp", "out", hidden)
            x = norm(model, p, f"{at}.ln2", x) if model.norm == "post" else x
    x = norm(model, p, "ln_final", x) if model.norm == "pre" else x
    return linear(p, "unembed", "U", x).reshape(seeds, batch, n_pos, -1)


def prepare(
    spec: Spec, stock: Stock, params: dict[str, np.ndarray], precision: str, compiled: bool = True
) -> Advance:
    """A training that is ready to go on.

    Args:
        spec: what is trained.
        stock: sequences to draw from.
        params: by name, stacked by seed.
        precision: `default` or `bfloat16`.
        compiled: whether the loss and its gradient are compiled.
    """
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, batch = spec.model, spec.batch
    seeds = len(next(iter(params.values())))
    read = list(spec.task.loss_positions)
    every_position = len(read) == spec.task.n_ctx
    tokens, targets = (torch.tensor(x, device=device).long() for x in stock[:2])
    weights = torch.tensor(stock.weights, device=device)
    still = model.frozen_names()
    p = {name: torch.tensor(x, device=device) for name, x in params.items()}
    trained = [x.requires_grad_() for name, x in p.items() if name not in still]
    number = spec.optimizer
    if number.kind == "adam":
        rule = torch.optim.Adam(trained, lr=number.lr, fused=True)
    else:
        decay, momentum = number.weight_decay, number.momentum
        rule = torch.optim.SGD(
            trained, lr=number.lr, momentum=momentum, weight_decay=decay, fused=True
        )

    def losses(rows: torch.Tensor) -> torch.Tensor:
        """Of each seed."""
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
            found = logits(model, p, tokens[rows])
        found = found if every_position else found[:, :, read]
        each = functional.cross_entropy(
            found.float().flatten(0, 2), targets[rows].flatten(), reduction="none"
        )
        weight = weights[rows].flatten(1)
        return (each.reshape(seeds, -1) * weight).sum(1) / weight.sum(1)

    of_rows = torch.compile(losses) if compiled else losses

    def advance(steps: int) -> float:
        total = torch.zeros((), device=device)
        for _ in range(steps):
            rows = torch.randint(len(tokens), (seeds, batch), device=device)
            each = of_rows(rows)
            rule.zero_grad()
            each.sum().backward()
            rule.step()
            total += each.detach().mean()
        return total.item() / steps  # waits for the device

    return advance
