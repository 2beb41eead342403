"""HOW IT IS PLAYED: one offline page that runs trained models in the browser.

The page is the files of this folder as they are: `page.html` with `style.css` inside, each JavaScript module as a data
address in an import map (so there is no build step and no network), and the runs as JSON. Same runs, same bytes.
"""

import base64
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from mnemoscope.core.errors import UserError
from mnemoscope.explorer.pack import Piece, packed

__all__ = ["Piece", "packed", "page"]


def page(pieces: Sequence[dict[str, Any]], back: str = "") -> str:
    """The explorer for these packed runs; `back` is the address of the page that leads here, if there is one."""
    folder = resources.files(__name__)

    def text(name: str) -> str:
        return folder.joinpath(name).read_text(encoding="utf-8")

    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".js"))
    modules = {name: f"data:text/javascript;base64,{base64.b64encode(text(name).encode()).decode()}" for name in names}
    # "<" never appears inside a script element: nothing in a name can end it
    try:
        data = json.dumps({"runs": list(pieces)}, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    except ValueError:
        raise UserError("a run holds numbers that are not finite: there is nothing to explore") from None
    parts = {
        "__STYLE__": text("style.css"), "__MODULES__": json.dumps({"imports": modules}), "__DATA__": data,
        "__BACK__": f'<a href="{back}">Back to the overview</a>' if back else "",
    }  # fmt: skip
    whole = text("page.html")
    for name, part in parts.items():
        before, _, after = whole.partition(name)
        whole = f"{before}{part}{after}"
    return whole
