"""Who keeps track of a state: what is trained for it."""

import mnemoscope as ms
from state_tracking.gru import Gru
from state_tracking.reach import reach
from state_tracking.running_sum import RunningSum

LENGTH = 12


def build_conditions(scale: str) -> dict[str, ms.Condition]:
    """Both models on the same task, trained alike.

    Args:
        scale: `quick` or `full`.
    """
    full = scale == "full"
    models: dict[str, ms.Model] = {
        "gru": Gru(d_hidden=32),
        "attention": ms.ModelConfig(d_model=32, n_heads=2, d_mlp=64, norm="pre"),
    }
    specs = {
        name: ms.Spec(
            task=RunningSum(modulus=2, length=LENGTH),
            model=model,
            optimizer=ms.Adam(lr=3e-3),
            steps=4000 if full else 1000,
            snapshots=12,
            metrics=reach,
        )
        for name, model in models.items()
    }
    return {name: ms.Condition(spec, 32 if full else 8) for name, spec in specs.items()}


STUDY = ms.Study(
    title="Who keeps track of a state?",
    paper="No paper: two claims of our own, as an example of a study from outside",
    conditions=build_conditions,
    explore=("attention",),
)
