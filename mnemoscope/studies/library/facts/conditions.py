"""What `facts` trains with the one loop.

Linear attention as the paper has it, and softmax models with learned embeddings.
"""

from mnemoscope.models import Init, ModelConfig
from mnemoscope.studies.claims import Condition, Scale
from mnemoscope.tasks import Facts
from mnemoscope.training.optimizers import SGD, Adam
from mnemoscope.training.spec import Spec

TASK = Facts(subjects=16, relations=4, per_relation=8, noise=20, answers="even")
SEEDS = {"quick": 8, "full": 32}
LOOKS = {"quick": 64, "full": 128}
_STILL = ("embed.W_E", "*.W_Q", "*.W_V", "*.W_O")

# logits = V^T sum_l (x_EOS^T A x_l) x_l with one-hot x: A is the key matrix (transposed), V the
# unembedding, all else the identity
LINEAR = ModelConfig(
    d_model=TASK.d_vocab,
    n_heads=1,
    d_mlp=0,
    bias=False,
    positions="none",
    attention="linear",
    attn_residual=False,
    frozen=_STILL,
    init=Init(identity=_STILL, constant=(("*.W_K", 1e-5), ("unembed.W_U", 1e-5))),
)
SOFTMAX = {"softmax/attention only": 0, "softmax/with MLP": 64}  # hidden units


def _linear(scale: Scale) -> Spec:
    """The paper's training of linear attention, the same at both scales but for its evals."""
    return Spec(
        task=TASK,
        model=LINEAR,
        optimizer=SGD(lr=0.1),
        steps=8192,
        batch=1024,
        metrics="facts",
        n_evals=LOOKS[scale],
    )


def _softmax(scale: Scale, hidden: int) -> Spec:
    """Softmax attention with learned embeddings, with so many hidden units or none."""
    return Spec(
        task=TASK,
        model=ModelConfig(d_model=32, n_heads=4, d_mlp=hidden, positions="none"),
        optimizer=Adam(lr=1e-3),
        steps=1024 if scale == "quick" else 4096,
        batch=256 if scale == "quick" else 1024,
        metrics="facts",
        n_evals=LOOKS[scale],
    )


def build_conditions(scale: Scale) -> dict[str, Condition]:
    """Every condition of a scale, by name."""
    specs = {"linear": _linear(scale)}
    specs |= {name: _softmax(scale, hidden) for name, hidden in SOFTMAX.items()}
    return {name: Condition(spec, SEEDS[scale]) for name, spec in specs.items()}
