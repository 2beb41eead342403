"""A run as the explorer shows it: its name, what it is in a sentence, and which seeds go along."""

from dataclasses import dataclass
from typing import Any

from mnemoscope.models import Model, ModelConfig
from mnemoscope.models.consumer_support import as_transformer
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

# seeds of a run that go along with all snapshots: most of a page's bytes
CARRIED = 2


@dataclass(frozen=True)
class ExplorerRun:
    """A run for the explorer.

    Attributes:
        id: What addresses of the page call it: the start of its digest will do.
        name: What the page calls it.
        about: One sentence below the name.
        run: The run itself.
        carried: Seeds that go along with every snapshot; the others with their end alone.
    """

    id: str
    name: str
    about: str
    run: Run
    carried: tuple[int, ...]


def describe_run(run: Run, name: str, seeds: tuple[int, ...] = ()) -> ExplorerRun:
    """A run for the explorer, described by its Spec.

    Args:
        run: The run.
        name: What the page calls it.
        seeds: Those that are carried; none given means the first that finished.
    """
    finished = tuple(seed for seed in run.seeds if run.outcome(seed) == "finished")
    carried = seeds or finished[:CARRIED] or run.seeds[:1]
    return ExplorerRun(run.spec.digest(), name, describe_spec(run.spec), run, carried)


def resolve_config(config: Model) -> dict[str, Any]:
    """Every field with its value, those too that JSON leaves out at their default."""
    shown = [name for name in ModelConfig.model_fields if name not in ("kind", "init")]
    return {name: getattr(config, name) for name in shown}


def describe_spec(spec: Spec) -> str:
    """Model, task and training in a sentence.

    Args:
        spec: What is trained.
    """
    model = as_transformer(spec.model, "the explorer")
    parts = [
        f"d={model.d_model}",
        f"{model.n_heads} head{'s' * (model.n_heads > 1)}",
        f"{model.n_layers} layer{'s' * (model.n_layers > 1)}",
        f"feed-forward {model.d_mlp}" if model.d_mlp else "no feed-forward",
        f"norm {model.norm}",
        *_unusual_fields(model),
    ]
    fields = spec.task.model_dump(exclude_none=True, exclude={"kind", "corpus", "names"})
    task = ", ".join(f"{name} {value}" for name, value in fields.items())
    training = f"{spec.steps:,} steps of {spec.batch} sequences"
    if spec.precision != "default":
        training += f" in precision {spec.precision}"
    if spec.imported:
        training = "imported, not trained here"
    return f"{', '.join(parts)}; {spec.task.kind_name()}: {task}; {training}."


def _unusual_fields(model: ModelConfig) -> list[str]:
    """Kinds of layers that are not the default ones, by their fields."""
    told: list[str] = []
    for name, field in ModelConfig.model_fields.items():
        is_told = name in ModelConfig.sizes or name == "norm"
        value = getattr(model, name)
        if name in model.model_fields_set and value != field.default and not is_told:
            told.append(f"{name} {value}")
    return told
