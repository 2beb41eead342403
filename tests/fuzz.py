"""Knock on every door with mutated input: each is let in and right, or sent away in one line.

    python tests/fuzz.py --inputs 10000                the long version; `make test` has a short one
    python tests/fuzz.py --door index --input "(...)"  one input again, as an offense was printed

An offense is a traceback, a refusal of more than one line, a wrong value let in, an input that
takes half a minute, markup from a file in a page, pickle or another program at work, and any file
read or written outside the store and the folder of the output. Hypothesis draws the inputs; each is
a Python literal, so that what was printed can be played again.
"""

import argparse
import ast
import hashlib
import io
import json
import os
import random
import resource
import signal
import sqlite3
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import MagicMock, patch

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mnemoscope.studies.claims import Finding, Plots

from mnemoscope.cli import main as command_line
from mnemoscope.core.errors import UserError
from mnemoscope.core.strict import Strict
from mnemoscope.execution import local, machine
from mnemoscope.models import Init, ModelConfig, parameter_shapes
from mnemoscope.models.language import read_model, read_tokenizer
from mnemoscope.report import find_ledgers
from mnemoscope.report.claim_figures import claim_figures
from mnemoscope.report.walk.choose_prompt import parse_prompt
from mnemoscope.store import RunRow, Store
from mnemoscope.store.checksums import row_checksum
from mnemoscope.store.schema import put_with_checksum
from mnemoscope.studies.discover import STUDIES, on_corpus
from mnemoscope.studies.library.memories.optimized import Cell
from mnemoscope.studies.library.remember.drawings import DRAWINGS
from mnemoscope.studies.presentation import Panel
from mnemoscope.tasks import Bigrams, Corpus, Cycle, Facts, Hops, Permutation, read_corpus
from mnemoscope.training.optimizers import SGD, Adam
from mnemoscope.training.spec import Spec

SECONDS = 30  # the longest that one input may take
LONGEST = 4000  # characters of a refusal
MARKUP = (
    "<fuzz>",
    "</script><fuzz>",
    '"onfuzz="x',
    "'><fuzz onfuzz=1>",
    "<!--<fuzz>",
    "]]><fuzz>",
    "</title></style><fuzz>",
)
PATHS = (
    "../../outside/canary",
    "../outside/canary",
    "/etc/passwd",
    "..",
    "a/../../../outside/canary",
    "~/x",
    "con",
    "\x00",
)
TEXTS = (
    *MARKUP,
    *PATHS,
    "",
    "\n",
    "a\nb",
    "[/]",
    "[bold]",
    "$x$",
    "$\\frac{$",
    "%s{0}",
    "\ud800",
    "\u202e",
    "e\u0301" * 9,
    "x" * 999,
    "self",
    "kind",
    "__class__",
    "*" * 40,
    "[a",
    "NaN",
    "\x1b[31m",
    "0",
    "-1",
    "\u0661",
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    0.5,
    -0.5,
    1e-300,
    1e308,
    -1e308,
    1e400,
    -1e400,
    float("nan"),
    10**9,
    10**12,
    10**30,
    -(10**30),
    2**31,
    2**63,
    2**64,
    10**400,
    True,
    False,
    None,
)


def deep(n: int) -> Any:
    """A list in a list in a list."""
    found: Any = []
    for _ in range(n):
        found = [found]
    return found


VALUES = st.one_of(
    st.sampled_from(TEXTS),
    st.sampled_from(NUMBERS),
    st.text(max_size=12),
    st.integers(),
    st.floats(),
    st.sampled_from(
        ("[]", "{}", "[[]]", "[1, 2]", '{"kind": "cycle"}', '{"self": 1}', '["a", 1]')
    ).map(json.loads),
    st.just("deep"),
)


def written(text: str) -> str:
    """JSON with its mark for nesting carried out: deeper than Python's own reader goes."""
    return text.replace('"deep"', "[" * 3000 + "]" * 3000)


def spots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside a document, and to the document itself."""
    yield path
    for key, inner in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from spots(inner, (*path, key))


def set_at(document: Any, path: tuple[Any, ...], change: Callable[[Any, Any], Any]) -> Any:
    """The document after change(container, key) at a spot; at its root,
    what change makes of [document] and 0.
    """
    around = [document]
    inner, key = around, 0
    for step in path:
        inner, key = inner[key], step
    change(inner, key)
    return around[0] if around else None


@st.composite
def bent(draw: Any, documents: dict[str, Any]) -> tuple[str, str]:
    """One of these JSON documents with a few values replaced, left out, added or renamed,
    and now and then its text cut about.
    """
    name = draw(st.sampled_from(sorted(documents)))
    document = deepcopy(documents[name])
    for _ in range(draw(st.integers(1, 3))):
        spot = draw(st.sampled_from(list(spots(document))))
        kind, value = (
            draw(st.sampled_from(("put", "put", "put", "drop", "add", "rename", "again"))),
            draw(VALUES),
        )

        def change(inner: Any, key: Any, kind: str = kind, value: Any = value) -> None:
            if kind == "put":
                inner[key] = value
            elif kind == "drop":
                del inner[key]
            elif kind == "again" and isinstance(inner, list):
                inner.append(deepcopy(inner[key]))
            elif kind == "rename" and isinstance(inner, dict):
                inner[str(value)] = inner.pop(key)
            elif isinstance(inner[key], dict):
                inner[key][str(value)] = value

        document = set_at(document, spot, change)
    text = json.dumps(document, ensure_ascii=draw(st.booleans()))
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(text)))
        instead = draw(st.sampled_from(("", "\x00", "]", "}", '"', ",", "1e999", "\ufeff")))
        text = text[:at] + instead + text[at + draw(st.integers(0, 9)) :]
    return name, text


AT = st.one_of(st.integers(0, 400), st.integers(0, 2**20))
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), AT, st.integers(0, 7)),
        st.tuples(st.just("put"), AT, st.binary(min_size=1, max_size=8)),
        st.tuples(
            st.just("put"),
            AT,
            st.sampled_from(
                [struct.pack("<Q", n) for n in (0, 2**20, 2**31, 2**40, 2**63, 2**64 - 1)]
            ),
        ),
        st.tuples(st.just("cut"), AT, st.just(0)),
        st.tuples(st.just("grow"), AT, st.binary(min_size=1, max_size=64)),
        st.tuples(st.just("lose"), AT, st.integers(1, 64)),
    ),
    min_size=1,
    max_size=4,
)


def mangled(data: bytes, changes: list[tuple[str, int, Any]]) -> bytes:
    """Bytes after these changes; places are counted round and round."""
    for kind, where, what in changes:
        at = where % max(1, len(data))
        if kind == "flip":
            data = data[:at] + bytes([data[at] ^ (1 << what)]) + data[at + 1 :] if data else data
        elif kind == "put":
            data = data[:at] + what + data[at + len(what) :]
        elif kind == "cut":
            data = data[:at]
        else:
            data = data[:at] + what + data[at:] if kind == "grow" else data[:at] + data[at + what :]
    return data


class Offense(Exception):  # noqa: N818 - it is the word for it here
    """Something that must not be, other than an exception of the product's own."""


def must(holds: bool, what: str) -> None:
    """Say what is wrong."""
    if not holds:
        raise Offense(what)


class Watch:
    """What Python does while a door is tried: files opened, made and removed, programs started,
    objects unpickled.
    """

    def __init__(self) -> None:
        self.room: Path | None = None
        self.seen: list[str] = []

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Python's audit hook; it cannot be taken off, so it looks away when no door is tried."""
        if self.room is None:
            return
        if event in (
            "pickle.find_class",
            "subprocess.Popen",
            "os.system",
            "os.exec",
            "os.posix_spawn",
        ):
            self.seen.append(f"{event} {args[:2]}")
        paths = args[:2] if event in ("os.rename", "os.link", "os.symlink") else args[:1]
        if event == "open" and args:
            writes = bool((args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        elif event in (
            "os.remove",
            "os.rmdir",
            "os.mkdir",
            "os.rename",
            "os.link",
            "os.symlink",
            "os.truncate",
            "sqlite3.connect",
        ):
            writes = True
        else:
            return
        for path in paths:
            if not isinstance(path, str | bytes | os.PathLike):
                continue
            place = os.path.realpath(os.fsdecode(path))
            inside = Path(place).is_relative_to(self.room) or Path(place).is_relative_to(
                machine.compile_cache_dir().resolve()
            )
            secret = place.startswith((str(self.room.parent / "outside"), "/etc/passwd"))
            if secret or (writes and not inside and not place.startswith("/dev/")):
                self.seen.append(f"{event} {place}")


WATCH = Watch()
sys.addaudithook(WATCH.hook)


class Reader(HTMLParser):
    """Whether a page holds a tag or an attribute that only a hostile name can have brought."""

    hostile = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "fuzz" or any(name.startswith("onfuzz") for name, _ in attrs):
            self.hostile = self.get_starttag_text() or tag


def plain(page: str) -> None:
    """A page has no markup from a name."""
    reader = Reader()
    reader.feed(page)
    must(not reader.hostile, f"markup from a file in a page: {reader.hostile}")


# What is mutated: small, whole and good of its kind.

SPEC = Spec(
    task=Permutation(n_symbols=2),
    model=ModelConfig(d_model=4, n_heads=1, d_mlp=0),
    steps=4,
    batch=4,
    snapshots=3,
)
CORPUS = Corpus(name="x", characters="ab", counts=((0, 1, 2), (1, 0, 2)))
LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 11,
    "max_position_embeddings": 16,
    "rope_theta": 100.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default"},
    "head_dim": 8,
}
TOKENIZER = {
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    "added_tokens": [{"content": "<e>", "id": 3}],
}


@cache
def configurations() -> dict[str, tuple[type[Strict], Any]]:
    """Every kind of configuration, as JSON."""
    tasks = (
        Permutation(),
        Cycle(),
        Bigrams(corpus=CORPUS, n_triggers=1),
        Facts(),
        Hops(schedule=((0, (1, 1, 1)),)),
    )
    wide = ModelConfig(
        frozen=("*.W_E",),
        init=Init(constant=(("*.W_Q", 0.5),), scale=(("*.W_V", 2.0),)),
        mlp_layers=(0,),
        d_head=4,
    )
    llama = ModelConfig(
        d_model=8,
        n_key_value_heads=1,
        d_mlp=8,
        n_ctx=8,
        norm="pre",
        norm_type="rms",
        act="silu",
        gated_mlp=True,
        positions="rotary",
        rotary_dim=4,
        rotary_base=100.0,
    )
    release = {"unfreeze_at": [["*.W_Q", 2]], "metrics": "bigrams", "n_evals": 4}
    found: dict[str, tuple[type[Strict], Any]] = {}
    for task in tasks:
        body = json.loads(Spec(task=task).model_dump_json()) | release
        found[f"Spec {task.kind}"] = Spec, body  # type: ignore[attr-defined]
    square = ModelConfig(init=Init(identity=("*.W_Q",)), d_model=4, n_heads=1)
    finding = Finding(
        verdict="partly",
        value=1.0,
        interval=(0.0, 2.0),
        seeds=8,
        failed_seeds=0,
        sentence="so",
        by_seed={"a": (1.0,)},
    )
    more = (
        wide,
        llama,
        square,
        Adam(warmup=2, clip=1.0),
        SGD(),
        CORPUS,
        Cell(),
        Panel(series=("a",), axis="b"),
        finding,
    )
    for each in more:
        found[f"{type(each).__name__} {len(found)}"] = (
            type(each),
            json.loads(each.model_dump_json()),
        )
    return found


@cache
def papers() -> dict[str, Any]:
    """Two studies' ledgers with evidence and plots, cut short:
    curves and attention maps, and grids.
    """
    found: dict[str, Any] = {}
    for study in ("birth", "memories"):
        for part in ("", ".evidence", ".pictures"):
            body = json.loads(
                (find_ledgers.published() / "full" / f"{study}{part}.json").read_text()
            )
            if not part:
                drawn = json.loads(
                    (find_ledgers.published() / "full" / f"{study}.pictures.json").read_text()
                )
                keep = [claim["id"] for claim in body["claims"] if claim["id"] in drawn][:2]
                body |= {
                    "scale": "quick",
                    "claims": [claim for claim in body["claims"] if claim["id"] in keep],
                }
            else:
                body = {name: each for name, each in body.items() if name in keep}
            found[f"{study}{part}.json"] = _short(body)
    return found


def _short(body: Any) -> Any:
    """The same with at most six of anything in a list, and of any series."""
    if isinstance(body, dict):
        return {
            name: _short(each)
            for name, each in list(body.items())[: None if "id" in body or "study" in body else 6]
        }
    return [_short(each) for each in body[:6]] if isinstance(body, list) else body


@cache
def good() -> dict[str, bytes]:
    """The files of a small store and of two small language models, by name."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        kept = Store(home / "store")
        local.load_or_train(kept, SPEC, range(2))
        local.load_or_train(
            kept,
            Spec(task=Cycle(), model=ModelConfig(d_model=2, n_heads=1, d_mlp=0), steps=2, batch=2),
            range(1),
        )
        kept.keep_finding("a key", {"value": 0.25})
        for name, body in papers().items():
            kept.write_text(f"ledger/quick/{name}", json.dumps(body))
        kept.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        kept.db.execute("PRAGMA journal_mode=DELETE")
        kept.db.close()
        _language(home / "language")
        return {
            path.relative_to(home).as_posix(): path.read_bytes()
            for path in home.rglob("*")
            if path.is_file()
        }


def _language(home: Path) -> None:
    from safetensors.numpy import save_file
    from test_language import llama_tensors, write_gguf

    home.mkdir()
    tensors = llama_tensors(LLAMA)
    (home / "config.json").write_text(json.dumps(LLAMA))
    (home / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    save_file(tensors, home / "model.safetensors")
    write_gguf(home / "model.gguf", LLAMA, tensors, ("Q8_0", "F16", "F32"))


def lay_out(room: Path, under: str) -> Path:
    """Fresh copies of the good files under a name."""
    for name, data in good().items():
        if name.startswith(under):
            path = room / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return room / under


# The doors. Each takes an input and a folder, and returns whether it was let in;
# a UserError is a refusal.


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
        found = _models()[1].check(prompt)
        must(list(map(int, found)) == list(prompt), "other tokens")
    elif kind == "model":
        found = _models()[0].check(prompt)
        must(list(map(int, found)) == list(prompt), "other tokens")
    elif kind == "tokenizer":
        tokens = _models()[2].encode(prompt)
        must(_models()[2].decode(tokens) == prompt, "the text does not come back")
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
def _models() -> tuple[Any, Any, Any]:
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
    here = {study: STUDIES[study]}
    with (
        patch("mnemoscope.report.site.STUDIES", here),
        patch("mnemoscope.studies.discover.STUDIES", here),
    ):
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


# What is drawn for each door.

GOOD = """
remember walk birth memories language all R1 W1 B1 R1,W3 quick full text md html
latex svg grid sgd adam True 0 1 -1 8 1e3 nan inf 99999999999999999999 0,1 1;2 CAB d_model=4
steps=x = @STORE @ROOM/new @ROOM/x.svg @ROOM/x.gif .. - -- -h
"""
WORDS = (
    *GOOD.split(),
    SPEC.digest(),
    SPEC.digest()[:4],
    "1 2",
    "\udcff",
    "@ROOM/\udcff.svg",
    "[/x]",
    "@ROOM/[/x]",
    "@ROOM/no/x.html",
)
NAMES = """
scale seeds claims corpus model store json delete prompt run seed snapshot format out digits
condition no-open d lr batch samples optimizer norm learned trace open x repair
"""
OPTIONS = [f"--{name}" for name in NAMES.split()]
# no program can be given a zero byte
NO_ZERO = st.text(st.characters(blacklist_characters="\x00"), max_size=12)


@st.composite
def arguments(draw: Any) -> list[str]:
    """A command with arguments of its own and of others', good and bad,
    that keeps out of the way of other folders.
    """
    command = draw(st.sampled_from([*command_line.all_commands(), draw(NO_ZERO)]))
    word = st.one_of(
        st.sampled_from(WORDS),
        st.sampled_from([t for t in TEXTS if "\x00" not in t and "/" not in t]),
        NO_ZERO,
    )
    parts = [draw(word) for _ in range(draw(st.integers(0, 1)))]
    for _ in range(draw(st.integers(0, 4))):
        parts += [draw(st.sampled_from(OPTIONS)), draw(word)][: draw(st.integers(1, 2))]
    return [command, *parts, *([] if draw(st.integers(0, 3)) == 0 else ["--store", "@STORE"])]


CELLS = st.one_of(
    st.sampled_from([t for t in TEXTS if "\ud800" not in t]),
    st.integers(-(2**63), 2**63 - 1),
    st.none(),
    st.floats(),
    st.binary(max_size=8),
    st.sampled_from((0, 1, 2, -1, 10**9, 2**62)),
)


@st.composite
def cells(draw: Any) -> tuple[str, int, dict[str, Any], bool, bool]:
    """Other values for a row of the index."""
    fields = {
        "runs": RunRow._fields[:-1],
        "findings": ("key", "body"),
        "files": ("name", "sha256", "before"),
    }
    table = draw(st.sampled_from(("runs", "runs", "runs", "findings", "files")))
    specs = bent({"s": json.loads(SPEC.canonical_json())})
    values = {}
    for name in draw(st.lists(st.sampled_from(fields[table]), min_size=1, max_size=3, unique=True)):
        spec = name == "spec_json" and draw(st.booleans())
        values[name] = draw(specs)[1] if spec else draw(CELLS)
    return (
        table,
        draw(st.integers(0, 9)),
        values,
        draw(st.integers(0, 3)) > 0,
        draw(st.integers(0, 2)) == 0,
    )


COUNTING = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c)"  # without an end
SQL = st.lists(
    st.sampled_from(
        f"""
DROP TABLE runs
DROP TABLE findings
DROP TABLE files
ALTER TABLE runs RENAME TO x
ALTER TABLE x RENAME TO findings
ALTER TABLE findings RENAME TO runs
ALTER TABLE files RENAME TO findings
ALTER TABLE runs DROP COLUMN machine
ALTER TABLE runs RENAME COLUMN spec TO spic
ALTER TABLE runs ADD COLUMN more TEXT
DELETE FROM runs
PRAGMA user_version=1
PRAGMA user_version=0
PRAGMA user_version=-7
CREATE VIEW runs AS SELECT 1
CREATE TABLE runs (spec)
CREATE VIEW files AS {COUNTING} SELECT x,x,x,x FROM c
CREATE VIEW runs AS {COUNTING} SELECT * FROM c,c,c,c,c,c,c,c,c,c,c,c
CREATE TRIGGER t AFTER DELETE ON runs BEGIN DELETE FROM findings; END
CREATE TABLE findings AS SELECT * FROM runs
CREATE TABLE more AS SELECT * FROM runs
CREATE TABLE files (a,b,c,d)
INSERT INTO files VALUES (1,2,3,4)
CREATE TABLE runs AS SELECT * FROM more
INSERT INTO runs SELECT * FROM more
UPDATE runs SET last = 9000000000000000000
UPDATE runs SET spec_json = replace(spec_json, 'steps', 'stepz')
VACUUM
PRAGMA page_size=512
PRAGMA encoding='UTF-16'
UPDATE runs SET file = '../../outside/canary'
UPDATE files SET name = '../../outside/canary'
""".strip().splitlines()
    ),
    min_size=1,
    max_size=4,
).map(";\n".join)
LETTERS = st.text(st.sampled_from("ABC 0123456789\n<é"), max_size=9)
PROMPTS = st.one_of(
    st.tuples(
        st.sampled_from(("bigrams", "cycle", "permutation", "facts", "tokenizer")),
        st.one_of(st.text(), LETTERS, st.sampled_from(TEXTS)),
    ),
    st.tuples(
        st.sampled_from(("language", "model")),
        st.one_of(
            st.lists(st.integers(-1, 12), max_size=20),
            st.lists(st.integers(0, 2), min_size=1, max_size=4),
            st.lists(st.integers(), max_size=3),
            st.lists(st.floats(), max_size=3),
            st.text(max_size=5),
            st.none(),
            st.just(deep(70)),
            st.lists(st.text(max_size=3), max_size=3),
            st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=3),
        ),
    ),
)
CORPORA = st.one_of(
    st.binary(max_size=200),
    st.text().map(lambda t: t.encode(errors="surrogatepass")),
    st.text("ab\r\n<é🙂", max_size=60).map(str.encode),
    st.tuples(st.integers(0, 2**31), st.sampled_from((50, 500, 20000))).map(
        lambda pair: "".join(
            chr(random.Random(pair[0]).randrange(1, 0xD000) + i % 3) for i in range(pair[1])
        ).encode()
    ),
)


@cache
def _header() -> dict[str, Any]:
    name = next(name for name in good() if SPEC.digest() in name)
    size = struct.unpack("<Q", good()[name][:8])[0]
    return {"h": json.loads(good()[name][8 : 8 + size])}


class Door(NamedTuple):
    """What is drawn, who is asked, and how many of a thousand inputs it gets."""

    ask: Callable[[Any, Path], bool]
    inputs: Callable[[], Any]
    share: int


DOORS = {
    "config": Door(
        config_door, lambda: bent({n: body for n, (_, body) in configurations().items()}), 300
    ),
    "python": Door(
        python_door, lambda: bent({n: body for n, (_, body) in configurations().items()}), 100
    ),
    "cli": Door(cli_door, arguments, 40),
    "rows": Door(rows_door, cells, 15),
    "prompt": Door(prompt_door, lambda: PROMPTS, 250),
    "corpus": Door(corpus_door, lambda: CORPORA, 120),
    "tensors": Door(
        tensors_door,
        lambda: st.tuples(st.one_of(CHANGES, bent(_header()).map(lambda x: x[1])), st.booleans()),
        10,
    ),
    "language": Door(
        language_door,
        lambda: st.one_of(
            st.tuples(
                st.sampled_from(
                    (
                        "model.gguf",
                        "model.gguf",
                        "model.safetensors",
                        "config.json",
                        "tokenizer.json",
                    )
                ),
                CHANGES,
            ),
            bent({"config.json": LLAMA, "tokenizer.json": TOKENIZER}),
        ),
        110,
    ),
    "index": Door(index_door, lambda: st.one_of(CHANGES, SQL), 50),
    "ledger": Door(ledger_door, lambda: bent(papers()), 5),
}


def one_line(error: UserError) -> None:
    """A refusal is one line, not without an end, and can be written down."""
    text = str(error)
    must(bool(text.strip()), "the refusal says nothing")
    must(
        len(text.splitlines()) == 1 and "\x1b" not in text,
        f"the refusal is no line: {text[:300]!r}",
    )
    must(len(text) <= LONGEST, f"the refusal has {len(text)} characters")


@contextmanager
def calm() -> Iterator[None]:
    """Nothing trains, no browser opens, no real language model is read,
    nothing published is drawn again for each input.
    """

    def trains(*_: Any, **__: Any) -> Any:
        raise UserError("this would train")

    def judged(*_: Any) -> Finding:
        return Finding(
            verdict="undecided",
            value=None,
            interval=None,
            seeds=0,
            failed_seeds=0,
            sentence="not judged here",
        )

    with TemporaryDirectory() as empty, warnings.catch_warnings(), ExitStack() as stack:
        stack.enter_context(
            patch.dict(os.environ, {"MNEMOSCOPE_LANGUAGE_MODEL": f"{empty}/none", "COLUMNS": "160"})
        )
        for name, instead in {
            "execution.local.fit": trains,
            "execution.local.programs": MagicMock(),
            "training.profile.profile": trains,
            "studies.evidence.Evidence.finding": judged,
            "studies.evidence.Evidence.run": MagicMock(),
            "studies.library.memories.optimized.errors": lambda cell, seeds: np.zeros(len(seeds)),
            "execution.machine.use_all_devices": MagicMock(),
            "report.find_ledgers.published": lambda: Path(empty),
            "cli.visualize.open_in_browser": MagicMock(),
        }.items():
            stack.enter_context(patch(f"mnemoscope.{name}", instead))
        warnings.simplefilter("ignore")
        yield


def _late(*_: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


def knock(name: str, given: Any) -> tuple[str, str]:
    """One input at one door: accepted, refused or offense, and what was wrong."""
    with TemporaryDirectory() as folder:
        room, outside = Path(folder).resolve() / "room", Path(folder).resolve() / "outside"
        room.mkdir()
        outside.mkdir()
        (outside / "canary").write_text("sings")
        here, before = os.getcwd(), signal.signal(signal.SIGALRM, _late)
        os.chdir(room)
        WATCH.room, WATCH.seen = room, []
        signal.alarm(SECONDS)
        try:
            verdict, why = ("accepted" if DOORS[name].ask(given, room) else "refused"), ""
        except UserError as error:
            verdict, why = "refused", str(error)
            try:
                one_line(error)
            except Offense as offense:
                verdict, why = "offense", str(offense)
        except Exception as error:
            # the tests check every type that is written down, and refuse first
            if type(error).__name__ == "TypeCheckError":
                return "refused", "of another type"
            frames = [
                f"{Path(f.filename).name}:{f.lineno}"
                for f in traceback.extract_tb(error.__traceback__)
            ]
            verdict, why = (
                "offense",
                f"{type(error).__name__}: {str(error)[:200]} at {' '.join(frames[-6:])}",
            )
        finally:
            signal.alarm(0)
            WATCH.room = None
            signal.signal(signal.SIGALRM, before)
            os.chdir(here)
        sings = [p.name for p in outside.iterdir()] == ["canary"] and (
            outside / "canary"
        ).read_text() == "sings"
        touched = [*WATCH.seen, *([] if sings else ["the canary is gone"])]
        return ("offense", f"outside: {touched[:3]}") if touched else (verdict, why)


class Tally(NamedTuple):
    """How a door did."""

    tried: int
    accepted: int
    refused: int
    offenses: list[tuple[str, str]]


def fuzz(name: str, inputs: int, seed: int | None = None) -> Tally:
    """So many inputs at one door; without a seed they are the same each time."""
    # what makes files of its own, once, makes them now
    good()
    _models()
    claim_figures((), {}, Plots(), DRAWINGS["R1"])
    counts, offenses = {"accepted": 0, "refused": 0, "offense": 0}, []

    @settings(
        max_examples=inputs,
        deadline=None,
        database=None,
        derandomize=seed is None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(DOORS[name].inputs())
    def each(given: Any) -> None:
        verdict, why = knock(name, given)
        counts[verdict] += 1
        if verdict == "offense":
            offenses.append((why, repr(given)))

    if seed is not None:
        from hypothesis import seed as seeded

        each = seeded(seed)(each)
    with calm():
        each()
    return Tally(sum(counts.values()), counts["accepted"], counts["refused"], offenses)


def main() -> int:
    """The long version."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--door", choices=DOORS)
    parser.add_argument("--input", help="one input again, as it was printed")
    parser.add_argument("--seed", type=int, help="other inputs than those of every time")
    parser.add_argument("--show", type=int, default=10, help="offenses shown for each door")
    args = parser.parse_args()
    # what asks for more than that gets an error, not the machine
    resource.setrlimit(resource.RLIMIT_AS, (40 << 30, 40 << 30))
    if args.input:
        with calm():
            print(*knock(args.door, ast.literal_eval(args.input)))
        return 0
    bad, total = 0, sum(door.share for door in DOORS.values())
    for name, door in DOORS.items():
        if args.door in (None, name):
            began = time.monotonic()
            share = args.inputs if args.door else -(-args.inputs * door.share // total)
            tally = fuzz(name, share, args.seed)
            bad += len(tally.offenses)
            took = time.monotonic() - began
            print(
                f"{name:9} {tally.tried:6,} tried {tally.accepted:6,} accepted {tally.refused:6,} "
                f"refused {len(tally.offenses):4} offenses {took:6.0f} s",
                flush=True,
            )
            kinds: dict[str, tuple[str, str]] = {}
            for why, given_ in sorted(tally.offenses, key=lambda pair: len(pair[1])):
                kinds.setdefault(why[:50] + why[-40:], (why, given_))
            for why, given_ in list(kinds.values())[: args.show]:
                print(f"    {why}\n      --door {name} --input {given_[:3000]!r}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
