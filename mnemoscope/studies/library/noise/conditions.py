"""What the noise study trains: two layers of one head with feed-forward layers.

On text whose trigger noise often follows. The paper's sizes at `full` (d = 256, 256 tokens, batch
512, SGD at .03), for 2,000 of its 5,000 steps and 40 seeds that nobody has seen. `quick` has
d = 64, 48 tokens, batch 64 and 300 steps at rate .1, chosen on seeds that are not the study's.
"""

from mnemoscope.models import Init, ModelConfig
from mnemoscope.studies.scales import FRESH_SEED, Scale
from mnemoscope.studies.study import Condition
from mnemoscope.tasks import Bigrams
from mnemoscope.training.optimizers import SGD
from mnemoscope.training.spec import Spec

SEEDS: dict[Scale, int] = {"quick": 8, "full": 40}


def build_conditions(scale: Scale) -> dict[str, Condition]:
    """The one condition of a scale."""
    full = scale == "full"
    d = 256 if full else 64
    model = ModelConfig(
        d_model=d,
        n_heads=1,
        n_layers=2,
        d_mlp=4 * d,
        bias=False,
        init=Init(identity=("*.attn.W_Q",)),
        frozen=("embed.W_E", "pos_embed.W_pos", "unembed.W_U", "*.attn.W_Q"),
    )
    spec = Spec(
        task=Bigrams(n_triggers=1, length=256 if full else 48, noise=0.5),
        model=model,
        steps=2000 if full else 300,
        optimizer=SGD(lr=0.03 if full else 0.1, momentum=0.9, weight_decay=1e-4),
        batch=512 if full else 64,
        snapshots=10,
        metrics="noise",
        n_evals=50,
    )
    return {"noisy": Condition(spec, SEEDS[scale], FRESH_SEED if full else 0)}
