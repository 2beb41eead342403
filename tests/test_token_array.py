"""Token ids of one's own: named by content, shared by all seeds, trained on as any task."""

import json
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.core.errors import UserError
from mnemoscope.core.seeds import device_mesh
from mnemoscope.execution.local import load_or_train
from mnemoscope.tasks import TokenArray, data_files
from mnemoscope.training import compilation
from mnemoscope.training.loop import fit
from mnemoscope.training.metric import metric
from mnemoscope.training.shared_arrays import place_arrays
from mnemoscope.training.spec import Spec
from mnemoscope.training.step import numbers_of, start, train_step
from mnemoscope.training.worlds import seed_keys

STREAM = np.random.default_rng(0).integers(0, 5, 40_001).astype(np.uint16)
ROWS = STREAM[:40_000].reshape(-1, 5)
TINY = ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0)


def spec_of(task, **fields):
    return Spec(task=task, model=TINY, steps=3, batch=2, **fields)


@pytest.fixture
def file(tmp_path):
    """The stream as a file that this process has not seen."""
    np.save(tmp_path / "tokens.npy", STREAM)
    data_files._places.clear()
    return tmp_path / "tokens.npy"


# ---- what it is


def test_it_is_named_by_its_content_and_not_by_its_path(file):
    task = TokenArray(file, length=4)
    assert TokenArray(str(file), length=4) == TokenArray(STREAM, length=4) == task
    np.save(file.with_name("other.npy"), np.asfortranarray(ROWS))
    assert TokenArray(file.with_name("other.npy")) == TokenArray(ROWS), "in any order of the file"
    fields = json.loads(task.canonical_json())
    assert (fields["shape"], fields["dtype"], fields["vocabulary"]) == ([40_001], "uint16", 5)
    assert str(file) not in task.canonical_json()
    assert task.digest() != TokenArray(STREAM.astype(np.int32), length=4).digest()
    assert task.digest() != TokenArray(STREAM[::-1].copy(), length=4).digest()
    assert (task.d_vocab, task.n_ctx, task.n_sequences) == (5, 4, 40_000 // 4)
    assert (TokenArray(ROWS).n_ctx, TokenArray(ROWS).n_sequences) == (4, 8_000)


def test_windows_and_rows_are_what_the_array_holds():
    world = ()
    window = TokenArray(STREAM, length=4).example(world, jnp.array(7))
    np.testing.assert_array_equal(window.tokens, STREAM[28:32])
    np.testing.assert_array_equal(window.targets, STREAM[29:33])
    row = TokenArray(ROWS, padding=int(ROWS[7, 2])).example(world, jnp.array(7))
    np.testing.assert_array_equal(row.tokens, ROWS[7, :-1])
    np.testing.assert_array_equal(row.weights, ROWS[7, 1:] != ROWS[7, 2])
    last = TokenArray(STREAM, length=4).example(world, jnp.array(9_999))
    assert last.targets[-1] == STREAM[-1], "every token but the first is once a target"


def test_what_is_held_out_is_never_trained_on():
    ids = np.arange(30)[:, None].repeat(3, axis=1)
    task = TokenArray(ids, held_out=0.2)
    draw = jax.jit(jax.vmap(lambda key: task.sample((), key=key).tokens[0]))
    drawn = set(draw(jax.random.split(jax.random.key(0), 1000)).tolist())
    evaluated = {int(task.example((), jnp.array(i)).tokens[0]) for i in range(task.n_examples)}
    assert (len(drawn), len(evaluated)) == (24, 6)
    assert drawn | evaluated == set(range(30))
    others = TokenArray(ids, held_out=0.2, split_seed=1).order[24:]
    assert set(others.tolist()) != evaluated, "another split"
    assert TokenArray(ids).n_examples == 30


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TokenArray(), r"needs token ids: a .npy file or an array"),
        (
            lambda: data_files.place_of({1: 2}),
            r"a NumPy array or the path of a .npy file, got \{1: 2\}",
        ),
        (lambda: TokenArray("nowhere.npy"), r"nowhere.npy' \(there is no such file\)"),
        (lambda: TokenArray(STREAM), "length is missing: how many tokens of this stream of 40,001"),
        (lambda: TokenArray(ROWS, length=3), "length=3 goes with one long stream; these are rows"),
        (lambda: TokenArray(ROWS / 2), r"token ids are whole numbers.*float64\[8000,5\]"),
        (lambda: TokenArray(ROWS, vocabulary=4), "ids go from 0 to 4; allowed: from 0 to 3"),
        (lambda: TokenArray(ROWS - 1.0 > 0), r"whole numbers.*bool"),
        (lambda: TokenArray(-ROWS.astype(int)), "ids go from -4 to 0; allowed: from 0"),
        (lambda: TokenArray(ROWS[:1], held_out=0.5), "1 sequences of 4 tokens, of which 0 are"),
        (lambda: TokenArray(ROWS, sha256="0" * 64), "sha256='000.*' is not that of these token"),
        (lambda: TokenArray(ROWS, lenght=3), r"unknown key .*lenght.*did you mean 'length'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(make, words):
    with pytest.raises(UserError, match=words) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_a_pickle_is_not_opened(tmp_path):
    for name, array in {"objects": np.array([{}, {}], object), "text": "no array"}.items():
        path = tmp_path / f"{name}.npy"
        np.save(path, array, allow_pickle=True)
        with pytest.raises(UserError, match=r"token ids"):
            TokenArray(path)
    (tmp_path / "other.npy").write_bytes(b"\x80\x04 a pickle")
    with pytest.raises(UserError, match=r"cannot read .*allowed: what numpy.save wrote"):
        TokenArray(tmp_path / "other.npy")


# ---- trained on


def size_of_program(compiled):
    """The bytes of a compiled program, all its constants included."""
    (module,) = compiled.runtime_executable().hlo_modules()
    return len(module.as_serialized_hlo_module_proto())


def test_two_seeds_share_one_copy_and_the_program_has_none():
    task = TokenArray(np.tile(STREAM, 50), length=4)
    placed = place_arrays(task, device_mesh(2))["ids"]
    assert placed.sharding.is_fully_replicated
    assert placed.shape == task.shape, "no seed axis"
    assert placed.dtype == np.uint16, "as it is in the file"
    sizes = {}
    for n_seeds in (2, 8):
        compiled = compilation.programs(spec_of(task), n_seeds).advance
        assert placed.nbytes <= compiled.memory_analysis().argument_size_in_bytes
        assert size_of_program(compiled) < placed.nbytes, "the program holds none of it"
        sizes[n_seeds] = compilation.programs(spec_of(task), n_seeds).bytes_on_device
    assert sizes[8] - sizes[2] < placed.nbytes, "six more seeds have no copy more"


def test_it_trains_to_the_bits_of_a_route_by_hand():
    task = TokenArray(STREAM, length=4, held_out=0.1)
    spec = spec_of(task)
    run = fit(spec, [0, 1])

    @jax.jit
    def by_hand(seed):
        state = start(spec, seed)
        for step in range(spec.steps):
            data_key = seed_keys(seed)[2]
            state = train_step(spec, (), data_key, jnp.array(step), state, numbers_of(spec))
        return state.loss_sum / spec.steps

    for row, seed in enumerate(run.seeds):
        np.testing.assert_allclose(run.losses[row].mean(), by_hand(seed), rtol=1e-6)
    key = jax.random.split(jax.random.fold_in(seed_keys(0)[2], 0), spec.batch)[1]
    place = jax.random.randint(key, (), 0, 9_000)
    drawn = task.sample((), key=key)
    begin = 4 * task.order[int(place)]
    np.testing.assert_array_equal(drawn.tokens, STREAM[begin : begin + 4])


class Sieve(ms.Task):
    """A task of somebody's own with a table that all seeds share and a world of each."""

    kind: Literal["sieve"] = "sieve"

    @property
    def d_vocab(self):
        return 3

    @property
    def n_ctx(self):
        return 2

    def load_arrays(self):
        return {"table": np.arange(1_000_000, dtype=np.int32) % 3}

    def world(self, *, key):
        return jax.random.choice(key, self.arrays["table"])

    def sample(self, world, *, key):
        at = jax.random.randint(key, (), 0, 29_990)
        tokens = jax.lax.dynamic_slice_in_dim(self.arrays["table"], at, 3)
        return ms.Example(tokens[:-1], (tokens[1:] + world) % 3, jnp.ones(2))


@metric
def share_of_zeros(task, model, world):
    return (task.arrays["table"] == 0).mean() + 0 * model(jnp.zeros(2, int)).sum()


def test_a_task_of_ones_own_shares_arrays_in_the_same_way():
    spec = spec_of(Sieve(), metrics=share_of_zeros)
    run = fit(spec, 2)
    np.testing.assert_allclose(run.metrics["share_of_zeros"], 333_334 / 1_000_000, rtol=1e-6)
    assert run.worlds().shape == (2,)
    compiled = compilation.programs(spec, 2).advance
    assert size_of_program(compiled) < spec.task.load_arrays()["table"].nbytes


# ---- found again


def test_a_file_that_changed_says_so_and_its_run_can_still_be_shown(file, store):
    spec = spec_of(TokenArray(file, length=4))
    run = load_or_train(store, spec, [0])
    changed = STREAM.copy()
    changed[17] += 1
    np.save(file, changed)
    stored = store.load(store.rows()[0])
    assert stored.spec == spec
    np.testing.assert_array_equal(stored.losses, run.losses)
    assert stored.model(0)([1, 2]).shape == (2, 5)
    assert stored.worlds() == ()
    with pytest.raises(UserError, match=r"tokens.npy' was changed: it was .* and is .*; allowed"):
        load_or_train(store, spec, [1])
    file.unlink()
    with pytest.raises(UserError, match=r"cannot read .*tokens.npy' \(there is no such file\)"):
        load_or_train(store, spec, [1])
    assert load_or_train(store, spec, [0]).seeds == (0,), "what is stored needs no file"


def test_a_new_process_is_told_where_the_data_is(file, store, monkeypatch):
    text = spec_of(TokenArray(file, length=4)).canonical_json()
    data_files._places.clear()
    spec = Spec.model_validate_json(text)
    with pytest.raises(
        UserError, match=r"the data .{8} \(uint16\[40001\]\) is not known here; say"
    ):
        fit(spec, 1)
    np.save(file.with_name("decoy.npy"), STREAM[::-1])
    monkeypatch.setenv("MNEMOSCOPE_DATA", str(file.parent))
    assert fit(spec, 1).seeds == (0,)
    assert spec.task.files() == {spec.task.sha256: str(file)}


def test_an_array_that_was_changed_in_place_is_noticed():
    mine = STREAM.copy()
    spec = spec_of(TokenArray(mine, length=4))
    mine[0] += 1
    with pytest.raises(UserError, match="the array in memory was changed"):
        fit(spec, 1)
