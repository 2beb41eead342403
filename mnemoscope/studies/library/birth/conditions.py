"""What the birth study trains, and what it is compared with.

The simplified two-layer model learns bigram text with triggers. The paper's sizes at `full`:
d = 256, 256 tokens, batch 512, 1,000 steps of SGD (rate .03, momentum .9, decay 1e-4), loss on
predictable positions. `global` has the loss on all tokens, a linear feed-forward memory in layer 1
and the paper's other width and rate (128, .2), for three times as long, because B12 is about what
comes late. `layers/1` and `layers/2` are general transformers.

What the paper leaves open is a reading, trained for every condition on which a verdict rests:
NAME/other has the other of the paper's two pairs of width and rate, `global/relu` a feed-forward
memory of ReLU units, and `global/one` a single trigger.

`quick` has 48 tokens, d = 128, batch 64 and 160 steps at rate .2. It was chosen by the loss and the
accuracy of a few seeds that are not among the study's, before any probe was read.
Stages, rarer triggers, general models and all readings are left to `full`.
"""

from typing import Any, Literal, NamedTuple

from mnemoscope.models import Init, ModelConfig
from mnemoscope.studies.scales import FRESH_SEED, Scale
from mnemoscope.studies.study import Condition
from mnemoscope.tasks import Bigrams
from mnemoscope.tasks.corpus import Corpus
from mnemoscope.theory.induction import TRAINED, simplified_model
from mnemoscope.training.optimizers import SGD, Adam
from mnemoscope.training.spec import Spec

FIRST_KEYS, SECOND_KEYS, OUTPUT = TRAINED

# names of conditions: the simplified model
ALL = "all"  # everything is trained together, on frequent fixed triggers
NO_DECAY = "no decay"  # the same without weight decay
RANDOM = "random"  # on triggers drawn for each sequence
BIGRAM = "bigram"  # on outputs drawn from the bigrams
# what is frozen at the start, for 3/10 of a whole training
NO_OUTPUT = "held/output"
ONLY_OUTPUT = "held/both keys"
NO_FIRST = "held/first keys"
NO_SECOND = "held/second keys"
# output, then second-layer keys, then first-layer keys
SHORT = "stages/short"
LONG = "stages/long"
# with the loss on all tokens, and a feed-forward memory
GLOBAL = "global"  # on frequent fixed triggers
GLOBAL_RARE = "global rare"  # on rarer fixed triggers
GLOBAL_RANDOM = "global random"  # on triggers drawn for each sequence
# general transformers, by their number of layers
ONE = "layers/1"
TWO = "layers/2"

# names of readings
OTHER = "other"  # the other of the paper's two pairs of width and rate
RELU = "relu"  # a feed-forward memory of ReLU units
SINGLE = "one"  # a single trigger

LARGE = (256, 0.03)  # the paper's width and rate
SMALL = (128, 0.2)  # those which it says work as well
RARER = 5  # how many of the most frequent characters rarer triggers pass over


class Size(NamedTuple):
    """How large a scale is."""

    length: int  # of a sequence, in tokens
    d: int  # width of the simplified model
    batch: int  # sequences a step
    lr: float
    steps: int  # of a whole training
    held_steps: int  # of a training in which something is frozen, read when it is unfrozen
    eval_every: int  # steps
    global_steps: int  # of the training with the loss on all tokens
    global_evals: int
    seeds: int
    first_seed: int


SIZES: dict[Scale, Size] = {
    "quick": Size(
        length=48,
        d=128,
        batch=64,
        lr=0.2,
        steps=160,
        held_steps=96,
        eval_every=4,
        global_steps=96,
        global_evals=24,
        seeds=8,
        first_seed=0,
    ),
    "full": Size(
        length=256,
        d=256,
        batch=512,
        lr=0.03,
        steps=1000,
        held_steps=600,
        eval_every=10,
        global_steps=3000,
        global_evals=150,
        seeds=40,
        first_seed=FRESH_SEED,
    ),
}


def _simplified(
    size: Size,
    task: Bigrams,
    unfreeze_at: dict[str, float] | None = None,
    steps: int | None = None,
    weight_decay: float = 1e-4,
) -> Spec:
    """The simplified model.

    `unfreeze_at` has the share of a whole training for which a matrix is frozen.
    """
    steps = steps or size.steps
    waits = tuple((name, round(share * size.steps)) for name, share in (unfreeze_at or {}).items())
    return Spec(
        task=task,
        model=simplified_model(size.d),
        optimizer=SGD(lr=size.lr, momentum=0.9, weight_decay=weight_decay),
        steps=steps,
        batch=size.batch,
        snapshots=3,
        unfreeze_at=waits,
        metrics="bigrams",
        n_evals=steps // size.eval_every,
    )


def _with_memory(
    size: Size,
    task: Bigrams,
    width_and_rate: tuple[int, float] = SMALL,
    memory: Literal["linear", "relu"] = "linear",
) -> Spec:
    """The simplified model with a feed-forward memory in layer 1, and the loss on all tokens."""
    d, lr = width_and_rate
    simplified = simplified_model(d)
    if memory == "linear":
        model = simplified_model(
            d,
            d_mlp=d,
            act="linear",
            mlp_layers=(1,),
            init=Init(identity=("*.attn.W_Q", "*.W_in")),
            frozen=(*simplified.frozen, "*.W_in"),  # so that W_out alone is the memory
        )
    else:
        model = simplified_model(d, d_mlp=4 * d, act="relu", mlp_layers=(1,))
    return Spec(
        task=task,
        model=model,
        optimizer=SGD(lr=lr, momentum=0.9, weight_decay=1e-4),
        steps=size.global_steps,
        batch=size.batch,
        snapshots=3,
        metrics="bigrams",
        n_evals=size.global_evals,
    )


def _shorter(spec: Spec) -> Spec:
    """A third of a training, evaluated as often; late in training B10 has nothing to see."""
    return spec.model_copy(update={"steps": spec.steps // 3, "n_evals": spec.n_evals // 3})


def _general(task: Bigrams, layers: int) -> Spec:
    """A general transformer: four heads, normalization, feed-forward layers."""
    return Spec(
        task=task,
        model=ModelConfig(d_model=128, n_heads=4, n_layers=layers, d_mlp=512, norm="pre"),
        optimizer=Adam(lr=0.01, weight_decay=0.01, b2=0.99),
        steps=2000,
        batch=64,
        snapshots=3,
        metrics="bigrams",
        n_evals=50,
    )


def build_conditions(scale: Scale, corpus: Corpus | None = None) -> dict[str, Condition]:
    """Every condition by name; 40 fresh seeds of each at `full`, 8 at `quick`."""
    size = SIZES[scale]

    def text(**fields: Any) -> Bigrams:
        return Bigrams(**{"corpus": corpus, "length": size.length} | fields)

    specs = _simplified_models(size, text)
    specs[GLOBAL] = _with_memory(size, text(loss="all"))
    if scale == "full":
        d, lr = SMALL
        others = _simplified_models(size._replace(d=d, lr=lr), text) | _in_stages(
            size._replace(d=d, lr=lr), text
        )
        specs |= _in_stages(size, text)
        specs |= {f"{name}/{OTHER}": spec for name, spec in others.items()}
        specs[NO_DECAY] = _simplified(size, text(), weight_decay=0.0)
        specs |= _with_other_triggers(size, text)
        specs[f"{GLOBAL}/{OTHER}"] = _with_memory(size, text(loss="all"), LARGE)
        specs[f"{GLOBAL}/{RELU}"] = _with_memory(size, text(loss="all"), memory="relu")
        specs[ONE] = _general(text(loss="all"), 1)
        specs[TWO] = _general(text(loss="all"), 2)
    return {name: Condition(spec, size.seeds, size.first_seed) for name, spec in specs.items()}


def _simplified_models(size: Size, text: Any) -> dict[str, Spec]:
    """What both scales train with the loss on predictable positions."""

    def held(*names: str) -> Spec:
        return _simplified(size, text(), dict.fromkeys(names, 0.3), size.held_steps)

    return {
        ALL: _simplified(size, text()),
        NO_OUTPUT: held(OUTPUT),
        ONLY_OUTPUT: held(FIRST_KEYS, SECOND_KEYS),
        NO_FIRST: held(FIRST_KEYS),
        NO_SECOND: held(SECOND_KEYS),
        RANDOM: _simplified(size, text(triggers="random")),
        BIGRAM: _simplified(size, text(outputs="bigram")),
    }


def _in_stages(size: Size, text: Any) -> dict[str, Spec]:
    """The output first, then the second layer's keys, then the first layer's."""
    return {
        SHORT: _simplified(size, text(), {SECOND_KEYS: 0.1, FIRST_KEYS: 0.2}),
        LONG: _simplified(size, text(), {SECOND_KEYS: 0.3, FIRST_KEYS: 0.6}),
    }


def _with_other_triggers(size: Size, text: Any) -> dict[str, Spec]:
    """The loss on all tokens with rarer and with random triggers, and each with a single one."""
    tasks = {
        GLOBAL_RARE: {"skip": RARER},
        GLOBAL_RANDOM: {"triggers": "random"},
        f"{GLOBAL}/{SINGLE}": {"n_triggers": 1},
        f"{GLOBAL_RARE}/{SINGLE}": {"n_triggers": 1, "skip": RARER},
        f"{GLOBAL_RANDOM}/{SINGLE}": {"n_triggers": 1, "triggers": "random"},
    }
    return {
        name: _shorter(_with_memory(size, text(loss="all", **fields)))
        for name, fields in tasks.items()
    }
