"""The command `walk`: every number of a forward pass, of the ABC model or of any stored run."""

from pathlib import Path
from typing import TYPE_CHECKING

from mnemoscope.cli.console import make_console, write_text
from mnemoscope.cli.options import DEFAULT_STORE, StoreDir, open_store_there
from mnemoscope.core.errors import UserError, unknown

if TYPE_CHECKING:
    from rich.status import Status

    from mnemoscope.store import Store
    from mnemoscope.training.run import Run

MAX_DIGITS = 12
NAME = "the ABC model"


def command(
    prompt: str | None = None,
    run: str = "",
    seed: int | None = None,
    snapshot: int = -1,
    format: str = "text",
    out: Path | None = None,
    digits: int = 4,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Follow one prompt through a model, number by number; without --run, the two-dimensional ABC
    model.

    Args:
        prompt: The tokens, such as CAB; with spaces between them where a token is longer than one
            character.
        run: A stored run of any study, by its name (remember/repeat/d32h2) or how its id starts
            ('mnemoscope runs' lists them).
        seed: Which of the run's seeds. Nothing: its first.
        snapshot: Which stored moment of the training, counted from 0; -1 is the end.
        format: text for the terminal, md, html (one page), latex (compiles as it is), pdf (needs a
            TeX engine).
        out: The file to write; without it text, md and latex are printed, and html and pdf go to
            walk.html and walk.pdf.
        digits: Digits after the point.
    """
    if not 0 <= digits <= MAX_DIGITS:
        raise UserError(f"--digits must be 0 to {MAX_DIGITS}, got {digits}")
    from mnemoscope.report.walk import FORMATS

    if format not in (*FORMATS, "pdf"):
        raise UserError(unknown("format", format, (*FORMATS, "pdf")))
    from mnemoscope.report.walk.choose_prompt import choose_model, describe_walk, walk_prompt
    from mnemoscope.store import Store
    from mnemoscope.studies.run_names import find_run

    opened = open_store_there(store) if run else Store(store)
    with make_console(stderr=True).status("looking for the model") as status:
        if run:
            row = find_run(opened, run)
            chosen = choose_model(opened.load(row), f"run {row.id}", seed, snapshot)
        else:
            chosen = choose_model(_train_abc(opened, status), NAME, seed, snapshot)
        found = walk_prompt(chosen, prompt)
    render = FORMATS["latex" if format == "pdf" else format]
    _write(render(found, describe_walk(chosen, found), digits), format, out)


def _train_abc(store: "Store", status: "Status") -> "Run":
    """The run of the ABC model: the stored one, or else trained now."""
    from mnemoscope.execution.local import load_or_train
    from mnemoscope.execution.machine import compile_cache_dir, use_all_devices
    from mnemoscope.studies.library.walk.conditions import ABC, build_conditions

    def tell(done: int, total: int) -> None:
        status.update(f"training {NAME}: {done / total:.0%}")

    use_all_devices(compile_cache_dir())
    condition = build_conditions("quick")[ABC]
    return load_or_train(store, condition.spec, range(condition.seeds), tell)


def _write(document: str, format: str, out: Path | None) -> None:
    """Print a walk, or write it to a file: that of `--out`, or walk.html and walk.pdf."""
    if out is None and format in ("html", "pdf"):
        out = Path(f"walk.{format}")
    if out is None:
        print(document)
    elif format == "pdf":
        from mnemoscope.report.walk import write_pdf

        write_pdf(document, out)
        print(f"Written: {out}")
    else:
        write_text(out, document)
