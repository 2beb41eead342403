"""What is mutated: small, whole and good of its kind."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mnemoscope.core.strict import Strict
from mnemoscope.execution import local
from mnemoscope.models import Init, ModelConfig
from mnemoscope.store import Store
from mnemoscope.studies.library.memories.optimized import Cell
from mnemoscope.studies.presentation import Panel
from mnemoscope.studies.published import published_folder
from mnemoscope.tasks import Bigrams, Corpus, Cycle, Facts, Hops, Permutation, Vocabulary
from mnemoscope.training.optimizers import SGD, Adam
from mnemoscope.training.spec import Spec
from mnemoscope.verdicts.claim import Part
from mnemoscope.verdicts.record import Provenance, Record, unit_values

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
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
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
        Vocabulary(n_tokens=2, n_positions=3, names=("a", "b")),
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
    share = Part(name="a", kind="share", measures="share of seeds")
    record = Record(
        parts={"a": {"plain": unit_values([1.0, 0.0])}},
        by_seed={"a": (1.0,)},
        provenance=Provenance(
            date="t", command="c", hardware="h", versions={}, code="c", criterion="c"
        ),
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
        share,
        record,
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
            body = json.loads((published_folder() / "full" / f"{study}{part}.json").read_text())
            if not part:
                drawn = json.loads(
                    (published_folder() / "full" / f"{study}.pictures.json").read_text()
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
    from language_files import llama_tensors, write_gguf
    from safetensors.numpy import save_file

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
