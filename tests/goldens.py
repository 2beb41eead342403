"""What 0.1 drew, trained and wrote, so that nothing of it changes unnoticed.

    python tests/goldens.py          writes tests/golden/*.json anew (and says what changed)

Four files of numbers, and a store:

    specs.json      JSON and digest of every study's Specs at both scales, and every default
    draws.json      for every task the integers of its world and of two batches, exactly
    losses.json     for every task, optimizer and forward pass the loss of each of twenty steps
    later_losses.json   the same for kinds of layers that 0.1 had not
    store-0.1/      a store written by 0.1 (commit d79c95e): a run of every case, an imported model,
                    two findings and a ledger

A changed number here means that the same Spec trains to something else: raise `format` in `Spec`,
say so in CHANGELOG.md, and only then write the files anew. The store is never written again.
"""

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from pydantic_core import PydanticUndefined

from mnemoscope.core.strict import Strict
from mnemoscope.models import Init, ModelConfig
from mnemoscope.studies.discover import STUDIES
from mnemoscope.tasks import Bigrams, Cycle, Facts, Hops, Permutation, Task
from mnemoscope.training.loop import fit
from mnemoscope.training.optimizers import SGD, Adam
from mnemoscope.training.spec import Spec
from mnemoscope.training.step import draw
from mnemoscope.training.worlds import seed_keys

FOLDER = Path(__file__).parent / "golden"
SEEDS = (0, 7)
STEPS = 20

ONE_HEAD = ModelConfig(d_model=8, n_heads=1, d_mlp=8)
BAG = ModelConfig(
    d_model=8,
    n_heads=1,
    d_head=8,
    d_mlp=8,
    positions="none",
    attn_residual=False,
    attention="linear",
    bias=False,
    init=Init(embeddings="unit"),
)


def _spec(task: Any, model: ModelConfig = ONE_HEAD, **rest: Any) -> Spec:
    return Spec(task=task, model=model, steps=STEPS, batch=8, **rest)


# what is trained: every task, optimizer and forward pass is in one of them
CASES: dict[str, Spec] = {
    "permutation, pair tables": _spec(Permutation(n_symbols=3)),
    "permutation, pair tables, two layers, pre": _spec(
        Permutation(n_symbols=4, repeat=0.5, repeat_of="any"),
        ModelConfig(d_model=8, n_heads=2, n_layers=2, d_mlp=8, norm="pre"),
    ),
    "permutation, pair tables, post, frozen": _spec(
        Permutation(n_symbols=4, repeat=0.3, split_seed=3),
        ModelConfig(d_model=8, n_heads=2, d_mlp=8, norm="post", frozen=("*.W_E",)),
    ),
    "permutation, adam with everything": _spec(
        Permutation(n_symbols=3),
        optimizer=Adam(
            lr=0.01,
            b1=0.8,
            b2=0.99,
            eps=1e-6,
            weight_decay=0.1,
            schedule="cosine",
            warmup=5,
            clip=0.5,
        ),
    ),
    "cycle, sgd with everything, held back": _spec(
        Cycle(n_symbols=4, length=5),
        optimizer=SGD(lr=0.1, momentum=0.9, weight_decay=0.01),
        unfreeze_at=(("*.W_O", 10),),
    ),
    "bigrams, score tables in chunks": _spec(Bigrams(length=16)),
    "bigrams, plain, two heads": _spec(
        Bigrams(length=16, triggers="random", outputs="bigram", loss="all"),
        ModelConfig(d_model=8, n_heads=2, d_mlp=8),
    ),
    "facts, token counts": _spec(Facts(subjects=6, relations=3, per_relation=2, length=8), BAG),
    "hops, early readout, schedule, watched": _spec(
        Hops(n=3, k=2, schedule=((0, (1.0, 0.0)), (10, (0.0, 1.0)))),
        ModelConfig(d_model=8, n_heads=1, n_layers=2, d_mlp=0, causal=False),
        metrics="hops",
        n_evals=4,
    ),
}

# kinds of layers that 0.1 had not, so that its store has no run of them
LATER: dict[str, Spec] = {
    "permutation, Llama's layers": _spec(
        Permutation(n_symbols=4),
        ModelConfig(
            d_model=8,
            n_heads=2,
            n_key_value_heads=1,
            d_mlp=8,
            norm="pre",
            norm_type="rms",
            positions="rotary",
            act="gelu",
            gated_mlp=True,
            bias=False,
        ),
    ),
}

# what is only drawn from
TASKS = {
    name.split(",")[0] + f" {n}": spec.task for n, (name, spec) in enumerate(CASES.items())
} | {
    "bigrams, noise": Bigrams(length=16, noise=0.3),
    "facts, even": Facts(subjects=6, relations=3, per_relation=2, length=8, answers="even"),
}

CLASSES = (Permutation, Cycle, Bigrams, Facts, Hops, ModelConfig, Adam, SGD, Spec)


def _stored_defaults(cls: type[Strict]) -> dict[str, Any]:
    """Every field's default, by the names that 0.1 had for the fields that it had."""
    defaults = {name: field.default for name, field in cls.model_fields.items()}
    if cls is not ModelConfig:
        return cls.to_stored(defaults)
    # 0.1 wrote None for sizes that are left out, and had the start of parameters among the rest
    sizes = dict.fromkeys(("d_head", "n_key_value_heads", "rotary_dim"))
    start = {name: field.default for name, field in Init.model_fields.items()}
    return cls.to_stored(defaults | sizes | {"init": start})


def specs() -> dict[str, Any]:
    """Every study's Specs with their digests, and every field's default."""
    found = {
        f"{study.name}/{scale}/{name}": {
            "seeds": condition.seeds,
            "digest": condition.spec.digest(),
            "spec": condition.spec.canonical_json(),
        }
        for study in STUDIES.values()
        for scale in ("quick", "full")
        for name, condition in study.conditions(scale).items()
    }
    defaults = {
        cls.__name__: {
            name: "required" if default is PydanticUndefined else repr(default)
            for name, default in _stored_defaults(cls).items()
        }
        for cls in CLASSES
    }
    return {"studies": found, "defaults": defaults}


def _integers(tree: Any) -> dict[str, Any]:
    """The whole-number arrays of a tree: the first of them to look at,
    the hash of all to compare.
    """
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    whole = [leaf.astype("<i8") for leaf in leaves if leaf.dtype.kind in "iu"]
    digest = hashlib.sha256()
    for leaf in whole:
        digest.update(f"{leaf.shape}".encode() + leaf.tobytes())
    return {
        "first": [leaf.ravel()[:12].tolist() for leaf in whole],
        "sha256": digest.hexdigest(),
    }


@partial(jax.jit, static_argnames="task")
def _drawn(task: Task, seed: int) -> dict[str, Any]:
    """A seed's world, and the batches of steps 0 and 15 that its training would see."""
    for_world, _, for_data = seed_keys(seed)
    world = task.world(key=for_world)
    batches = {step: draw(_spec(task), world, for_data, jax.numpy.array(step)) for step in (0, 15)}
    return {"world": world} | {f"step {n}": (b.tokens, b.targets) for n, b in batches.items()}


def draws() -> dict[str, Any]:
    """The integers that every task draws, for each seed."""
    return {
        f"{name}, seed {seed}": {part: _integers(tree) for part, tree in _drawn(task, seed).items()}
        for name, task in TASKS.items()
        for seed in SEEDS
    }


def losses_of(name: str) -> list[list[float]]:
    """The loss of each step of a case, seed by seed."""
    run = fit((CASES | LATER)[name], SEEDS)
    return [[float(f"{x:.8g}") for x in row] for row in run.losses]


def losses() -> dict[str, Any]:
    """The losses of every case."""
    return {name: losses_of(name) for name in CASES}


def later_losses() -> dict[str, Any]:
    """The losses of what came after 0.1."""
    return {name: losses_of(name) for name in LATER}


FILES = {
    "specs.json": specs,
    "draws.json": draws,
    "losses.json": losses,
    "later_losses.json": later_losses,
}


def read(name: str) -> dict[str, Any]:
    """One of the files."""
    return json.loads((FOLDER / name).read_text())


def write() -> None:
    """Write the files anew."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in FILES.items():
        path = FOLDER / name
        text = json.dumps(make(), indent=1) + "\n"
        before = path.read_text() if path.exists() else ""
        path.write_text(text)
        print(name, "is as it was" if text == before else "has changed")


if __name__ == "__main__":
    write()
