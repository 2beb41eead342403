"""What somebody else brings: a folder with a study and a task of its own, and packages."""

import sys

import pytest

from mnemoscope.core import kinds, plugins

TASK = '''
"""A task of somebody's own."""
from typing import Literal

import jax
import jax.numpy as jnp

import mnemoscope as ms

LENGTH = 5


class Echo(ms.Task):
    """Say the token that stood `back` places ago."""

    kind: Literal["KIND"] = "KIND"
    back: int = 1

    @property
    def d_vocab(self):
        return 3

    @property
    def n_ctx(self):
        return LENGTH

    def sample(self, world, *, key):
        tokens = jax.random.randint(key, (LENGTH,), 0, 3)
        return ms.Example(tokens, jnp.roll(tokens, self.back), jnp.ones(LENGTH))
'''
STUDY = '''
"""A study of somebody's own."""
import mnemoscope as ms
from .echo_task import Echo
from .measures import last_losses

SPEC = ms.Spec(
    task=Echo(),
    model=ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0),
    steps=4,
    batch=2,
)


def build_conditions(scale):
    return {"echo": ms.Condition(SPEC, 8)}


def measure(evidence):
    losses = last_losses(evidence.run("echo"))
    return ms.Measurement({"loss": losses}, {"loss": losses})


STUDY = ms.Study(title="Does it echo?", conditions=build_conditions, explore=("echo",))
'''
MEASURES = '''
"""What measures it."""


def last_losses(run):
    return run.losses[:, -1]
'''
CLAIMS = """
[E1]
statement = "The loss is small."
published = "-"
stated = "2026-11-19"
measure = "study.measure"
needs = ["echo"]

[[E1.parts]]
name = "loss"
kind = "mean"
measures = "mean loss at the end"
holds = "(-inf, 100]"
fails = "(100, inf)"
"""


def write_study(folder, kind="echo-from-outside"):
    """A folder with a study and a task of its own."""
    folder.mkdir(parents=True)
    (folder / "claims.toml").write_text(CLAIMS)
    (folder / "study.py").write_text(STUDY)
    (folder / "measures.py").write_text(MEASURES)
    (folder / "echo_task.py").write_text(TASK.replace("KIND", kind))
    return folder


def announce(site, package, value="", files=None):
    """An installed package that announces itself by an entry point.

    `files` are its files by name; without any it has the study `echo`.
    """
    home = site / package
    home.mkdir(exist_ok=True)
    (home / "__init__.py").write_text("")
    for name, text in (files or {}).items():
        (home / name).write_text(text)
    if files is None:
        write_study(home / "echo", f"{package}/echo")
        (home / "echo" / "__init__.py").write_text("")
    about = site / f"{package}-1.0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[mnemoscope]\n{package} = {value or package}\n")
    return home


@pytest.fixture
def nothing_loaded(monkeypatch, tmp_path_factory):
    """What a test loads from outside goes when it ends."""
    known = {family: dict(there) for family, there in kinds._known.items()}
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.setattr(plugins, "_broken", {})
    yield
    place = str(tmp_path_factory.getbasetemp())
    for name, module in sys.modules.copy().items():
        places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
        if any(str(each).startswith(place) for each in places):
            del sys.modules[name]
    for family, there in known.items():
        kinds._known[family].clear()
        kinds._known[family].update(there)
