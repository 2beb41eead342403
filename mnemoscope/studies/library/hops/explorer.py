"""The models of the study that travel with its explorer."""

from mnemoscope.studies.library.hops.conditions import build_conditions
from mnemoscope.studies.study import Condition

NAME = "mixture/k=2"
CARRIED = 1  # seeds whose whole training goes along


def models() -> dict[str, Condition]:
    """One and two hops in a mixture, as at the quick scale; read by nothing while it trains."""
    condition = build_conditions("quick")[NAME]
    spec = condition.spec.model_copy(update={"metrics": None, "n_evals": 0})
    return {NAME: Condition(spec, condition.seeds)}
