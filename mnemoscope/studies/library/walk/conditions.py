"""What the walk study trains: the ABC model, and what the paper leaves open about it.

The paper: the pattern ABC repeated, vocabulary 3, two dimensions, context 3, one layer with one
head, biases in the packed QKV, learned positions, a read-out without bias; one seed. Feed-forward,
norm and optimizer are not published. Our plain reading has neither feed-forward nor norm and takes
Adam; the other readings add a feed-forward layer, or a norm after each sum, or before each part.

With two dimensions a norm leaves one number: (x, y) becomes (s, -s) with
s = (x - y) / sqrt((x - y)^2 + 4 eps), which is 1 or -1 unless x and y nearly agree. Three answers
then hang on two values, and the best loss is 2 ln(2) / 3 = 0.46, unless a model finds the narrow
place where s is neither.
"""

from typing import Literal

from mnemoscope.models import ModelConfig
from mnemoscope.studies.scales import FRESH_SEED, Scale
from mnemoscope.studies.study import Condition
from mnemoscope.tasks import Cycle
from mnemoscope.training.optimizers import Adam
from mnemoscope.training.spec import Spec

ABC = "abc"
MLP = "abc/mlp"
POST = "abc/post"
PRE = "abc/pre"
ALONE = "no attention"  # every position answers from its own token


def spec(
    scale: Scale,
    *,
    d_mlp: int = 0,
    norm: Literal["none", "pre", "post"] = "none",
    attention: bool = True,
) -> Spec:
    """One training of the ABC model.

    Args:
        scale: How long it trains.
        d_mlp: Hidden units of a feed-forward layer; 0 for none.
        norm: Where a norm is.
        attention: Whether it has any.
    """
    model = ModelConfig(d_model=2, n_heads=1, d_mlp=d_mlp, norm=norm, unembed_bias=False)
    if not attention:
        model = model.model_copy(update={"attn_layers": ()})
    return Spec(
        task=Cycle(),
        model=model,
        optimizer=Adam(lr=0.01),
        batch=16,
        steps=20_000 if scale == "full" else 4000,
        snapshots=12,
    )


def build_conditions(scale: Scale) -> dict[str, Condition]:
    """Every condition by name; 64 seeds of each at `quick`, 128 that nobody has seen at `full`."""
    full = scale == "full"
    specs = {
        ABC: spec(scale),
        MLP: spec(scale, d_mlp=8),
        POST: spec(scale, norm="post"),
        PRE: spec(scale, norm="pre"),
        ALONE: spec(scale, attention=False),
    }
    return {
        name: Condition(each, 128 if full else 64, FRESH_SEED if full else 0)
        for name, each in specs.items()
    }
