"""Which algorithm does a model have, and when: what is trained for it."""

from typing import Literal

import mnemoscope as ms
from mixtures.closeness import closeness
from mixtures.markov_mixture import MarkovMixture

THRESHOLD = {"quick": (4, 16, 64), "full": (8, 16, 32, 64, 128, 256)}
SWITCH = {"quick": (16, 64), "full": (128, 256, 512, 1024)}
TRANSIENT = {"quick": 16, "full": 128}
DELAYED = {"quick": 64, "full": 512}
SEEDS = {"quick": 8, "full": 16}


def build_conditions(scale: str) -> dict[str, ms.Condition]:
    """Mixtures of few and many chains; one for longer; one with learned positions.

    Args:
        scale: `quick` or `full`.
    """
    full = scale == "full"

    def train(
        n_chains: int,
        steps: int,
        weights: Literal["drawn", "equal"] = "drawn",
        positions: str = "rotary",
    ) -> ms.Condition:
        spec = ms.Spec(
            task=MarkovMixture(
                n_chains=n_chains,
                n_states=10 if full else 4,
                length=512 if full else 64,
                weights=weights,
            ),
            model=ms.ModelConfig(
                d_model=64 if full else 16,
                n_layers=2,
                n_heads=4 if full else 2,
                d_mlp=256 if full else 32,
                act="gelu",
                norm="pre",
                positions=positions,
            ),
            optimizer=ms.Adam(lr=6e-4 if full else 3e-3, b2=0.95, weight_decay=0.1, clip=0.01),
            steps=steps,
            batch=128 if full else 32,
            metrics=closeness,
            n_evals=100 if full else 20,
        )
        return ms.Condition(spec, SEEDS[scale])

    short = 839 if full else 160
    found: dict[str, ms.Condition] = {}
    for n in THRESHOLD[scale]:
        found[f"threshold-{n}"] = train(n, short)
        found[f"threshold-{n}/equal"] = train(n, short, weights="equal")
    for n in SWITCH[scale]:
        found[f"switch-{n}"] = train(n, 2000 if full else 200)
    found["transient"] = train(TRANSIENT[scale], 10_000 if full else 400)
    for positions in ("rotary", "learned"):
        found[f"delay-{positions}"] = train(
            DELAYED[scale], 4000 if full else 200, positions=positions
        )
    return found


STUDY = ms.Study(
    title="Which algorithm does a model have, and when?",
    paper="Park, Lubana, Pres, Tanaka: Competition Dynamics Shape Algorithmic Phases of "
    "In-Context Learning (2412.01003)",
    conditions=build_conditions,
    explore=("transient",),
)
