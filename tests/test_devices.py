"""All cores train by default: JAX is told of them before it computes,
unless the user has said how many there should be; and where that comes too late, a notice says so.
"""

import json
import os
import subprocess
import sys

import pytest

# as if there were three cores, on any machine
CHILD = """
import json, os, sys, warnings
os.sched_getaffinity = lambda pid: {0, 1, 2}
import jax
exec(sys.argv[1])
import mnemoscope as ms
from mnemoscope.core.devices import notice_if_one_core_works
found = []
with warnings.catch_warnings(record=True) as notices:
    warnings.simplefilter("always")
    exec(sys.argv[2])
print(json.dumps([jax.device_count(), [str(each.message) for each in notices], found]))
"""
LOOK = "ms.fit; notice_if_one_core_works()"
TRAIN = """
model = ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0)
spec = ms.Spec(task=ms.Cycle(), model=model, steps=8, batch=4)
found = [ms.fit(spec, seeds).losses.tolist() for seeds in (3, range(3))]
"""


def child(before="", then=LOOK, **environment):
    """Number of devices, notices and losses of a process
    that does something before Mnemoscope is imported.
    """
    result = subprocess.run(
        [sys.executable, "-c", CHILD, before, then],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def test_all_cores_train_by_default_and_a_notice_says_once_where_they_do_not():
    devices, notices, losses = child(then=TRAIN)
    assert devices == 3
    assert notices == []
    assert losses[0] == losses[1]
    devices, notices, losses_of_one_core = child("jax.numpy.zeros(1)", TRAIN)
    assert devices == 1
    assert notices == [
        "JAX computed before mnemoscope.training was imported, "
        "so all seeds train on one of 3 cores; "
        "import it first, or begin with jax.config.update('jax_num_cpu_devices', 3)"
    ]
    assert losses_of_one_core == losses, "a seed's bits depend on the number of devices"


def test_one_seed_needs_one_core():
    train_one = TRAIN.replace("(3, range(3))", "(1, [2])")
    assert child("jax.numpy.zeros(1)", train_one)[:2] == [1, []]


USE = "from mnemoscope.execution.machine import use_all_devices; use_all_devices({})"


@pytest.mark.parametrize(
    ("before", "environment", "devices"),
    [
        ("jax.config.update('jax_num_cpu_devices', 1); jax.numpy.zeros(1)", {}, 1),
        ("", {"JAX_NUM_CPU_DEVICES": "2"}, 2),
        ("", {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}, 1),
        (USE.format(""), {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}, 2),
        (USE.format("at_most=2"), {}, 2),
    ],
    ids=["by configuration", "by environment", "by flag", "by flag, in a command", "at most"],
)
def test_what_was_said_of_devices_holds(before, environment, devices):
    assert child(before, **environment) == [devices, [], []]
