"""Which snapshots are kept, and in how few bits their weights are carried: neither changes what is
seen.
"""

import base64
import re
from importlib import resources

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemoscope.core.errors import UserError
from mnemoscope.explorer.choose_snapshots import choose_steps, list_candidates, sum_variation
from mnemoscope.explorer.train_shown import train_model
from mnemoscope.explorer.weight_bytes import decode_weights, encode_weights, round_block
from mnemoscope.explorer.weight_rounding import BITS, TOLERANCE, choose_bits
from mnemoscope.models import ModelConfig, bind, parameter_shapes
from mnemoscope.studies.study import Condition
from mnemoscope.tasks import Cycle
from mnemoscope.training.loop import fit
from mnemoscope.training.spec import Spec

TINY = Spec(task=Cycle(), model=ModelConfig(d_model=2, d_mlp=0), steps=40, batch=4)

# ---- which steps


def test_snapshots_are_dense_where_a_curve_moves():
    steps = np.arange(1001)
    rise = np.clip((steps - 400) / 20, 0, 1)  # from 400 to 420
    tremor = 0.1 * np.sin(steps)  # moves by far more, to and fro
    chosen = choose_steps(steps.tolist(), [rise + tremor], 30)
    assert len(chosen) == 30
    assert (chosen[0], chosen[-1]) == (0, 1000)
    # eight are log-spaced, one of them at the end
    assert sum(395 <= step <= 425 for step in chosen) >= 18
    # without anything that moves the longest stretches are halved
    flat = choose_steps(steps.tolist(), [np.ones(1001)], 30)
    assert max(np.diff(flat)) <= 1000 / 8
    assert choose_steps([0, 3, 5], [np.arange(3.0)], 30) == (0, 3, 5)


def test_every_curve_counts_alike_in_units_of_its_range():
    steps = np.arange(11)
    early = 1000.0 * (steps >= 2)
    late = 0.01 * (steps >= 8)
    moved = sum_variation([early, late], 11)
    # a curve is followed at 0.15 of its range: of each rise it goes 1 - 0.15
    np.testing.assert_allclose(moved, 0.85 * (steps >= 2) + 0.85 * (steps >= 8))


def test_candidates_are_all_steps_or_many():
    assert list_candidates(5) == (1, 2, 3, 4)
    many = list_candidates(8000)
    assert 200 < len(many) < 256
    assert max(np.diff(many)) <= 8000 / 127 + 1
    assert many[:3] == (1, 2, 3)


def test_a_spec_that_names_no_snapshots_is_what_it_was():
    assert "snapshot_at" not in TINY.canonical_json()
    named = TINY.model_copy(update={"snapshot_at": (3, 7)})
    assert named.snapshot_steps() == (0, 3, 7, 40)
    assert Spec.model_validate_json(named.canonical_json()) == named
    assert named.digest() != TINY.digest()
    assert named.compile_key() == TINY.compile_key()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"snapshot_at": (7, 3)}, r"steps must rise and lie below the last one, 40, got \(7, 3\)"),
        ({"snapshot_at": (3, 3)}, "steps must rise"),
        ({"snapshot_at": (40,)}, "below the last one, 40"),
        ({"snapshot_at": (3,), "snapshots": 9}, "and snapshots=9 how many times; allowed: one of"),
        ({"snapshot_at": (0,)}, "greater than or equal to 1, got 0"),
    ],
)
def test_snapshots_that_cannot_be_are_one_line(fields, message):
    with pytest.raises(UserError, match=message):
        Spec.model_validate(TINY.model_dump() | fields)


@pytest.fixture(scope="module")
def found():
    """A small model, trained for the explorer."""
    return train_model(Condition(TINY, 3))


def test_a_model_that_is_thinned_out_is_the_one_that_its_spec_trains(found):
    """Weights are the same to the bit whenever they are kept."""
    assert len(found.run.spec.snapshot_steps()) == 30
    again = fit(found.run.spec, range(3))
    for name, weights in again.snapshots.items():
        np.testing.assert_array_equal(found.run.snapshots[name], weights)
    ends = jax.device_get(found.run.losses[:, -1])
    # the last stretch begins where the last kept step or even stop before it stands
    begin = found.run.loss_steps[-2]
    kept = again.loss_steps > begin
    lengths = np.diff(again.loss_steps, prepend=0)[kept]
    expected = (again.losses[:, kept] * lengths).sum(axis=1) / lengths.sum()
    np.testing.assert_allclose(ends, expected, rtol=1e-5)


def test_the_best_and_the_worst_seed_go_along(found):
    run = found.run
    accuracy = run.accuracy().values
    assert accuracy[run.seeds.index(found.carried[0])] == accuracy.max()
    assert accuracy[run.seeds.index(found.carried[1])] == accuracy.min()


# ---- in how few bits


@pytest.fixture(scope="module")
def blocks():
    """Three snapshots of one seed and the end of another, of which one parameter never changes."""
    rng = np.random.default_rng(0)
    shapes = parameter_shapes(TINY.model, 3, 3)
    first = {
        name: rng.normal(size=(3, *shape)).astype(np.float32) for name, shape in shapes.items()
    }
    first["embed.W_E"][:] = first["embed.W_E"][:1]
    return [first, {name: -block[-1:] for name, block in first.items()}]


def unpack(packed):
    return decode_weights(packed, parameter_shapes(TINY.model, 3, 3), [3, 1])


def test_weights_come_back_as_they_were(blocks):
    packed = encode_weights(blocks)
    assert packed["constant"] == ["embed.W_E"]
    for found, expected in zip(unpack(packed), blocks, strict=True):
        for name, block in expected.items():
            np.testing.assert_array_equal(found[name], block)


def test_rounded_weights_are_off_by_half_a_step(blocks):
    bits = [[12, 20, 24], [16]]
    packed = encode_weights(blocks, bits)
    for found, expected, row_bits in zip(unpack(packed), blocks, bits, strict=True):
        for name, block in expected.items():
            changes = name not in packed["constant"]
            for row, n_bits in enumerate(row_bits if changes else [max(row_bits)]):
                step = np.ptp(block[: None if changes else 1]) / (2**24 - 1) * 2 ** (24 - n_bits)
                off = np.abs(found[name][row] - block[row]).max()
                # the highest number has no step above it, and floats an error of their own
                assert off <= 1.01 * step + 1e-6
    np.testing.assert_array_equal(
        unpack(encode_weights(blocks, [[16] * 3, [16]]))[0]["blocks.0.attn.W_Q"],
        round_block(blocks[0]["blocks.0.attn.W_Q"], 16),
    )


def test_what_does_not_fit_its_parameters_is_refused(blocks):
    packed = encode_weights(blocks)
    shapes = parameter_shapes(TINY.model, 3, 3)
    with pytest.raises(UserError, match=r"weights cannot be unpacked: \S+ is cut off"):
        decode_weights(packed, shapes, [4, 1])
    with pytest.raises(UserError, match="there are more of them than parameters"):
        decode_weights(packed, shapes, [3])
    for data in ("!", base64.b64encode(b"nothing").decode()):
        with pytest.raises(UserError, match="weights cannot be unpacked: "):
            decode_weights(packed | {"data": data}, shapes, [3, 1])


def test_so_few_bits_move_no_answer(blocks, monkeypatch):
    assert choose_bits(TINY.model, blocks, [[0, 1, 2]]) is None  # so few numbers: nothing is won
    monkeypatch.setattr("mnemoscope.explorer.weight_rounding.SMALL", 0)
    chosen = choose_bits(TINY.model, blocks, [[0, 1, 2], [1, 2]])
    assert chosen is not None
    assert [len(row) for row in chosen] == [3, 1]

    @jax.jit
    def ask(params):
        return jax.nn.softmax(bind(TINY.model, params)(jnp.array([0, 1, 2])))

    def off(bits):
        """How far the answers of each snapshot are off."""
        found = []
        for blocks_of_seed in blocks:
            rounded = {name: round_block(block, bits) for name, block in blocks_of_seed.items()}
            for row in range(len(rounded["embed.W_E"])):
                exact, now = (
                    ask({name: x[row] for name, x in each.items()})
                    for each in (blocks_of_seed, rounded)
                )
                found.append(float(np.abs(exact - now).max()))
        return np.array(found)

    flat = np.array([*chosen[0], *chosen[1]])
    for bits in BITS:
        assert (off(bits)[flat == bits] <= TOLERANCE).all()


def test_rounding_uses_half_of_what_the_page_calls_right():
    text = resources.files("mnemoscope.explorer").joinpath("static/parity.js").read_text()
    (tolerance,) = re.findall(r"const TOLERANCE = (\S+);", text)
    assert float(tolerance) / 2 == TOLERANCE
