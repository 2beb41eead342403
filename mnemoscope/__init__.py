"""Mnemoscope: grow memory in tiny transformers, look inside, test what papers say about it.

Names are loaded when first used, so that `import mnemoscope` and `mnemoscope --help` do not wait
for JAX. `__init__.pyi` says the same to type checkers; a test holds the two together.
"""

from importlib import import_module
from typing import Any

from mnemoscope.core.import_record import remember_imports

__version__ = "0.2.0.dev0"

remember_imports()  # before any other module of the package is loaded

# every public name, and the module that it is loaded from
_MODULE_OF = {
    "SGD": "mnemoscope.training.optimizers",
    "Adam": "mnemoscope.training.optimizers",
    "Bigrams": "mnemoscope.tasks",
    "Claim": "mnemoscope.verdicts.claim",
    "Condition": "mnemoscope.studies.study",
    "CrossEntropy": "mnemoscope.training.loss",
    "Cycle": "mnemoscope.tasks",
    "Edit": "mnemoscope.models",
    "Evidence": "mnemoscope.studies.evidence",
    "Example": "mnemoscope.tasks",
    "FactoredMatrix": "mnemoscope.models",
    "Facts": "mnemoscope.tasks",
    "Groups": "mnemoscope.studies.measurement",
    "HookedModel": "mnemoscope.models",
    "Hops": "mnemoscope.tasks",
    "InconclusiveError": "mnemoscope.studies.measurement",
    "Init": "mnemoscope.models",
    "LabelSmoothing": "mnemoscope.training.loss",
    "Layer": "mnemoscope.models",
    "Ledger": "mnemoscope.verdicts.ledger",
    "Loss": "mnemoscope.training.loss",
    "Measurement": "mnemoscope.studies.measurement",
    "Metric": "mnemoscope.training.metric",
    "Model": "mnemoscope.models",
    "ModelConfig": "mnemoscope.models",
    "Optimizer": "mnemoscope.training.optimizers",
    "Permutation": "mnemoscope.tasks",
    "Run": "mnemoscope.training.run",
    "Schedule": "mnemoscope.training.schedules",
    "Spec": "mnemoscope.training.spec",
    "Stack": "mnemoscope.models",
    "Store": "mnemoscope.store",
    "Study": "mnemoscope.studies.study",
    "Task": "mnemoscope.tasks",
    "TokenArray": "mnemoscope.tasks",
    "Transformer": "mnemoscope.models",
    "UserError": "mnemoscope.core.errors",
    "add_to_site": "mnemoscope.models",
    "bind": "mnemoscope.models",
    "draw_by_shape": "mnemoscope.models",
    "explore": "mnemoscope.explorer.inline",
    "fit": "mnemoscope.execution.fit",
    "force_pattern": "mnemoscope.models",
    "geomspace": "mnemoscope.sweeps.swept_axes",
    "knock_out_head": "mnemoscope.models",
    "knock_out_mlp": "mnemoscope.models",
    "load_model": "mnemoscope.exchange.model_files",
    "load_or_train": "mnemoscope.execution.local",
    "measure": "mnemoscope.execution.measure",
    "metric": "mnemoscope.training.metric",
    "patch_site": "mnemoscope.models",
    "patch_sites": "mnemoscope.models",
    "read_corpus": "mnemoscope.tasks",
    "replace_site": "mnemoscope.models",
    "run_study": "mnemoscope.report.watched",
    "sweep": "mnemoscope.sweeps.from_python",
    "testing": "mnemoscope",
}
# what 0.1 called some of them
_RENAMED = {"patch": "patch_site", "replace": "replace_site"}

__all__ = list(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll] (it reads the stub)


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        home = _MODULE_OF[name]
        if home == __name__:  # a package of ours is a public name itself
            return import_module(f"{home}.{name}")
        return getattr(import_module(home), name)
    allowed = ", ".join(_MODULE_OF)
    meant = f" (did you mean {_RENAMED[name]!r}?)" if name in _RENAMED else ""
    raise AttributeError(f"module 'mnemoscope' has no attribute {name!r}{meant}; it has: {allowed}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
