"""Where numbers go while they are made: TensorBoard or Weights & Biases, if asked for. A sink has
`init`, `log` and `finish`.

    mnemoscope run STUDY --follow tensorboard     tensorboard --logdir mnemoscope-store/follow
    mnemoscope run STUDY --follow wandb           kept on this disk; WANDB_MODE=online sends it,
                                                  with your account

Each training is a run of its own: at every stop the mean, lowest and highest loss over seeds, how
many seeds have diverged, and the mean over seeds of each metric. Anything with these three
methods is a sink; from Python hand it to `run_study` or `fit`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from mnemoscope.core.errors import UserError

KINDS = ("tensorboard", "wandb")


@runtime_checkable
class Sink(Protocol):
    """Takes the numbers of one training after another."""

    def init(self, name: str, config: Mapping[str, Any]) -> None:
        """A training begins; `config` is its Spec."""
        ...

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Numbers of this step of it."""
        ...

    def finish(self) -> None:
        """The training has ended, well or not."""
        ...


def _own(folder: Path) -> Path:
    """This folder, unless it is a link: a store that was handed over could have one that leads
    anywhere."""
    if folder.is_symlink():
        raise UserError(
            f"{str(folder)!r} is a link; numbers are written into the store itself, "
            "so take the link away"
        )
    return folder


class TensorBoard:
    """Event files in a folder, one folder in it for each training."""

    def __init__(self, folder: Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise UserError(
                "following in TensorBoard needs tensorboardX: pip install 'mnemoscope[tensorboard]'"
            ) from error
        self.make = SummaryWriter
        self.folder = _own(folder)

    def init(self, name: str, config: Mapping[str, Any]) -> None:
        folder = _own(self.folder / name.replace("/", "_"))
        self.writer = self.make(str(folder))
        lines = [f"- {key}: {value}" for key, value in config.items()]
        self.writer.add_text("Spec", "\n".join(lines))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def finish(self) -> None:
        self.writer.close()


class WeightsAndBiases:
    """A run of the project "mnemoscope", offline unless WANDB_MODE says otherwise, so that nobody
    needs an account."""

    def __init__(self, folder: Path):
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise UserError(
                "following in Weights & Biases needs wandb: pip install 'mnemoscope[wandb]'"
            ) from error
        self.wandb = wandb
        self.folder = _own(folder)

    def init(self, name: str, config: Mapping[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        _own(self.folder / "wandb")
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self.run = self.wandb.init(
            project="mnemoscope",
            name=name,
            config=dict(config),
            dir=str(self.folder),
            mode=mode,
            reinit="finish_previous",
        )

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=step)

    def finish(self) -> None:
        self.run.finish()


def sink_of(kind: str, folder: Path) -> Sink:
    """The sink of this name, writing under the folder."""
    if kind not in KINDS:
        allowed = ", ".join(KINDS)
        raise UserError(f"unknown place to follow a run in: {kind!r}; allowed: {allowed}")
    return TensorBoard(folder) if kind == "tensorboard" else WeightsAndBiases(folder)
