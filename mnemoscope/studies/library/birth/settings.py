"""What the birth study trains: the simplified two-layer model on bigram text with triggers, and what it is compared with.

The source's sizes at `full`: d = 256, 256 tokens, batch 512, 1,000 steps of SGD (rate .03, momentum .9, decay 1e-4), loss on
predictable positions. `global` has the loss on all tokens, a linear feed-forward memory in layer 1 and the source's other width
and rate (128, .2), for three times as long, because B12 is about what comes late. `layers/1` and `layers/2` are general
transformers.

`quick` has 48 tokens, d = 128, batch 64 and 160 steps at rate .2. It was chosen by the loss and the share of right answers of a few
seeds that are not among the study's, before any probe was read. Stages, rarer triggers and general models are left to `full`.
"""

from typing import Any

from mnemoscope.models import ModelConfig
from mnemoscope.studies.claims import Scale, Setting
from mnemoscope.tasks import Bigrams
from mnemoscope.tasks.corpus import Corpus
from mnemoscope.theory.induction import TRAINED, simplified_model
from mnemoscope.training.optimizers import SGD, Adam
from mnemoscope.training.spec import Spec

FIRST_KEYS, SECOND_KEYS, OUTPUT = TRAINED
ALL, RARE, RANDOM, BIGRAM, GLOBAL = "all", "rare", "random", "bigram", "global"
NO_OUTPUT, ONLY_OUTPUT, NO_FIRST, NO_SECOND = "held/output", "held/both keys", "held/first keys", "held/second keys"
SHORT, LONG, ONE, TWO = "stages/short", "stages/long", "layers/1", "layers/2"


def settings(scale: Scale, corpus: Corpus | None = None) -> dict[str, Setting]:
    """Every setting by name; 16 seeds of each at `full`, 8 at `quick`."""
    full = scale == "full"
    whole, shorter = (1000, 600) if full else (160, 96)  # steps; what is held back is read at 300 or 48

    def task(**fields: Any) -> Bigrams:
        return Bigrams(**{"corpus": corpus, "length": 256 if full else 48} | fields)

    def simple(release: dict[str, float] | None = None, steps: int = whole, **fields: Any) -> Spec:
        """`release` says for which share of a whole training a matrix waits."""
        waits = tuple((name, round(share * whole)) for name, share in (release or {}).items())
        return Spec(
            task=task(**fields), model=simplified_model(256 if full else 128), steps=steps, batch=512 if full else 64,
            optimiser=SGD(lr=0.03 if full else 0.2, momentum=0.9, weight_decay=1e-4), release=waits, snapshots=3,
            watch="bigrams", looks=steps // (10 if full else 4),
        )  # fmt: skip

    def with_memory() -> Spec:
        frozen = (*simplified_model(128).frozen, "*.W_in")  # so that W_out alone is the memory
        identity = ("*.attn.W_Q", "*.W_in")
        model = simplified_model(128, d_mlp=128, act="linear", mlp_layers=(1,), identity=identity, frozen=frozen)
        return Spec(
            task=task(loss="all"), model=model, optimiser=SGD(lr=0.2, momentum=0.9, weight_decay=1e-4), steps=3000 if full else 96,
            batch=512 if full else 64, snapshots=3, watch="bigrams", looks=150 if full else 24,
        )  # fmt: skip

    def general(layers: int) -> Spec:
        return Spec(
            task=task(loss="all"), model=ModelConfig(d_model=128, n_heads=4, n_layers=layers, d_mlp=512, norm="pre"),
            optimiser=Adam(lr=0.01, weight_decay=0.01, b2=0.99), steps=2000, batch=64, snapshots=3, watch="bigrams", looks=50,
        )  # fmt: skip

    specs = {
        ALL: simple(),
        NO_OUTPUT: simple({OUTPUT: 0.3}, shorter), ONLY_OUTPUT: simple({FIRST_KEYS: 0.3, SECOND_KEYS: 0.3}, shorter),
        NO_FIRST: simple({FIRST_KEYS: 0.3}, shorter), NO_SECOND: simple({SECOND_KEYS: 0.3}, shorter),
        RANDOM: simple(triggers="random"), BIGRAM: simple(outputs="bigram"), GLOBAL: with_memory(),
    }  # fmt: skip
    if full:
        specs |= {
            SHORT: simple({SECOND_KEYS: 0.1, FIRST_KEYS: 0.2}), LONG: simple({SECOND_KEYS: 0.3, FIRST_KEYS: 0.6}),
            RARE: simple(skip=5), ONE: general(1), TWO: general(2),
        }  # fmt: skip
    return {name: Setting(each, 16 if full else 8) for name, each in specs.items()}
