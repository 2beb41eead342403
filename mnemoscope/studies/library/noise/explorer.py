"""The models of the study that travel with its explorer."""

from mnemoscope.studies.library.noise.conditions import build_conditions
from mnemoscope.studies.study import Condition

# half the quick scale's width and an eighth of its hidden units, so that a whole training fits a
# page, for twice its steps
WIDTH = 32
HIDDEN = 32
STEPS = 600
SEEDS = 4
CARRIED = 1  # of them with their whole training


def models() -> dict[str, Condition]:
    """The noisy text, learned by a smaller model; read by nothing while it trains."""
    spec = build_conditions("quick")["noisy"].spec
    model = spec.model.model_dump() | {"d_model": WIDTH, "d_head": WIDTH, "d_mlp": HIDDEN}
    small = spec.model_copy(
        update={
            "model": type(spec.model).model_validate(model),
            "steps": STEPS,
            "metrics": None,
            "n_evals": 0,
        }
    )
    return {"noisy": Condition(small, SEEDS)}
