"""One layer of attention against two: what is trained for it."""

import mnemoscope as ms
from mqar.recall import MultiQueryRecall

CELLS = {"quick": ((16, 4), (32, 8)), "full": ((64, 4), (128, 8))}
WIDTHS = (16, 32, 64)
WIDEST = WIDTHS[-1]


def build_conditions(scale: str) -> dict[str, ms.Condition]:
    """One layer and two at every length, number of pairs and width.

    Args:
        scale: `quick` or `full`.
    """
    full = scale == "full"
    found: dict[str, ms.Condition] = {}
    for length, pairs in CELLS[scale]:
        for layers in (1, 2):
            for width in WIDTHS:
                spec = ms.Spec(
                    task=MultiQueryRecall(
                        vocabulary=8192 if full else 64, n_pairs=pairs, length=length
                    ),
                    model=ms.ModelConfig(
                        d_model=width, n_layers=layers, n_heads=1, d_mlp=0, norm="pre"
                    ),
                    optimizer=ms.Adam(lr=2.15e-3, weight_decay=0.1),
                    steps=12_500 if full else 300,
                    batch=512 if full else 32,
                )
                # shares need 35 seeds; one layer is judged by a mean
                seeds = (40 if layers == 2 and width == WIDEST else 16) if full else 8
                found[f"{layers}-layers-{pairs}-pairs-d{width}"] = ms.Condition(spec, seeds)
    return found


STUDY = ms.Study(
    title="One layer of attention against two, at associative recall",
    paper="Arora et al.: Zoology (2312.04927); Okpekpe and Orvieto (2508.19029)",
    conditions=build_conditions,
)
