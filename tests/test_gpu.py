"""What only a GPU can show. `make test-gpu` runs it, or `python tests/test_gpu.py`,
which needs neither pytest nor anything else of the tests; without a GPU it says so in one line.

Each test writes down the figures that it judges, and `python tests/test_gpu.py` prints them.
"""

import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")

import jax
import jax.numpy as jnp
import numpy as np
from asking import Asking

from mnemoscope.execution import local, machine, retrain
from mnemoscope.models import ModelConfig, parameter_shapes
from mnemoscope.models.precision import lowered
from mnemoscope.models.rewrites import gpu_kernel
from mnemoscope.models.rewrites.choose import FUSED_ATTENTION, REWRITES
from mnemoscope.store import Store
from mnemoscope.tasks import Example, Permutation
from mnemoscope.training.loop import fit
from mnemoscope.training.loss import batch_loss
from mnemoscope.training.optimizers import Adam
from mnemoscope.training.spec import Spec

NO_GPU = (
    None
    if jax.default_backend() == "gpu"
    else f"no GPU here (JAX has {jax.default_backend()}): nothing was tested"
)
D_VOCAB, N_CTX, READ = 6, 9, (0, 2, 4, 6, 8)
KERNEL_TOLERANCE = (
    2e-5  # of the length of the gradient; both routes are float32, and TF32 would be off by 1e-3
)
GOLDEN_TOLERANCE = 2e-3  # of a loss: rounding grows along a training
FIGURES = {}  # of the test under way

try:
    import pytest
except ModuleNotFoundError:
    pass
else:
    pytestmark = [pytest.mark.gpu, pytest.mark.skipif(NO_GPU is not None, reason=str(NO_GPU))]


def test_the_kernel_has_the_loss_and_gradient_of_the_plain_pass():
    """Compiled by Triton, not interpreted; sizes that are padded and sizes that are not,
    with and without norms.
    """
    for d_model, n_heads, norm, n_layers in (
        (16, 2, "none", 1),
        (32, 2, "none", 1),
        (24, 3, "post", 1),
        (8, 1, "pre", 2),
        (gpu_kernel.WIDEST_HEAD, 1, "none", 1),
    ):
        config = ModelConfig(
            d_model=d_model, n_heads=n_heads, norm=norm, n_layers=n_layers, d_mlp=8
        )
        rng = np.random.default_rng(0)
        params = {
            name: jnp.asarray(float(name.endswith(".w")) + 0.3 * rng.normal(size=size), jnp.float32)
            for name, size in parameter_shapes(config, D_VOCAB, N_CTX).items()
        }
        tokens, targets = jnp.asarray(rng.integers(0, D_VOCAB, (2, 2 * gpu_kernel.CHUNK, N_CTX)))
        batch = Example(tokens, targets, jnp.ones(tokens.shape))
        task = Asking(read=READ)
        rewrite = next(each for each in REWRITES if each.name == "pair tables")
        assert gpu_kernel.applies(D_VOCAB * N_CTX, config.d_head, len(tokens))

        def route(p, plain, config=config, batch=batch, task=task, rewrite=rewrite):
            with jax.default_matmul_precision("highest"):
                return jax.value_and_grad(
                    lambda p: batch_loss(task, config, p, batch, None if plain else rewrite)
                )(p)

        lowered = jax.jit(lambda p, route=route: route(p, False)).lower(params)
        assert "triton" in lowered.as_text().lower(), "the kernel is in the program"
        quick, plain = (
            lowered.compile()(params),
            jax.jit(lambda p, route=route: route(p, True))(params),
        )
        size = np.sqrt(sum(float(jnp.square(g).sum()) for g in plain[1].values()))
        apart = np.sqrt(
            sum(float(jnp.square(quick[1][name] - g).sum()) for name, g in plain[1].items())
        )
        off = abs(float(quick[0] - plain[0])) / float(plain[0])
        FIGURES[f"d={d_model} h={n_heads} {norm} l={n_layers}"] = (
            f"loss {off:.1e}, gradient {apart / size:.1e}"
        )
        assert off < KERNEL_TOLERANCE, FIGURES
        assert apart / size < KERNEL_TOLERANCE, FIGURES


def test_fused_attention_has_the_loss_and_gradient_of_the_plain_pass():
    """Compiled by Triton, in one block of rows and in several, with padding, rotary positions and
    groups of heads; in bfloat16 near float32.
    """
    fused = FUSED_ATTENTION
    rotary = {"positions": "rotary", "norm_type": "rms", "n_key_value_heads": 2}
    for length, fields in (
        (64, {"d_model": 64, "n_heads": 4}),
        (256, {"d_model": 128, "n_heads": 4}),
        (256, {"d_model": 128, "n_heads": 4} | rotary),
        (100, {"d_model": 48, "n_heads": 2, "causal": False}),
        (256, {"d_model": 128, "n_heads": 1}),
    ):
        config = ModelConfig(**{"n_layers": 2, "d_mlp": 64, "norm": "pre"} | fields)
        task = Asking(tokens=65, length=length)
        assert fused.why_not(config, task) is None
        rng = np.random.default_rng(0)
        params = {
            name: jnp.asarray(float(name.endswith(".w")) + 0.1 * rng.normal(size=size), jnp.float32)
            for name, size in parameter_shapes(config, 65, length).items()
        }
        tokens, targets = jnp.asarray(rng.integers(0, 65, (2, 8, length)))
        batch = Example(tokens, targets, jnp.ones(tokens.shape))

        def route(p, rewrite, precision, config=config, batch=batch, task=task):
            with jax.default_matmul_precision("highest"):
                return jax.value_and_grad(
                    lambda p: batch_loss(task, config, lowered(p, precision), batch, rewrite)
                )(p)

        lowering = jax.jit(lambda p, route=route: route(p, fused, "default")).lower(params)
        assert "triton" in lowering.as_text().lower(), "the kernel is in the program"
        plain = jax.jit(lambda p, route=route: route(p, None, "default"))(params)
        low = jax.jit(lambda p, route=route: route(p, fused, "bfloat16"))(params)
        size = np.sqrt(sum(float(jnp.square(g).sum()) for g in plain[1].values()))
        for name, found, most in (
            ("float32", lowering.compile()(params), KERNEL_TOLERANCE),
            ("bfloat16", low, 0.1),
        ):
            apart = np.sqrt(
                sum(float(jnp.square(found[1][key] - g).sum()) for key, g in plain[1].items())
            )
            off = abs(float(found[0] - plain[0])) / float(plain[0])
            FIGURES[f"{length} {fields} {name}"] = f"loss {off:.1e}, gradient {apart / size:.1e}"
            assert off < most, FIGURES
            assert apart / size < most, FIGURES


def test_training_has_the_golden_losses_of_a_cpu():
    """The losses of tests/golden/losses.json, step by step, for every case and seed."""
    import goldens

    wanted = goldens.read("losses.json")
    assert set(wanted) == set(goldens.CASES)
    for name, spec in goldens.CASES.items():
        expected = np.array(wanted[name])
        found = fit(spec, goldens.SEEDS).losses
        assert found.shape == expected.shape, (name, found.shape, expected.shape)
        FIGURES[name] = float(np.abs(found - expected).max() / np.abs(expected).max())
    assert max(FIGURES[name] for name in wanted) < GOLDEN_TOLERANCE, FIGURES


def test_a_seed_trains_the_same_alone_and_among_1024():
    """Lanes do not touch each other; a large eps,
    since where a gradient is mere rounding Adam would follow its sign.
    """
    spec = Spec(
        task=Permutation(),
        model=ModelConfig(d_model=16, n_heads=2, d_mlp=32),
        optimizer=Adam(eps=1e-3),
        steps=200,
        batch=128,
        snapshots=2,
    )
    together, apart = fit(spec, range(1024)), {}
    assert together.finished.all()
    for seed in (0, 511, 1023):
        alone, beside = fit(spec, [seed]).model(seed).params, together.model(seed).params
        apart[seed] = max(
            float(np.abs(np.asarray(alone[n]) - np.asarray(beside[n])).max()) for n in alone
        )
    other = together.model(1).params["embed.W_E"] - together.model(0).params["embed.W_E"]
    FIGURES.update({"alone and beside": apart, "two seeds": float(np.abs(np.asarray(other)).max())})
    assert FIGURES["two seeds"] > 0.1, FIGURES
    assert max(apart.values()) < 1e-3, FIGURES


def test_what_is_drawn_is_what_a_cpu_draws():
    """Every integer of tests/golden/draws.json."""
    import goldens

    assert goldens.draws() == goldens.read("draws.json")


def test_a_stored_seed_is_trained_again_and_compared():
    """On a GPU the start and the first loss to a tolerance;
    a program that is compiled anew may sum in another order.
    """
    spec = Spec(
        task=Permutation(), model=ModelConfig(d_model=16, n_heads=2, d_mlp=32), steps=200, batch=128
    )
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        run = local.load_or_train(store, spec, range(64))
        (row,) = store.rows()
        found = retrain.retrain_seed(store, row, 17)
        FIGURES.update({"origin": str(run.origins[0]), "again": found.words})
        assert run.origins[0].device == jax.devices()[0].device_kind
        assert found.same


# trains 1,024 seeds with what memory the environment leaves it, and prints its notices
CUT = """
import sys, tempfile, warnings
from pathlib import Path
sys.path[:0] = sys.argv[1:]
from mnemoscope.core.errors import Notice
from mnemoscope.execution.local import load_or_train
from mnemoscope.models import ModelConfig
from mnemoscope.store import Store
from mnemoscope.tasks import Permutation
from mnemoscope.training.spec import Spec
model = ModelConfig(d_model=32, n_heads=2, d_mlp=64)
spec = Spec(task=Permutation(), model=model, steps=2, batch=128, snapshots=1)
with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    run = load_or_train(Store(Path(folder)), spec, range(1024))
for each in said:
    if issubclass(each.category, Notice):
        print("NOTICE", each.message)
print("FINISHED", int(run.finished.sum()), len(set(run.seeds)))
"""

# trains 256 seeds in a process of its own, and prints what that was said to need and what it took
PEAK = """
import sys
sys.path[:0] = sys.argv[1:]
import jax
from mnemoscope.models import ModelConfig
from mnemoscope.tasks import Bigrams
from mnemoscope.training.compilation import programs
from mnemoscope.training.loop import fit
from mnemoscope.training.spec import Spec
model = ModelConfig(d_model=64, n_heads=4, n_layers=2, d_mlp=256, norm="pre")
spec = Spec(task=Bigrams(length=64, loss="all"), model=model, steps=2, batch=64, snapshots=1)
said = programs(spec, 256).bytes_on_device
fit(spec, range(256))
print("BYTES", said, jax.devices()[0].memory_stats()["peak_bytes_in_use"])
"""


def test_a_block_that_does_not_fit_is_cut():
    """A block of which the GPU says itself that it is too large is cut in two until it fits,
    and every seed is stored once.
    """
    # so little of a GPU that 1,024 seeds of a small model do not fit; another process, since
    # memory is shared out when a process starts
    limited = os.environ | {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.003"}
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-c", CUT, *here], capture_output=True, text=True, env=limited
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    cut = [line for line in lines if line.startswith("NOTICE") and "do not fit" in line]
    FIGURES["notices"] = cut
    assert cut, "nothing was cut"
    expected = "NOTICE 1024 seeds at once do not fit the device's memory; going on with "
    assert cut[0].startswith(expected), cut
    assert lines[-1] == "FINISHED 1024 1024"


def test_the_estimate_of_memory_is_what_the_gpu_then_holds():
    """The compiler's count, by which blocks are cut, beside the most that was in use."""
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    alone = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *here], capture_output=True, text=True, env=alone
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said, held = map(int, done.stdout.splitlines()[-1].split()[1:])
    FIGURES["estimate and peak, GB"] = (round(said / 1e9, 3), round(held / 1e9, 3))
    assert 0.7 < said / held < 1.4, FIGURES


def main():
    """Run every test, print its figures, and say with the exit code whether all held."""
    if NO_GPU:
        print(NO_GPU)
        return 0
    print(f"{machine.hardware()}, jax {jax.__version__}", flush=True)
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            began, how = time.monotonic(), "passed"
            FIGURES.clear()
            try:
                test()
            except Exception:
                traceback.print_exc()
                failed, how = failed + 1, "FAILED"
            print(f"{how} {name} ({time.monotonic() - began:.0f} s)", flush=True)
            for figure, value in FIGURES.items():
                print(f"    {figure}: {value}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
