"""HOW IT IS PLAYED: one offline page that runs trained models in the browser.

The page is the files of `static/` as they are: `page.html` with the style sheets inside, each
JavaScript module as a data address in an import map (so there is no build step and no network), and
the runs as JSON. Same runs, same bytes.
"""

import base64
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from mnemoscope.core.errors import UserError
from mnemoscope.core.theme import css_variables
from mnemoscope.explorer import bigrams_adapter as bigrams_adapter
from mnemoscope.explorer import hops_adapter as hops_adapter
from mnemoscope.explorer.explorer_run import ExplorerRun, describe_run
from mnemoscope.explorer.pack import pack_run
from mnemoscope.explorer.task_adapters import Adapter, register_adapter
from mnemoscope.explorer.tours import Tour

__all__ = [
    "Adapter",
    "ExplorerRun",
    "Tour",
    "build_page",
    "describe_run",
    "pack_run",
    "register_adapter",
]

# in this order: what comes later may change what came before
STYLE_SHEETS = (
    "theme.css",
    "controls.css",
    "figures.css",
    "flow.css",
    "walk.css",
    "train.css",
    "media.css",
)


def build_page(packed_runs: Sequence[dict[str, Any]], back: str = "") -> str:
    """Build the explorer as one HTML file.

    Args:
        packed_runs: What the page shows, each as `pack_run` gives it.
        back: The address of the page that leads here; empty where there is none.

    Raises:
        UserError: A run holds numbers that are not finite.
    """
    parts = {
        "__STYLE__": "\n".join([css_variables(), *map(_read_static, STYLE_SHEETS)]),
        "__MODULES__": json.dumps({"imports": _encode_modules()}),
        "__DATA__": _encode_runs(packed_runs),
        "__BACK__": f'<a href="{back}">Back to the overview</a>' if back else "",
    }
    page = _read_static("page.html")
    for placeholder, part in parts.items():
        before, _, after = page.partition(placeholder)
        page = f"{before}{part}{after}"
    return page


def _read_static(name: str) -> str:
    """Read one of the browser's files."""
    return resources.files(__name__).joinpath("static", name).read_text(encoding="utf-8")


def _encode_modules() -> dict[str, str]:
    """Encode every JavaScript module as the data address that its name stands for."""
    folder = resources.files(__name__).joinpath("static")
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".js"))
    encoded = {name: base64.b64encode(_read_static(name).encode()).decode() for name in names}
    return {name: f"data:text/javascript;base64,{text}" for name, text in encoded.items()}


def _encode_runs(packed_runs: Sequence[dict[str, Any]]) -> str:
    """Encode runs as JSON that can stand inside a script element."""
    try:
        text = json.dumps({"runs": list(packed_runs)}, separators=(",", ":"), allow_nan=False)
    except ValueError:
        message = "a run holds numbers that are not finite: there is nothing to explore"
        raise UserError(message) from None
    # without "<" nothing in a name can end the element
    return text.replace("<", "\\u003c")
