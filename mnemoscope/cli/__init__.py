"""The command line: it parses, calls, and turns every expected failure into one line.

Exit codes: 0 done, 1 `compare` found other verdicts, 2 something asked for cannot be done, 130 interrupted. Finished work is
kept in every case.
"""

import io
import json
import shlex
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from mnemoscope.cli.exchange import export, import_
from mnemoscope.cli.options import DEFAULT_STORE, Scale, StoreDir
from mnemoscope.core.errors import Notice, UserError, unknown

if TYPE_CHECKING:
    from mnemoscope.store import Damage, Store

MOST_SEEDS = 1_000_000


def _open(folder: Path) -> "Store":
    from mnemoscope.store import Store

    return Store(folder)


def _console(stderr: bool = False) -> Any:
    from rich.console import Console

    # a log file has no width of its own; 160 columns keep a sentence together
    return Console(stderr=stderr, width=None if sys.stdout.isatty() else 160)


def list_(store: StoreDir = DEFAULT_STORE) -> None:
    """List studies and their claims, with the verdict of each that has been judged."""
    from rich.table import Table

    from mnemoscope.report.results import ledgers
    from mnemoscope.report.tables import VERDICT_STYLE
    from mnemoscope.studies.discover import STUDIES

    console = _console()
    for study in STUDIES.values():
        table = Table("claim", "quick", "full", "what is claimed", title=f"{study.name}: {study.title}",
                      title_justify="left", caption=f"source: {study.source}", caption_justify="left")  # fmt: skip
        books = ledgers(store, study.name)
        verdicts = {scale: {e.id: e.verdict for e in book.claims} for scale, book in books.items()}
        for test in study.tests:
            shown = [verdicts.get(scale, {}).get(test.claim.id, "-") for scale in ("quick", "full")]
            marked = [f"[{VERDICT_STYLE[v]}]{v}[/]" if v in VERDICT_STYLE else v for v in shown]
            table.add_row(test.claim.id, *marked, test.claim.statement)
        console.print(table)


def run(
    study: Annotated[str, tyro.conf.Positional],
    /,
    scale: Scale = "quick",
    seeds: int | None = None,
    claims: str = "",
    corpus: Path | None = None,
    model: Path | None = None,
    follow: Literal["tensorboard", "wandb"] | None = None,
    cluster: str | None = None,
    block_timeout: float | None = None,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Run a study: train what is missing, judge its claims, write the ledger.

    Finished trainings and verdicts are kept in the store and never repeated, so a run that was interrupted goes on
    where it stopped.

    Args:
        study: The study's name, or "all".
        scale: quick: minutes on a laptop. full: the source's own budget, for a GPU.
        seeds: Seeds for every setting, instead of the study's own numbers (fewer than 8 settle nothing).
        claims: Judge only these, separated by commas: R8,R13.
        corpus: A text file whose characters take the place of tiny Shakespeare's, for studies of text (birth).
        model: A GGUF file or a safetensors folder of the Llama or GPT-NeoX type, for studies of a language model (language).
        follow: Write losses and what is watched, while it trains, for TensorBoard or Weights & Biases (offline) into the
            folder "follow" of the store.
        cluster: The address of a Dask scheduler whose workers train, such as tcp://scheduler:8786 (docs/cluster.md).
        block_timeout: With --cluster: seconds in which a block makes no step before it is tried on another worker too (3600).
    """
    from mnemoscope.studies.discover import STUDIES, find_study, on_corpus, on_model

    chosen = list(STUDIES.values()) if study == "all" else [find_study(study)]
    picked = tuple(part.strip() for part in claims.split(",") if part.strip())
    if study == "all" and picked:
        raise UserError("--claims goes with one study; allowed: " + ", ".join(STUDIES))
    if corpus is not None:
        chosen = [on_corpus(each, corpus) for each in chosen]
    if model is not None:
        chosen = [on_model(each, model) for each in chosen]
    for each in chosen:
        each.pick(picked)
        each.settings(scale)
    if seeds is not None and not 1 <= seeds <= MOST_SEEDS:
        raise UserError(f"--seeds must be 1 to {MOST_SEEDS:,}, got {seeds}")
    if cluster is None and block_timeout is not None:
        raise UserError("--block-timeout goes with --cluster")
    if cluster is not None and follow:
        raise UserError(
            "--follow goes without --cluster: the numbers of a training stay with its worker until it is done"
        )
    kept = _open(store)

    from mnemoscope.execution.local import compiled, use_all_devices
    from mnemoscope.report.progress import Live
    from mnemoscope.report.tables import markdown, print_ledger
    from mnemoscope.studies.runner import run_study
    from mnemoscope.training.sinks import sink_of

    sink = sink_of(follow, kept.folder / "follow") if follow else None
    use_all_devices(cache=compiled())
    console = _console()
    # a name in another encoding than the system's cannot be written down as it is
    command = "mnemoscope " + shlex.join(sys.argv[1:]).encode(errors="backslashreplace").decode()
    for each in chosen:
        with Live(console, f"{each.name} ({scale})") as live:
            elsewhere = None
            if cluster is not None:
                from mnemoscope.execution.cluster import BLOCK_TIMEOUT, Cluster

                timeout = BLOCK_TIMEOUT if block_timeout is None else block_timeout
                elsewhere = Cluster(cluster, timeout, live.spread, live.say).train
            ledger = run_study(
                each, scale, kept, command, seeds=seeds, claims=picked, watcher=live, sink=sink, train_elsewhere=elsewhere
            )  # fmt: skip
        kept.write_text(f"ledger/{scale}/{each.name}.md", markdown(ledger))
        print_ledger(console, ledger)
        # `show` reads the study's own ledger, not that of another text or model
        hint = "" if corpus or model else f"; one claim: mnemoscope show {ledger.claims[0].id}"
        console.print(f"Written: {kept.folder / 'ledger' / scale / each.name}.json and .md{hint}", markup=False)


def ledger(
    study: Annotated[str, tyro.conf.Positional] = "all",
    /,
    scale: Scale = "quick",
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Print what has been found: the ledger of a study, or of all.

    Args:
        study: The study's name, or "all".
        scale: quick: your own runs. full: yours, or else the one that comes with Mnemoscope.
        json_: Print the ledger as data (one object for a study, a list for all).
    """
    from mnemoscope.report.results import ledger as read
    from mnemoscope.report.tables import print_ledger
    from mnemoscope.studies.discover import STUDIES, find_study

    names = list(STUDIES) if study == "all" else [find_study(study).name]
    found = {name: book for name in names if (book := read(store, name, scale))}
    if not found:
        raise UserError(f"no {scale} ledger of {', '.join(names)} in {str(store)!r}; make one with 'mnemoscope run "
                        f"{study} --scale {scale}'")  # fmt: skip
    if json_:
        data = [book.model_dump(mode="json") for book in found.values()]
        print(json.dumps(data if study == "all" else data[0], indent=1))
        return
    for book in found.values():
        print_ledger(_console(), book)


def compare(
    study: Annotated[str, tyro.conf.Positional] = "all",
    /,
    scale: Scale = "full",
    other: Path | None = None,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Put your own ledger beside another: does another machine or device come to the same verdicts? Exit code 1 if not.

    Args:
        study: The study's name, or "all" of which there are two ledgers.
        scale: The scale of both. full: yours, or else the one that comes with Mnemoscope.
        other: A folder with quick/STUDY.json or full/STUDY.json, such as another store's ledger/. Nothing: the results that
            come with Mnemoscope.
    """
    from mnemoscope.report.compare import pairs, print_pairs
    from mnemoscope.report.results import evidence_in, folder_of, ledger_in, published
    from mnemoscope.studies.discover import STUDIES, find_study

    beside = (other or published()) / scale
    names = list(STUDIES) if study == "all" else [find_study(study).name]
    own = {name: folder for name in names if (folder := folder_of(store, name, scale)) not in (None, beside)}
    both = {name: (folder, beside) for name, folder in own.items() if (beside / f"{name}.json").is_file()}
    if not both:
        raise UserError(
            f"no two {scale} ledgers of {study}: one in {str(store / 'ledger' / scale)!r} and one in {str(beside)!r}"
        )
    differ = False
    for name, folders in both.items():
        one, two = (ledger_in(folder, name, scale) for folder in folders)
        found = pairs(one, two, *(evidence_in(folder, name) for folder in folders))
        if not found:
            raise UserError(f"the two {scale} ledgers of {name} have no claim in common")
        print_pairs(_console(), one, two, found)
        differ |= not all(pair.same for pair in found)
    if differ:
        sys.exit(1)


def show(
    claim: Annotated[str, tyro.conf.Positional],
    /,
    scale: Scale | None = None,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Show one claim: criterion, value, interval, sentence, and every seed's outcome.

    Args:
        claim: The claim's id, such as R13.
        scale: quick or full; without it, every scale that has a verdict.
    """
    from mnemoscope.report.results import evidence, ledgers
    from mnemoscope.report.tables import print_claim
    from mnemoscope.studies.discover import find_claim

    study, name = find_claim(claim)
    shown = False
    for at, book in ledgers(store, study.name).items():
        entry = next((e for e in book.claims if e.id == name), None)
        if entry is None or scale not in (None, at):
            continue
        print_claim(_console(), book, entry, evidence(store, study.name, at).get(name, {}))
        shown = True
    if not shown:
        raise UserError(f"no verdict on {name} at the scale {scale or 'quick or full'}; make one with 'mnemoscope run "
                        f"{study.name} --claims {name} --scale {scale or 'quick'}'")  # fmt: skip


def runs(
    pattern: Annotated[str, tyro.conf.Positional] = "",
    /,
    delete: bool = False,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """List stored runs with their sizes; filter them; delete those that match.

    Args:
        pattern: What a run's id must start with, such as 3f2a or 3f2a90c1/0-7, or key=value that its Spec must hold,
            such as d_model=32. Nothing: all runs.
        delete: Delete every run that matches the pattern (which must then be given).
    """
    from rich.markup import escape
    from rich.table import Table

    kept = _open(store)
    found = [row for row in kept.rows() if _matches(row, pattern)]
    if delete:
        if not pattern or not found:
            ids = ", ".join(row.id for row in kept.rows()) or "none are stored"
            raise UserError(f"nothing to delete for {pattern!r}; runs: {ids}")
        for row in found:
            kept.delete(row)
        print(f"deleted {len(found)} runs, {sum(row.bytes for row in found) / 1e6:.1f} MB")
        return
    console = _console()
    size = sum(row.bytes for row in found) / 1e6
    table = Table(title=escape(f"{len(found)} runs, {size:.1f} MB in {kept.folder}"), title_justify="left")
    for name in ("run", "seeds", "MB", "made"):
        table.add_column(name, overflow="fold")
    wide = console.width >= 140
    for name in ("diverged", "seconds", "by", "what") if wide else ():
        table.add_column(name)
    for row in found:
        what, by = "; ".join(_described(row)), _maker(row)
        cells = [row.id, str(row.last - row.first + 1), f"{row.bytes / 1e6:.1f}", row.made[:10]]
        if wide:
            cells += [str(row.diverged), f"{row.seconds:.1f}", by, what]
        else:
            cells[0] += f"\n{what}; {row.seconds:.1f} s; {row.diverged} diverged; by {by}"
        table.add_row(*map(escape, cells))
    console.print(table)


def _maker(row: Any) -> str:
    """Which Mnemoscope trained a run."""
    if not row.trained_by:
        return "-" if '"imported"' in row.spec_json else "0.1"
    try:
        return row.origin.mnemoscope
    except ValueError:
        return "?"


def _described(row: Any) -> tuple[str, str, str]:
    """Model, task and training of a run in words; a Spec that nobody could train is not guessed at."""
    try:
        spec = json.loads(row.spec_json)
        model, task, optimiser = spec["model"], spec["task"], spec["optimiser"]
        made = f"{spec['steps']:,} x {spec['batch']}, lr {optimiser['lr']:g}" if "imported" not in spec else "imported"
        return (
            f"d{model['d_model']} h{model['n_heads']} L{model['n_layers']} {model['norm']}",
            " ".join([task.pop("kind"), *(f"{k}={v}" for k, v in task.items() if v is not None and k != "corpus")]),
            made,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return "?", "its Spec cannot be read", "see 'mnemoscope check'"


def _matches(row: Any, pattern: str) -> bool:
    if "=" not in pattern:
        return row.id.startswith(pattern)
    key, value = pattern.split("=", 1)
    try:
        spec = json.loads(row.spec_json)
    except (ValueError, RecursionError):
        spec = None
    if not isinstance(spec, dict):
        return False  # what cannot be read holds nothing
    flat = _flat(spec)
    if key not in flat:
        raise UserError(unknown("key of a Spec", key, flat))
    return str(flat[key]) == value


def walk(
    prompt: str | None = None,
    run: str = "",
    seed: int | None = None,
    snapshot: int = -1,
    format: str = "text",
    out: Path | None = None,
    digits: int = 4,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Follow one prompt through a model, number by number; without --run, the two-dimensional ABC model.

    Args:
        prompt: The tokens, such as CAB; with spaces between them where a token is longer than one character.
        run: A stored run of any study, by its id or how it starts ('mnemoscope runs' lists them).
        seed: Which of the run's seeds. Nothing: its first.
        snapshot: Which stored moment of the training, counted from 0; -1 is the end.
        format: text for the terminal, md, html (one page), latex (compiles as it is), pdf (needs a TeX engine).
        out: The file to write; without it text, md and latex are printed, and html and pdf go to walk.html and walk.pdf.
        digits: Digits after the point.
    """
    if not 0 <= digits <= 12:
        raise UserError(f"--digits must be 0 to 12, got {digits}")
    from mnemoscope.report.walk import FORMATS, write_pdf

    if format not in (*FORMATS, "pdf"):
        raise UserError(unknown("format", format, (*FORMATS, "pdf")))
    from mnemoscope.studies.library.walk.chosen import chosen, title, walked

    with _console(stderr=True).status("looking for the model") as status:

        def tell(done: int, total: int) -> None:
            status.update(f"training the ABC model: {done / total:.0%}")

        model = chosen(_open(store), run, seed, snapshot, tell)
        found = walked(model, prompt)
    document = FORMATS["latex" if format == "pdf" else format](found, title(model, found), digits)
    path = out or (Path(f"walk.{format}") if format in ("html", "pdf") else None)
    if path is None:
        print(document)
        return
    if format == "pdf":
        write_pdf(document, path)
        print(f"Written: {path}")
    else:
        _write(path, document)


def profile(
    study: Annotated[str, tyro.conf.Positional],
    /,
    setting: str = "",
    scale: Scale = "quick",
    seeds: int = 0,
    trace: Path | None = None,
) -> None:
    """Say where the time of a training step goes: drawing the batch, loss, gradient, optimiser.

    Args:
        study: The study whose training is timed.
        setting: One of the study's settings, such as repeat/d32h2. Nothing: its largest at this scale.
        scale: quick or full: decides the batch size and the settings.
        seeds: Seeds trained together. 0: one for each device, or the setting's own number on an accelerator.
        trace: Also write a trace of 20 steps into this folder, for Perfetto or TensorBoard.
    """
    from mnemoscope.studies.discover import find_study

    settings = find_study(study).settings(scale)
    if not settings:
        raise UserError(f"study {study!r} trains no transformer, so there is no step to profile")
    if setting and setting not in settings:
        raise UserError(unknown("setting", setting, settings))
    if not 0 <= seeds <= MOST_SEEDS:
        raise UserError(f"--seeds must be 1 to {MOST_SEEDS:,} (or 0 for the default), got {seeds}")

    from mnemoscope.execution.local import use_all_devices

    use_all_devices()
    import jax

    from mnemoscope.report.speed import print_profile
    from mnemoscope.training.profile import profile as measure
    from mnemoscope.training.profile import write_trace

    chosen = setting or max(settings, key=lambda name: settings[name].spec.model.d_model)
    spec = settings[chosen].spec
    on_cpu = jax.default_backend() == "cpu"
    number = seeds or (jax.device_count() if on_cpu else settings[chosen].seeds)
    console = _console()
    with console.status("compiling") as status:
        found = measure(spec, number, tell=status.update)
        if trace:
            status.update("tracing 20 steps")
            write_trace(spec, number, trace)
    print_profile(console, f"{study}, {chosen} ({scale})", found)
    if trace:
        console.print(f"Written: {trace} (open it at ui.perfetto.dev or with TensorBoard)", markup=False)


def site(out: Path = Path("mnemoscope-site"), open_: Annotated[bool, tyro.conf.arg(name="open")] = False,
         store: StoreDir = DEFAULT_STORE) -> None:  # fmt: skip
    """Write the site: the ledger, a page for each study, the walk and the explorer, to be opened from the disk.

    Nothing is trained: the pages show the ledgers and runs that there are, yours and the published ones.

    Args:
        out: The folder to write into.
        open_: Open it in the browser.
    """
    from mnemoscope.execution.local import compiled, use_all_devices
    from mnemoscope.report.site import write_site

    kept = _open(store)
    use_all_devices(cache=compiled())
    with _console(stderr=True).status("the overview") as status:
        written = write_site(out, kept, status.update)
    size = sum(path.stat().st_size for path in written)
    print(f"Written: {out / 'index.html'} and {len(written) - 1} more pages, {size / 1e6:.1f} MB")
    if open_:
        _browse(out / "index.html")


def explore(
    runs: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    /,
    seeds: str = "",
    out: Path = Path("explorer.html"),
    open_: Annotated[bool, tyro.conf.arg(name="open")] = True,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Build the explorer, one offline page, for stored runs, and open it.

    Args:
        runs: Ids of stored runs, or how they start ('mnemoscope runs' lists them). Nothing: the studies' quick runs.
        seeds: Which seeds go along with their whole training, separated by commas: 0,3,17; the others with its end.
            Nothing: the first two that finished.
        out: The file to write.
        open_: Open it in the browser.
    """
    from mnemoscope.execution.local import compiled, use_all_devices
    from mnemoscope.explorer import packed, page
    from mnemoscope.report.site import piece_of, pieces

    try:
        picked = tuple(int(part) for part in seeds.split(",") if part.strip())
    except ValueError:
        raise UserError(f"--seeds takes whole numbers separated by commas, got {seeds!r}") from None
    kept = _open(store)
    use_all_devices(cache=compiled())
    found = [piece_of(kept.load(row), row.id, picked) for row in map(kept.find, runs)] if runs else pieces(kept)
    if not found:
        raise UserError(f"no runs to explore in {str(store)!r}; make some with 'mnemoscope run remember'")
    with _console(stderr=True).status("packing") as status:
        parts = []
        for piece in found:
            status.update(f"measuring {piece.name}")
            parts.append(packed(piece, kept))
    _write(out, page(parts))
    if open_:
        _browse(out)


def figure(
    claim: Annotated[str, tyro.conf.Positional],
    /,
    out: Path | None = None,
    scale: Scale | None = None,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Draw one claim: every seed of it, and its curves, attention maps and grids where there are any, each into a file.

    Args:
        claim: The claim's id, such as R13.
        out: The file: .svg, .pdf or .png; further figures go beside it, as R13-curves.svg. Nothing: the claim's id as .svg.
        scale: quick or full; without it full where there is one.
    """
    from mnemoscope.report.figures import claim_figures, write_figure
    from mnemoscope.report.results import evidence, ledgers, pictures
    from mnemoscope.studies.about import panels
    from mnemoscope.studies.claims import Pictures
    from mnemoscope.studies.discover import find_claim

    study, name = find_claim(claim)
    books = {at: book for at, book in ledgers(store, study.name).items() if any(e.id == name for e in book.claims)}
    at = scale or ("full" if "full" in books else "quick")
    drawn = {}
    if at in books:
        by_seed = evidence(store, study.name, at).get(name, {})
        more = pictures(store, study.name, at).get(name, Pictures())
        drawn = claim_figures(name, panels(study.name).get(name, ()), by_seed, more)
    if not drawn:
        raise UserError(f"nothing to draw for {name} at the scale {at}; make it with 'mnemoscope run {study.name} --claims {name} "
                        f"--scale {at}'")  # fmt: skip
    first = out or Path(f"{name}.svg")
    for n, (kind, each) in enumerate(drawn.items()):
        path = first.with_stem(f"{first.stem}-{kind}") if n else first
        write_figure(each, path)
        print(f"Written: {path}")


def memories(
    action: Annotated[Literal["grid"], tyro.conf.Positional],
    /,
    d: int = 100,
    lr: float = 1.0,
    batch: int = 64,
    samples: int = 10_240,
    optimiser: Literal["sgd", "adam"] = "sgd",
    norm: bool = False,
    learned: bool = False,
    seeds: int = 10,
) -> None:
    """Ask for any cell of the grid of optimised memories: its mean error over seeds, with its interval.

    100 inputs with probabilities proportional to x^-2 and the answer x mod 5, random embeddings in d dimensions, one pass over
    the samples. Published, SGD at rate 1, batch 64, 10,240 samples: .0638, .0307, .0183 at d = 10, 100, 1000.

    Args:
        action: grid.
        d: Dimensions.
        lr: The rate; Adam's is divided by d, and its betas are zero.
        batch: Draws in a step.
        samples: Draws in all, a multiple of the batch.
        optimiser: sgd or adam.
        norm: Normalise what the matrix returns before it is read out.
        learned: Train the embeddings too.
        seeds: How many, from 42 on.
    """
    import numpy as np

    from mnemoscope.studies.library.memories.optimised import SEEDS, Cell, errors
    from mnemoscope.studies.statistics import mean_interval

    if not 1 <= seeds <= MOST_SEEDS:
        raise UserError(f"--seeds must be 1 to {MOST_SEEDS:,}, got {seeds}")
    cell = Cell(d=d, lr=lr, batch=batch, samples=samples, optimiser=optimiser, norm=norm, learned=learned)
    from mnemoscope.execution.local import use_all_devices

    use_all_devices()
    from mnemoscope.core.numerics import fixed_numerics

    chosen = tuple(SEEDS[0] + i for i in range(seeds))
    with fixed_numerics(), _console(stderr=True).status(f"{action}: {seeds} seeds, {samples // batch:,} steps"):
        found = errors(cell, chosen)
    finite = np.isfinite(found)
    lost = [seed for seed, fine in zip(chosen, finite, strict=True) if not fine]
    if len(lost) == seeds:
        raise UserError(f"all {seeds} seeds diverge at the rate {lr:g}; give a smaller --lr")
    mean, (low, high) = mean_interval(found[finite])
    print(f"error {mean:.4f} [{low:.4f}, {high:.4f}], mean and 95% interval over seeds {chosen[0]} to {chosen[-1]}")
    print("by seed: " + " ".join(f"{x:.4f}" for x in found))
    if lost:
        print(f"diverged and left out: {', '.join(map(str, lost))}")


def _write(path: Path, text: str) -> None:
    from mnemoscope.report.output import writing

    with writing(path):
        path.write_text(text, encoding="utf-8")
    print(f"Written: {path}")


def _browse(path: Path) -> None:
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        print(f"No browser was found; open {path.resolve()} in one.")


def _flat(spec: dict[str, Any]) -> dict[str, Any]:
    """A Spec's keys without their sections; `kind` alone is ambiguous and stays with its section."""
    flat: dict[str, Any] = {}
    for key, value in spec.items():
        flat |= (
            {k if k != "kind" else f"{key}.kind": v for k, v in value.items()}
            if isinstance(value, dict)
            else {key: value}
        )
    return flat


def check(repair: bool = False, retrain: int = 0, store: StoreDir = DEFAULT_STORE) -> None:
    """Verify every stored run, finding and ledger against its checksum, and say what is damaged.

    Args:
        repair: Train damaged runs again and then replace them; take out damaged findings and ledgers, which the next
            'mnemoscope run' makes again.
        retrain: Also train so many stored seeds again, chosen at random, and compare: to the bit with what the same kind of
            CPU trained; on other devices the start to 1e-5 and the first loss to 1e-3, since later numbers drift apart.
    """
    if retrain < 0:
        raise UserError(f"--retrain must be a number of seeds from 0 up, got {retrain}")
    kept = _open(store)
    found = kept.check()
    unreadable = [damage for damage in found if not damage.damaged]
    damaged = [damage for damage in found if damage.damaged]
    for damage in found:
        how = "damaged" if damage.damaged else "cannot be read:"
        print(str(UserError(f"{how} {damage.kind} {damage.name[:60]}: {damage.why}")))
    if not found:
        runs = len(kept.rows())
        print(f"nothing is damaged: {runs} runs and all findings and ledgers in {kept.folder} are as they were written")
    if damaged and not repair:
        raise UserError(
            f"{len(damaged)} damaged; 'mnemoscope check --repair' trains their runs again and takes the rest out"
        )
    if damaged:
        _repair(kept, damaged)
    if unreadable:
        raise UserError(
            f"{len(unreadable)} cannot be read, which does not make them damaged: no repair touches them; ask whoever owns "
            "the files, or look at the disk"
        )
    if retrain:
        _retrain(kept, retrain)


def _repair(kept: "Store", damaged: "list[Damage]") -> None:
    from mnemoscope.execution.local import compiled, train_again, use_all_devices
    from mnemoscope.training.spec import Spec

    use_all_devices(cache=compiled())
    rows = {row.id: row for row in kept.rows()}
    for damage in sorted(damaged, key=lambda damage: damage.kind == "run"):
        if damage.kind != "run":
            kept.forget(damage)
            continue
        row = rows[damage.name]
        try:
            spec = Spec.model_validate_json(row.spec_json)
        except ValueError:
            spec = None
        if spec is None or spec.digest() != row.spec or not 0 <= row.first <= row.last < row.first + MOST_SEEDS:
            kept.forget(damage)
            print(
                f"run {row.id} is taken out; its row is damaged too, so the next 'mnemoscope run' of its study trains it"
            )
            continue
        if spec.imported:
            kept.forget(damage)
            print(
                f"run {row.id} is taken out; it was imported, so only its folder can bring it back: mnemoscope import"
            )
            continue
        with _console(stderr=True).status(f"training {row.id}"):
            train_again(kept, row)  # what is damaged stays known as that until it is replaced
        print(f"run {row.id} was trained again")
    left = sum(damage.kind != "run" for damage in damaged)
    print(f"repaired; {left} findings and files are made again by the next 'mnemoscope run'" if left else "repaired")


def _retrain(kept: "Store", number: int) -> None:
    from mnemoscope.execution.local import compiled, use_all_devices
    from mnemoscope.execution.retrain import choose_seeds, retrain_seed

    use_all_devices(cache=compiled())
    chosen, left_out = choose_seeds(kept, number)
    if left_out:
        print(f"{left_out} stored seeds are not compared: another program trained them, or nobody did")
    if not chosen:
        raise UserError("no stored seed was trained by this program, so there is nothing to compare")
    wrong = 0
    for row, seed in chosen:
        name = f"run {row.id}, seed {seed}"
        with _console(stderr=True).status(f"training {name}"):
            found = retrain_seed(kept, row, seed)
        wrong += not found.same
        print(f"{'same' if found.same else 'OTHER NUMBERS'}: {name}: {found.words}")
    if wrong:
        raise UserError(f"{wrong} of {len(chosen)} seeds came out otherwise: these runs cannot be made again here")


COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_, "run": run, "ledger": ledger, "show": show, "compare": compare, "runs": runs, "walk": walk,
    "site": site, "explore": explore, "figure": figure, "memories": memories, "profile": profile, "check": check,
    "export": export, "import": import_,
}  # fmt: skip
DESCRIPTION = """Grow memory in tiny transformers, look inside while it forms, and put what papers say about it to the test.

Start with:  mnemoscope list               what is claimed
             mnemoscope run remember       train and judge (about three minutes on two cores)
             mnemoscope ledger             what was found
             mnemoscope show R13           one claim, seed by seed
             mnemoscope site --open        all of it as pages, with the explorer
             mnemoscope walk               every number of a forward pass
             mnemoscope profile remember   where the time of a training step goes"""


def main() -> None:
    """Parse the command line and run it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no reason to stop
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if issubclass(category, Notice):
            print(f"mnemoscope: {message}", file=sys.stderr)
        else:
            usual(message, category, *rest)

    warnings.showwarning = show
    try:
        tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="mnemoscope", description=DESCRIPTION)
    except KeyboardInterrupt:
        print("\nmnemoscope: interrupted; finished runs are kept, the same command goes on from there", file=sys.stderr)
        sys.exit(130)
    except UserError as error:
        print(f"mnemoscope: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
