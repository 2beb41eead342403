"""What `facts` trains with the one loop.

Linear attention as the paper has it, softmax models with learned embeddings, and three models of as
many parameters that differ in width.
"""

from mnemoscope.models import Init, ModelConfig
from mnemoscope.studies.scales import FRESH_SEED, Scale
from mnemoscope.studies.study import Condition
from mnemoscope.tasks import Facts
from mnemoscope.training.optimizers import SGD, Adam
from mnemoscope.training.spec import Spec

TASK = Facts(subjects=16, relations=4, per_relation=8, noise=20, answers="even")
SEEDS = {"quick": 8, "full": 128}
EVALS = {"quick": 64, "full": 128}
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

NARROW = "narrow/attention only"
NARROW_MLP = "narrow/with MLP"
WIDE = "wide/attention only"
# width, heads of size 4, hidden units: 4 H d_h d + 2 m d is 32,768 for each
SHAPES = {NARROW: (16, 128, 0), NARROW_MLP: (16, 8, 960), WIDE: (128, 16, 0)}
RATE = 0.01
# the model that is said to fail is trained at others too, so that no rate is to blame
OTHER_RATES = {f"{NARROW} at {rate:g}": rate for rate in (0.003, 0.001)}


def _linear(scale: Scale) -> Spec:
    """The paper's training of linear attention, the same at both scales but for its evals."""
    return Spec(
        task=TASK,
        model=LINEAR,
        optimizer=SGD(lr=0.1),
        steps=8192,
        batch=1024,
        metrics="facts",
        n_evals=EVALS[scale],
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
        n_evals=EVALS[scale],
    )


def _of_width(d: int, heads: int, hidden: int, rate: float = RATE) -> Spec:
    """The paper's model with frozen embeddings, of 1,024 facts among four noise tokens.

    Args:
        d: Its width.
        heads: Of size 4.
        hidden: Units of its feed-forward layer, or none.
        rate: At which it is trained, falling to zero.
    """
    model = ModelConfig(
        d_model=d,
        n_heads=heads,
        d_head=4,
        d_mlp=hidden,
        positions="none",
        attn_residual=False,
        unembed_bias=False,
        init=Init(embeddings="unit"),
        frozen=("embed.W_E", "unembed.W_U"),
    )
    return Spec(
        task=Facts(subjects=32, relations=32, noise=4),
        model=model,
        optimizer=Adam(lr=rate, schedule="cosine"),
        steps=8192,
        batch=512,
        metrics="facts",
        n_evals=64,
    )


def build_conditions(scale: Scale) -> dict[str, Condition]:
    """Every condition of a scale, by name."""
    full = scale == "full"
    specs = {"linear": _linear(scale)}
    specs |= {name: _softmax(scale, hidden) for name, hidden in SOFTMAX.items()}
    if full:
        specs |= {name: _of_width(*shape) for name, shape in SHAPES.items()}
        specs |= {name: _of_width(*SHAPES[NARROW], rate) for name, rate in OTHER_RATES.items()}
    first = FRESH_SEED if full else 0
    return {name: Condition(spec, SEEDS[scale], first) for name, spec in specs.items()}
