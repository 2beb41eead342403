"""What anything public prints as fits a screen of 80 by 24, whatever it holds."""

import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gru import Gru
from planted import planted, untrained

import mnemoscope as ms
from mnemoscope.core.errors import short
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.plot_data import Grid
from mnemoscope.tasks import Corpus, Split, tiny_shakespeare
from mnemoscope.tasks.permutation import permutations
from mnemoscope.verdicts.ledger import Ledger

RESULTS = Path(__file__).parents[1] / "results" / "full"
PATTERNS = tuple(f"*.W_{letter}" for letter in "QKVO" * 50)
MODEL = ms.ModelConfig(
    frozen=PATTERNS,
    init=ms.Init(
        constant=tuple((name, 1.0) for name in PATTERNS),
        scale=tuple((name, 1.0) for name in PATTERNS),
    ),
    mlp_layers=tuple(range(200)),
    n_layers=200,
)
BIGRAMS = ms.Bigrams(corpus=tiny_shakespeare().model_copy(update={"name": "x" * 1000}))
SPEC = ms.Spec(task=BIGRAMS, model=MODEL, unfreeze_at=(("*.W_in", 5),) * 200)
HOPS = ms.Hops(n=64, k=16, schedule=tuple((i, (1.0,) * 5) for i in range(200)))
KEY = jax.random.key(0)


def trained():
    """A run of many seeds and snapshots."""
    spec = ms.Spec(task=ms.Cycle(), model=ms.ModelConfig(d_model=4, n_heads=1), snapshots=9)
    return planted(spec, 200, params=untrained(spec))


# the largest that each public class gets in practice, and larger
LARGE = {
    "SGD": ms.SGD,
    "Adam": ms.Adam,
    "Bigrams": lambda: BIGRAMS,
    "Cycle": ms.Cycle,
    "CrossEntropy": ms.CrossEntropy,
    "Edit": lambda: ms.knock_out_mlp(0),
    "Example": lambda: BIGRAMS.sample((), key=KEY),
    "Facts": ms.Facts,
    "HookedModel": lambda: ms.bind(Gru(), Gru().draw_parameters(4, 4, key=KEY)),
    "Init": lambda: MODEL.init,
    "Hops": lambda: HOPS,
    "LabelSmoothing": ms.LabelSmoothing,
    "ModelConfig": lambda: MODEL,
    "Permutation": ms.Permutation,
    "Run": trained,
    "Spec": lambda: SPEC,
    "Store": lambda: ms.Store("store"),
    "Transformer": lambda: trained().models(),
    "Stack": lambda: ms.Stack(trained().models()),
    "FactoredMatrix": lambda: ms.FactoredMatrix(jnp.zeros((999, 3)), jnp.zeros((3, 999))),
    "UserError": lambda: ms.UserError("what was wrong, what came, what is allowed"),
    # not public names themselves, but what these give
    "Split": lambda: ms.Permutation(n_symbols=7).world(key=KEY),
    "Sequences": lambda: ms.Permutation(n_symbols=4).sequences(permutations(4)),
    "FactWorld": lambda: ms.Facts(subjects=500).world(key=KEY),
    "HopWorld": lambda: HOPS.world(key=KEY),
    "Corpus": tiny_shakespeare,
    "Claim": lambda: find_study("remember").tests[-1].claim,
    "Study": lambda: find_study("birth"),
    "Condition": lambda: next(iter(find_study("birth").conditions("full").values())),
    "Ledger": lambda: Ledger.model_validate_json((RESULTS / "remember.json").read_text()),
    "Measurement": lambda: Measurement({"loss": np.zeros((999, 99))}),
    "Groups": lambda: ms.Groups(np.zeros((999, 99)), np.ones((999, 99))),
    "Evidence": lambda: ms.Evidence(
        "full", find_study("birth").conditions("full"), lambda name: trained()
    ),
    "InconclusiveError": lambda: ms.InconclusiveError("what cannot be measured here, and why"),
    "TokenArray": lambda: ms.TokenArray(np.zeros((999, 99), int)),
    "BySeed": lambda: trained().loss(sample=8),
    "Grid": lambda: Grid.of(range(99), range(99), np.zeros((99, 99))),
}


def test_every_public_class_is_here():
    public = {name for name in ms.__all__ if inspect.isclass(getattr(ms, name))}
    # of which there are only those of a kind: a Task is any of the tasks
    families = {"Layer", "Loss", "Metric", "Model", "Optimizer", "Schedule", "Task"}
    assert public - families <= set(LARGE)


@pytest.mark.parametrize("name", LARGE)
def test_it_fits_a_screen(name):
    thing = LARGE[name]()
    assert type(thing).__name__ == name
    for text in (repr(thing), str(thing)):
        lines = [-(-len(line) // 80) or 1 for line in text.splitlines()]
        assert sum(lines) <= 24, text
        assert " at 0x" not in text


def test_a_configuration_prints_as_it_is_written():
    spec = ms.Spec(task=ms.Cycle(length=5), model=ms.ModelConfig(frozen=("*.W_E",)))
    names = {name: getattr(ms, name) for name in ms.__all__}
    assert eval(repr(spec), names) == spec


def test_what_is_long_is_cut_and_counted():
    assert short(tuple(range(1000))) == f"{str(tuple(range(1000)))[:100]}.. (1,000 in all)"
    assert short(list(range(1000))).startswith("[0, 1, 2")
    assert short("x" * 1000) == f"'{'x' * 99}.."
    assert short((1, 2)) == "(1, 2)"


def test_an_array_is_its_numbers_or_its_type_and_shape():
    assert short(np.arange(4)) == "[0, 1, 2, 3]"
    assert short(np.arange(400, dtype=np.int8).reshape(4, 100)) == "int8[4,100]"
    assert short(jnp.zeros(())) == "0.0"
    assert short(KEY) == "key<fry>[]"
    seen = []
    jax.eval_shape(lambda x: seen.append(short(x)), jnp.zeros(3))
    assert seen == ["float32[3]"]


def test_a_world_is_named_with_its_parts():
    split = Split(train=jnp.zeros((9, 9), int), held_out=jnp.array([[0, 1]]))
    assert repr(split) == "Split(train=int32[9,9], held_out=[[0, 1]])"


def test_a_corpus_says_how_many_counts_it_has():
    counts = tuple((a, b, 1) for a in range(20) for b in range(20))
    corpus = Corpus(name="letters", characters="abcdefghijklmnopqrst", counts=counts)
    assert repr(corpus).endswith("(400 in all))")
    assert "name='letters'" in repr(corpus)
