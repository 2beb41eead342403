"""Training in the page, by its own code under Node, against JAX: draws, gradients, steps, skills,
and the file that a visitor takes home."""

import json
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from page_code import decode, needs_node, run_page_code
from safetensors.numpy import load, save

from mnemoscope.core.errors import UserError
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.exchange.imported import keep
from mnemoscope.exchange.run_files import is_run_file, read_run_file
from mnemoscope.explorer import describe_run
from mnemoscope.explorer.explorer_run import resolve_config
from mnemoscope.explorer.train_here import Recipes, pack_recipes, pack_training, why_not_here
from mnemoscope.models import Init, ModelConfig
from mnemoscope.probes.skills import both_skills
from mnemoscope.store import Store
from mnemoscope.tasks import Bigrams, Cycle, Example, Permutation
from mnemoscope.theory.gradients import uniform_text
from mnemoscope.training.loop import fit, stop_steps
from mnemoscope.training.loss import LabelSmoothing, batch_loss
from mnemoscope.training.optimizers import SGD, Adam
from mnemoscope.training.schedules import Linear, WarmupStableDecay, find_schedule
from mnemoscope.training.spec import Spec
from mnemoscope.training.step import draw
from mnemoscope.training.worlds import seed_keys

pytestmark = needs_node

SEED = 3


def setup_of(spec):
    """What the page's trainer takes."""
    task = spec.task
    shapes = spec.model.parameter_shapes(task.d_vocab, task.n_ctx)
    return {
        "spec": spec.model_dump(mode="json"),
        "config": resolve_config(spec.model),
        "parameters": [[name, list(shape)] for name, shape in shapes.items()],
        "token_names": list(task.token_names),
        "n_ctx": task.n_ctx,
    }


# ---- draws


@pytest.mark.parametrize(
    "task",
    [
        Permutation(
            n_symbols=6,
            repeat=0.4,
            repeat_of="any",
            x_order="fixed",
            split_seed=7,
            loss="all",
        ),
        Cycle(n_symbols=5, length=4),
    ],
    ids=["permutation", "cycle"],
)
def test_worlds_and_batches_are_those_of_python(task):
    spec = Spec(task=task, model=ModelConfig(d_model=2, n_heads=1, d_mlp=0), batch=40)

    @jax.jit
    def drawn():
        for_world, _, for_data = seed_keys(SEED)
        world = task.world(key=for_world)
        return world, draw(spec, world, for_data, jnp.array(11)).tokens

    with fixed_numerics():
        world, tokens = drawn()
    script = """
        const trainer = code.createTrainer(given.setup, given.seed);
        for (let step = 0; step <= 11; step++) trainer.advance();
        const tokens = Array.from(trainer.tokens);
        return { world: code.drawWorld(given.setup.spec, given.seed), tokens };
    """
    given = {"setup": setup_of(spec), "seed": SEED}
    found = run_page_code("trainer.js", ["createTrainer", "drawWorld"], script, given)
    assert found["tokens"] == np.asarray(tokens).ravel().tolist()
    exported = (
        {name: np.asarray(x).tolist() for name, x in world._asdict().items()} if world else None
    )
    assert found["world"] == exported


def test_normal_numbers_reach_into_the_tail():
    """The inverse of the error function has two formulas; one in forty draws takes the second."""
    n = 4000
    with fixed_numerics():
        expected = np.asarray(jax.jit(lambda: jax.random.normal(jax.random.key(SEED), (n,)))())
    script = """
        const key = code.seedKey(given.seed);
        return Array.from({ length: given.n }, (_, i) => code.normalAt(key, i));
    """
    found = run_page_code("threefry.js", ["seedKey", "normalAt"], script, {"seed": SEED, "n": n})
    assert np.abs(expected).max() > 3.3
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)


# ---- gradients

SHAPES = {
    "two heads": (
        Permutation(n_symbols=3, repeat=0.3),
        ModelConfig(d_model=6, n_heads=2, d_mlp=9),
    ),
    "pre, tied, two layers": (
        Cycle(n_symbols=5, length=4),
        ModelConfig(
            d_model=5,
            n_heads=2,
            n_layers=2,
            d_mlp=7,
            d_head=3,
            norm="pre",
            tied=True,
            bias=False,
            act="linear",
            attn_layers=(1,),
            norm_eps=0.1,
        ),
    ),
    "post, rms, no residual": (
        Permutation(n_symbols=3, loss="all"),
        ModelConfig(
            d_model=4,
            n_heads=1,
            n_layers=2,
            d_mlp=8,
            norm="post",
            norm_type="rms",
            positions="none",
            attn_residual=False,
            unembed_bias=False,
            mlp_layers=(0,),
        ),
    ),
}
BATCH = 6


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_are_those_of_jax(name):
    """In float64 on both sides: what is compared are formulas, in every parameter."""
    task, model = SHAPES[name]
    rng = np.random.default_rng(0)
    shapes = model.parameter_shapes(task.d_vocab, task.n_ctx)
    read = list(task.loss_positions)
    tokens = rng.integers(task.d_vocab, size=(BATCH, task.n_ctx + 1))
    weights = np.zeros((BATCH, task.n_ctx))
    weights[:, read] = 1
    batch = Example(*map(jnp.array, (tokens[:, :-1], tokens[:, 1:], weights)))
    params = {each: rng.normal(size=shape) for each, shape in shapes.items()}
    with jax.enable_x64(True):
        of_params = jax.value_and_grad(lambda p: batch_loss(task, model, p, batch, None))
        loss, expected = jax.jit(of_params)({each: jnp.array(x) for each, x in params.items()})
    given = {
        "config": resolve_config(model),
        "parameters": [[each, list(shape)] for each, shape in shapes.items()],
        "vector": np.concatenate([params[each].ravel() for each in shapes]).tolist(),
        "sizes": {"batch": BATCH, "length": task.n_ctx, "tokens": task.d_vocab},
        "read": read,
        "tokens": np.asarray(batch.tokens).ravel().tolist(),
        "targets": np.asarray(batch.targets)[:, read].ravel().tolist(),
    }
    script = """
        const { config, parameters, vector, sizes, read, tokens, targets } = given;
        const gradient = new Float64Array(vector.length);
        const params = code.nameParts(parameters, Float64Array.from(vector));
        const grads = code.nameParts(parameters, gradient);
        const network = code.createNetwork({ config, params, grads }, sizes, read);
        network.addGradient(tokens, targets);
        gradient.fill(0); // a second time: nothing is left over from the first
        return { loss: network.addGradient(tokens, targets), gradient: Array.from(gradient) };
    """
    found = run_page_code("network.js", ["createNetwork", "nameParts"], script, given, doubles=True)
    assert found["loss"] == pytest.approx(float(loss), rel=1e-12)
    start = 0
    for each, shape in shapes.items():
        end = start + int(np.prod(shape))
        ours = np.array(found["gradient"][start:end]).reshape(shape)
        size = np.abs(expected[each]).max()
        np.testing.assert_allclose(ours, expected[each], rtol=0, atol=1e-10 * max(size, 1))
        start = end
    assert start == len(found["gradient"])
    moved = [each for each in shapes if np.abs(expected[each]).max() > 1e-6]
    assert {each.split(".")[-1] for each in moved} >= {"W_E", "W_V", "W_O", "W_in", "W_out"}


# ---- steps

STEPS = 50
TRAININGS = {
    "walk": Spec(
        task=Cycle(),
        model=ModelConfig(d_model=2, n_heads=1, d_mlp=0, unembed_bias=False),
        optimizer=Adam(lr=0.01),
        batch=16,
        steps=STEPS,
    ),
    "four symbols": Spec(
        task=Permutation(n_symbols=4, repeat=0.3),
        model=ModelConfig(d_model=32, n_heads=1, d_mlp=64),
        optimizer=Adam(lr=0.01, schedule="cosine", warmup=10, clip=0.5, weight_decay=0.01, b2=0.99),
        batch=64,
        steps=STEPS,
    ),
}
TRAIN = """
    const trainer = code.createTrainer(given.setup, given.seed);
    const start = Array.from(trainer.vector);
    const losses = Array.from({ length: given.steps }, () => trainer.advance());
    const end = Array.from(trainer.vector);
    trainer.vector.set(given.end);
    return { start, losses, end, skills: trainer.measureSkills() };
"""


@pytest.fixture(scope="module", params=TRAININGS)
def trained(request):
    """A training in Python, and the same one in the page's code."""
    spec = TRAININGS[request.param]
    run = fit(spec, [SEED])
    names = spec.model.parameter_shapes(spec.task.d_vocab, spec.task.n_ctx)
    start, end = (
        np.concatenate([run.snapshots[name][0, at].ravel() for name in names]) for at in (0, -1)
    )
    given = {"setup": setup_of(spec), "seed": SEED, "steps": STEPS, "end": end.tolist()}
    return run, start, end, run_page_code("trainer.js", ["createTrainer"], TRAIN, given)


def test_fifty_steps_have_the_losses_of_jax(trained):
    """From the same start on the same batches, in float32."""
    run, start, _, found = trained
    np.testing.assert_allclose(found["start"], start, rtol=2e-6, atol=1e-7)
    assert run.loss_steps.tolist() == list(range(1, STEPS + 1))
    np.testing.assert_allclose(found["losses"], run.losses[0], atol=1e-4)
    assert run.losses[0, 0] - run.losses[0, -1] > 0.1, "it learned something"


def test_skills_are_those_of_python(trained):
    run, _, _, found = trained
    model = run.model(SEED)
    if isinstance(run.spec.task, Cycle):
        sequences = run.spec.task.sequences()
        said = jax.jit(jax.vmap(model))(sequences[:, :-1]).argmax(axis=-1)
        expected = {"accuracy": float(np.mean(said == sequences[:, 1:]))}
    else:
        world = run.world(SEED)
        skills = jax.jit(lambda: both_skills(run.spec.task, model, world))()
        expected = {name: float(value) for name, value in skills.items()}
    assert found["skills"] == pytest.approx(expected, abs=1e-6)


def test_rates_and_stops_are_those_of_python():
    schedules = ["constant", "linear", "cosine", Linear(end=0.2), WarmupStableDecay(decay=0.5)]
    optimizers = [Adam(lr=0.02, schedule=each, warmup=3) for each in schedules]
    asked = [0, 1, 3, 7, 9]
    expected = [
        [
            0.02 * min(step / 3, 1) * float(find_schedule(each.schedule).share(step, 10))
            for step in asked
        ]
        for each in optimizers
    ]
    given = {"optimizers": [each.model_dump(mode="json") for each in optimizers], "asked": asked}
    script = """
        const { optimizers, asked } = given;
        return optimizers.map((each) => asked.map((step) => code.rateAt(each, step, 10)));
    """
    found = run_page_code("adam.js", ["rateAt"], script, given)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)

    lengths = [2, 3, 40, 64, 65, 1000, 3000, 4000, 39062]
    specs = [Spec(task=Cycle(), steps=steps, snapshots=40) for steps in lengths]
    script = """
        return given.map((steps) => {
            const snapshots = code.listSnapshots(steps, 40);
            return [snapshots, code.listStops(steps, snapshots)];
        });
    """
    found = run_page_code("train_stops.js", ["listSnapshots", "listStops"], script, lengths)
    for spec, (snapshots, stops) in zip(specs, found, strict=True):
        assert snapshots == list(spec.snapshot_steps())
        assert stops == list(stop_steps(spec, False).stops)


# ---- what is refused, and what goes along


class Own(ModelConfig):
    """Computed as a transformer is, and perhaps drawn in another way."""

    kind: Literal["drawn-otherwise"] = "drawn-otherwise"
    computed_as: ClassVar[str] = "transformer"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model": Own()}, "model 'drawn-otherwise' (allowed: 'transformer')"),
        ({"model": ModelConfig(act="gelu")}, "act='gelu' (allowed: 'relu', 'linear')"),
        ({"model": ModelConfig(attention="linear")}, "attention='linear' (allowed: 'softmax')"),
        (
            {"model": ModelConfig(frozen=("embed.W_E",))},
            "parameters that are frozen (allowed: none)",
        ),
        (
            {"model": ModelConfig(init=Init(embeddings="unit"))},
            "an init of its own (allowed: as parameters are drawn)",
        ),
        (
            {"task": Bigrams(corpus=uniform_text(5), n_triggers=1, length=8)},
            "task 'bigrams' (allowed: 'cycle', 'permutation')",
        ),
        ({"task": Permutation(n_symbols=7)}, "n_symbols=7 (allowed: up to 6)"),
        ({"task": Permutation(fixed_set=9)}, "fixed_set=9 (allowed: 0)"),
        ({"optimizer": SGD()}, "optimizer 'sgd' (allowed: 'adam')"),
        ({"loss": LabelSmoothing()}, "loss 'label-smoothing' (allowed: 'cross-entropy')"),
        ({"precision": "bfloat16"}, "precision 'bfloat16' (allowed: 'default', 'highest')"),
        ({"imported": "0" * 16}, "a model that was imported, with no training to repeat"),
    ],
)
def test_what_the_page_cannot_train_is_one_line(changed, told):
    spec = Spec(task=Cycle()).model_copy(update=changed)
    assert why_not_here(spec) == told
    assert why_not_here(Spec(task=Permutation(), model=ModelConfig(norm="pre"))) is None


def test_losses_are_compared_with_chance_and_the_floor():
    spec = Spec(task=Permutation(n_symbols=4))
    found = pack_training(spec, SEED)
    # 24 mappings, of which 5 are held out; five tokens
    assert found == {
        "chance": pytest.approx(np.log(5)),
        "floor": pytest.approx(np.log(24 - 5) / 4),
        "training": {"why_not": None},
    }
    assert pack_training(Spec(task=Cycle()))["floor"] == 0
    text = Bigrams(corpus=uniform_text(5), n_triggers=1, length=8)
    assert pack_training(Spec(task=text))["floor"] is None


def test_recipes_are_runs_without_weights():
    (recipe,) = pack_recipes(Permutation())
    assert recipe["name"] == "four symbols"
    assert recipe["training"] == {"why_not": None}
    assert [len(preset["tokens"]) for preset in recipe["presets"]] == [7, 7]
    assert pack_recipes(Cycle()) == []
    with pytest.raises(UserError, match=r"unknown key of Spec 'step' .did you mean 'steps'"):
        Recipes.model_validate(
            {"task": {}, "recipes": [{"name": "x", "about": "", "spec": {"task": {}, "step": 3}}]}
        )


def test_a_seed_that_diverged_is_counted_and_not_opened():
    """And of a training that was stopped there is what all seeds came to."""
    script = """
        const vector = new Float32Array(84);
        const snapshot = (step) => ({ step, vector, skills: { accuracy: 1 } });
        const seed = (number, finite, count) => ({
            seed: number,
            step: 9,
            finite,
            losses: [[1, 0.5], [9, number === 7 ? NaN : 0.25]],
            snapshots: [0, 1, 4, 9].slice(0, count).map(snapshot),
        });
        const seeds = [seed(7, 3, 4), seed(8, 9, 3)];
        const session = { setup: given, seeds, snapshots: [0, 1, 4, 9, 20] };
        const { loadModel, ...run } = code.buildTrainedRun(session, 2);
        const lost = { ...session, seeds: seeds.slice(0, 1) };
        return { run, can: [session, lost].map(code.canBeOpened) };
    """
    names = ["buildTrainedRun", "canBeOpened"]
    setup = {**setup_of(TRAININGS["walk"]), "name": "abc", "about": "It says the next."}
    found = run_page_code("trained_run.js", names, script, setup)
    run = found["run"]
    assert run["steps"] == [0, 1, 4]
    assert (run["seeds"], run["opened"]) == ([7, 8], [8])
    assert run["outcomes"] == {"accuracy": [None, 1], "loss": [0.5, 0.5]}
    assert (run["loss_steps"], run["losses"]) == ([1], [[0.5]])
    assert run["curves"] == {"accuracy": [[1, 1, 1]]}
    assert run["about"].startswith(
        "Trained in this page: 50 steps at rate 0.01. Stopped at step 4."
    )
    assert found["can"] == [True, False]


# ---- the file

FILE = """
    const { setup, seeds } = given;
    const trainers = seeds.map((seed) => code.createTrainer(setup, seed));
    const copy = (trainer) => ({ vector: trainer.vector.slice() });
    const told = trainers.map((trainer, i) => {
        const snapshots = [copy(trainer)];
        const losses = [1, 2, 3].map((step) => [step, trainer.advance()]);
        snapshots.push({ vector: trainer.vector.map((x) => x + 1) }, copy(trainer));
        return { seed: seeds[i], step: 3, finite: 3, losses, snapshots };
    });
    const session = { setup, seeds: told, snapshots: [0, 1, 3] };
    const bytes = code.buildRunFile(session).map(({ buffer, byteOffset, byteLength }) =>
        Buffer.from(buffer, byteOffset, byteLength));
    const losses = told.map((each) => each.losses.map(([, loss]) => loss));
    const ends = trainers.map(({ vector }) => Array.from(vector));
    return { file: Buffer.concat(bytes).toString("base64"), losses, ends };
"""


@pytest.fixture(scope="module")
def downloaded(tmp_path_factory):
    """What a visitor downloads, and the numbers that it should have."""
    spec = TRAININGS["walk"].model_copy(update={"steps": 3, "snapshots": 3})
    given = {"setup": setup_of(spec), "seeds": [4, 5]}
    names = ["buildRunFile", "createTrainer"]
    found = run_page_code("run_file.js trainer.js", names, FILE, given)
    path = tmp_path_factory.mktemp("page") / "trained-here-1.safetensors"
    path.write_bytes(decode(found["file"]))
    return spec, path, found


def test_what_is_downloaded_is_a_run_that_import_takes(downloaded, tmp_path):
    spec, path, found = downloaded
    assert is_run_file(path)
    run = read_run_file(path)
    assert run.seeds == (4, 5)
    assert run.spec.model_copy(update={"imported": None}) == spec
    np.testing.assert_allclose(run.losses, found["losses"], rtol=1e-6)
    assert run.finished.all()
    names = spec.model.parameter_shapes(spec.task.d_vocab, spec.task.n_ctx)
    assert run.spec.snapshot_steps() == (0, 1, 3)
    for at, added in ((-1, 0), (1, 1)):
        flat = [
            np.concatenate([run.snapshots[name][row, at].ravel() for name in names])
            for row in range(2)
        ]
        np.testing.assert_allclose(flat, np.array(found["ends"]) + added, atol=1e-6)
    store = Store(tmp_path)
    row = keep(store, run)
    stored = store.load(row)
    assert stored.spec.imported == run.spec.imported
    assert describe_run(stored, "x").about.endswith("imported, not trained here.")
    # no training asks for it, and none is joined with it
    assert store.blocks(spec, [4, 5])[1] == [4, 5]
    with pytest.raises(UserError, match="was imported, not trained"):
        fit(run.spec, [4])
    with pytest.raises(UserError, match=r"stored already with seed 4, as .*; nothing to do"):
        keep(store, run, advice="nothing to do")


def test_a_file_that_is_not_as_it_was_written_is_one_line(downloaded, tmp_path):
    _, path, _ = downloaded
    arrays = load(path.read_bytes())
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"]
    bad = tmp_path / "bad.safetensors"

    def refused(told, header=header, **changed):
        kept = {name: value for name, value in {**arrays, **changed}.items() if value is not None}
        bad.write_bytes(save(kept, header))
        assert is_run_file(bad)
        with pytest.raises(UserError, match=told) as caught:
            read_run_file(bad)
        assert "\n" not in str(caught.value)

    unmarked = json.loads(header["spec"])
    refused("its spec", {**header, "spec": "{"})
    refused("its spec", {**header, "spec": json.dumps({**unmarked, "step": 3})})
    refused("was imported", {**header, "spec": json.dumps({**unmarked, "imported": "0" * 16})})
    refused("seeds must be a list of whole numbers, got 'x'", {**header, "seeds": "x"})
    refused("seeds must follow each other", {**header, "seeds": "[4, 6]"})
    refused("arrays are not those of its Spec and seeds", {**header, "seeds": "[4]"})
    refused("it is no whole run", losses=None)
    embed = arrays["snapshots/embed.W_E"].copy()
    embed[0, 0, 0] = np.nan
    refused("of a seed that finished has numbers that are not", **{"snapshots/embed.W_E": embed})
    refused("loss_steps must rise to the last step, 3", loss_steps=np.array([1, 3, 3], np.int32))
    refused("good_steps must be numbers of steps up to 3", good_steps=np.array([4, 3], np.int32))
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(path.read_bytes()[:-4])
    assert not is_run_file(cut)  # and `load_model` says what it allows
    assert not is_run_file(tmp_path)
