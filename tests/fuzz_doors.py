"""The doors: each takes an input and a folder, and returns whether it was let in.

A UserError is a refusal.
"""

import hashlib
import io
import json
import sqlite3
import struct
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
from fuzz_good import SPEC, configurations, good, lay_out, papers
from fuzz_inputs import deep, mangled, written
from fuzz_watch import LONGEST, must, one_line, plain

from mnemoscope.cli import main as command_line
from mnemoscope.core.errors import UserError
from mnemoscope.models import parameter_shapes
from mnemoscope.models.language import read_model, read_tokenizer
from mnemoscope.report.walk.choose_prompt import parse_prompt
from mnemoscope.store import Store
from mnemoscope.store.checksums import row_checksum
from mnemoscope.store.schema import put_with_checksum
from mnemoscope.studies.discover import STUDIES, on_corpus
from mnemoscope.tasks import Bigrams, Cycle, Facts, Permutation, read_corpus
from mnemoscope.training.spec import Spec


def config_door(given: tuple[str, str], room: Path) -> bool:
    """A configuration from JSON: what is let in comes back the same, and says what it implies."""
    name, text = given
    kind, text = configurations()[name][0], written(text)
    found = kind.model_validate_json(text)
    must(
        kind.model_validate_json(found.canonical_json()) == found, "it does not come back the same"
    )
    must(len(found.digest()) == 16, "it has no digest")
    if isinstance(found, Spec):
        must(
            found.snapshot_steps()[-1] == found.steps and found.eval_steps()[-1] == found.steps,
            "its steps end elsewhere",
        )
        must(
            min(found.task.d_vocab, found.task.n_ctx, found.task.d_vocab_out) > 0,
            "its task has no size",
        )
        if not found.model.tied:
            shapes = parameter_shapes(
                found.model, found.task.d_vocab, found.task.n_ctx, found.task.d_vocab_out
            )
            must(
                all(size > 0 for shape in shapes.values() for size in shape),
                "a parameter has no size",
            )
        found.optimizer.transformation(found.steps)
    return True


def python_door(given: tuple[str, str], room: Path) -> bool:
    """The same configurations from Python, by keyword."""
    name, text = given
    try:
        fields = json.loads(
            text,
            object_hook=lambda body: {k: deep(500) if v == "deep" else v for k, v in body.items()},
        )
    except ValueError:
        return False
    if not isinstance(fields, dict):
        return False
    configurations()[name][0](**fields)
    return True


def said(*args: str) -> tuple[str | int | None, str, str]:
    """The command line in this process: its exit code, what it printed and what it complained of,
    as bytes would carry it.
    """
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", errors="strict") for _ in range(2)]
    code: str | int | None = 0
    with (
        patch.object(sys, "stdout", streams[0]),
        patch.object(sys, "stderr", streams[1]),
        patch.object(sys, "argv", ["m", *args]),
    ):
        try:
            command_line.main()
        except SystemExit as end:
            code = end.code
        for stream in streams:
            stream.flush()
    texts = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]
    return code, *texts


def asked(*args: str) -> bool:
    """Whether the command line did it; otherwise it said why in one line,
    or the parser in its box.
    """
    code, _, told = said(*args)
    if not code:
        return True
    lines = told.strip().splitlines()
    box = len(lines) > 1 and lines[0].startswith(("╭", "+"))
    must(code == 2 and (len(lines) == 1 or box), f"exit code {code} and {told!r}")
    must(box or len(lines[0]) <= LONGEST, "the line is endless")
    return False


def cli_door(given: list[str], room: Path) -> bool:
    """Arguments of the command line, beside a good store;
    what would train is stopped at the door of the engine.
    """
    lay_out(room, "store")
    return asked(
        *[arg.replace("@STORE", str(room / "store")).replace("@ROOM", str(room)) for arg in given]
    )


def store_of(room: Path) -> Iterator[bool]:
    """Everything that reads a store: what it yields is whether something was let in."""
    kept = Store(room / "store")
    try:
        rows = kept.rows()
        for row in rows:
            try:
                run = kept.load(row)
                must(len(run.losses) == len(run.seeds), "losses are not those of its seeds")
                yield True
            except UserError as error:
                one_line(error)
                yield False
        for read in (
            lambda: kept.finding("a key"),
            kept.check,
            lambda: kept.blocks(SPEC, range(3)),
            lambda: kept.read_text("ledger/quick/birth.json"),
        ):
            try:
                read()
                yield True
            except UserError as error:
                one_line(error)
                yield False
    finally:
        kept.db.close()


def reads(room: Path, *, unsealed: bool) -> bool:
    """Read a whole store; where nobody sealed the change, what is let in is what was written."""
    whole = all(list(store_of(room)))
    if unsealed:
        kept = Store(room / "store")
        try:
            for row in kept.rows():
                try:
                    run = kept.load(row)
                except UserError:
                    continue
                path = f"store/{row.file}"
                must(
                    path in good() and hashlib.sha256(good()[path]).hexdigest() == row.sha256,
                    "it is not what was written",
                )
                must(run.spec.digest() == row.spec, "it is another Spec")
        finally:
            kept.db.close()
    return asked("runs", "--store", str(room / "store")) and whole


def explored(given: Any, room: Path) -> None:
    """The explorer of a store that somebody changed; for one input in four,
    as it compiles for seconds.
    """
    page = room / "explorer.html"
    if len(repr(given)) % 4 == 0 and asked(
        "explore", SPEC.digest(), "--out", str(page), "--store", str(room / "store")
    ):
        plain(page.read_text())


def rows_door(given: tuple[str, int, dict[str, Any], bool, bool], room: Path) -> bool:
    """Rows of the index with other values, sealed again as a hostile author would;
    then read, listed, checked and deleted.
    """
    table, which, values, sealed, typed = given
    folder = lay_out(room, "store")
    db = sqlite3.connect(folder / "index.sqlite3")
    fields = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    rows = [list(row) for row in db.execute(f"SELECT * FROM {table}")]
    row = rows[which % len(rows)]
    for name, value in values.items():
        value = (
            written(value).encode(errors="replace").decode()
            if name == "spec_json" and isinstance(value, str)
            else value
        )
        if name in fields:
            row[fields.index(name)] = value
    if sealed and table == "runs" and "spec_json" in values and "spec" not in values:
        try:
            row[0] = Spec.model_validate_json(row[3]).digest()
            row[4] = (
                f"runs/{row[0]}/{row[1]}-{row[2]}.safetensors" if "file" not in values else row[4]
            )
        except (ValueError, TypeError):
            pass
    try:
        if sealed:
            row[-1] = row_checksum(row[:-1])
        if typed:  # a file whose tables claim to be strict and are not
            db.execute("PRAGMA writable_schema=ON")
            db.execute(
                "UPDATE sqlite_master SET sql = replace(replace(sql, 'STRICT', ''), 'NOT NULL', '')"
            )
            db.commit()
            db.close()
            db = sqlite3.connect(folder / "index.sqlite3")
        db.execute(f"DELETE FROM {table}")
        db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(fields))})", rows)
        db.commit()
        if typed:
            db.execute("PRAGMA writable_schema=ON")
            db.execute("UPDATE sqlite_master SET sql = sql || ' STRICT' WHERE type = 'table'")
            db.commit()
    except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"SQLite itself refuses: {type(error).__name__}") from None
    finally:
        db.close()
    whole = reads(room, unsealed=not sealed)
    for args in (("check",), ("walk", "--run", SPEC.digest()), ("runs", "steps=4")):
        asked(*args, "--store", str(folder))
    explored(given, room)
    kept = Store(folder)
    try:
        for damage in kept.check():
            kept.forget(damage)
        for each in kept.rows():
            kept.delete(each)
    finally:
        kept.db.close()
    return whole


def prompt_door(given: tuple[str, Any], room: Path) -> bool:
    """A prompt as text or as numbers: what is let in are tokens of the vocabulary,
    as many as fit.
    """
    kind, prompt = given
    if kind == "language":
        found = small_models()[1].check(prompt)
        must(list(map(int, found)) == list(prompt), "other tokens")
    elif kind == "model":
        found = small_models()[0].check(prompt)
        must(list(map(int, found)) == list(prompt), "other tokens")
    elif kind == "tokenizer":
        tokens = small_models()[2].encode(prompt)
        must(small_models()[2].decode(tokens) == prompt, "the text does not come back")
    else:
        task = {
            "bigrams": Bigrams(),
            "cycle": Cycle(),
            "permutation": Permutation(),
            "facts": Facts(),
        }[kind]
        names = task.token_names
        tokens = parse_prompt(names, task.n_ctx, prompt)
        must(
            1 <= len(tokens) <= task.n_ctx and all(0 <= t < len(names) for t in tokens), "no prompt"
        )
        must("".join(names[t] for t in tokens) == "".join(prompt.split()), "another prompt")
    return True


@cache
def small_models() -> tuple[Any, Any, Any]:
    from mnemoscope.models.language import Tokenizer
    from mnemoscope.models.language.tokens import byte_characters
    from mnemoscope.training.loop import fit

    with TemporaryDirectory() as folder:
        language = read_model(lay_out(Path(folder), "language"))
    return fit(SPEC, [0]).model(0), language, Tokenizer(byte_characters(), (("h", "e"),), True)


def corpus_door(given: bytes, room: Path) -> bool:
    """A text file: its counts are those of the text,
    and the study of text can be set up on it or says why not.
    """
    path = room / "a corpus.txt"
    path.write_bytes(given)
    found = read_corpus(path)
    text = given.decode().replace("\r\n", "\n").replace("\r", "\n")
    must(found.characters == "".join(sorted(set(text))), "other characters")
    must(sum(count for *_, count in found.counts) == len(text), "other counts")
    must(bool(np.allclose(found.bigrams.sum(axis=1), 1)), "its bigrams are no probabilities")
    on_corpus(STUDIES["birth"], path).conditions("quick")
    return True


def tensors_door(given: tuple[Any, bool], room: Path) -> bool:
    """The file of a run with other bytes or another header, and a hostile author's seal or none."""
    changes, sealed = given
    folder = lay_out(room, "store")
    kept = Store(folder)
    row = next(row for row in kept.rows() if row.spec == SPEC.digest())
    data = (folder / row.file).read_bytes()
    if isinstance(changes, str):
        changes = written(changes)
        size = struct.unpack("<Q", data[:8])[0]
        data = (
            struct.pack("<Q", len(changes.encode(errors="replace")))
            + changes.encode(errors="replace")
            + data[8 + size :]
        )
    else:
        data = mangled(data, changes)
    (folder / row.file).write_bytes(data)
    if sealed:
        again = row._replace(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        with kept.db:
            kept.db.execute("DELETE FROM runs WHERE spec=?", (row.spec,))
            put_with_checksum(kept.db, "runs", again[:-1])
    kept.db.close()
    whole = reads(room, unsealed=not sealed)
    asked("walk", "--run", SPEC.digest(), "--store", str(folder))
    explored(given, room)
    return whole


def language_door(given: tuple[str, Any], room: Path) -> bool:
    """A language model's files with other bytes, or other JSON:
    what is let in has the shapes that its configuration says.
    """
    name, changes = given
    folder = lay_out(room, "language")
    path = folder / name
    if isinstance(changes, str):
        path.write_bytes(written(changes).encode(errors="surrogatepass"))
    else:
        path.write_bytes(mangled(path.read_bytes(), changes))
    if name == "tokenizer.json":
        found = read_tokenizer(folder)
        must(all(isinstance(token, str) for token in found.vocabulary), "a token is no text")
        must(
            all(isinstance(part, str) for pair in found.merges for part in pair),
            "a merge is no text",
        )
        return True
    model = read_model(path if name == "model.gguf" else folder)
    d_vocab, n_ctx = len(model.params["embed.W_E"]), model.config.n_ctx
    shapes = parameter_shapes(model.config, d_vocab, n_ctx)
    must({n: x.shape for n, x in model.params.items()} == shapes, "other shapes")
    return True


def index_door(given: Any, room: Path) -> bool:
    """The index with other bytes, or after SQL that no Mnemoscope wrote."""
    folder = lay_out(room, "store")
    path = folder / "index.sqlite3"
    if isinstance(given, str):
        db = sqlite3.connect(path)
        try:
            db.executescript(given)
        except sqlite3.Error:
            pass
        finally:
            db.close()
    else:
        path.write_bytes(mangled(path.read_bytes(), given))
    whole = reads(room, unsealed=True)
    asked("check", "--store", str(folder))
    return whole


def ledger_door(given: tuple[str, str], room: Path) -> bool:
    """A ledger, its evidence or its plots with other values:
    shown, drawn, and made into pages without markup of theirs.
    """
    name, text = given[0], written(given[1])
    folder = lay_out(room, "store")
    (folder / "ledger/quick" / name).write_bytes(text.encode(errors="surrogatepass"))
    study = name.split(".")[0]
    claim = papers()[f"{study}.json"]["claims"][0]["id"]
    packages = STUDIES.ours.packages
    with patch.dict(packages, {study: packages[study]}, clear=True):
        done = [
            asked(*args, "--store", str(folder))
            for args in (
                ("list",),
                ("ledger", study),
                ("ledger", study, "--json"),
                ("show", claim),
                ("figure", claim, "--out", str(room / "f.svg")),
                ("site", "--out", str(room / "site")),
            )
        ]
        for page in [*(room / "site").glob("*.html"), *room.glob("*.svg")]:
            plain(page.read_text())
        kept = Store(folder)
        try:
            # sealed, as a hostile author would
            kept.write_text(f"ledger/quick/{name}", text.encode(errors="replace").decode())
        finally:
            kept.db.close()
        asked("run", study, "--claims", claim, "--store", str(folder))
        book = folder / f"ledger/quick/{study}.md"
        if book.exists():
            plain(book.read_text())
    return all(done)
