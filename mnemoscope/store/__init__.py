"""Where finished work is kept: an SQLite index beside safetensors files.

A run counts once its row is committed.

    STORE/index.sqlite3                     runs and findings
    STORE/runs/<spec digest>/<first>-<last>.<program>.safetensors
                                            one block of consecutive seeds
    STORE/runs/<spec digest>/<first>-<last>.<program>.part
                                            one that is being trained, as it was a while ago
    STORE/ledger/<scale>/<study>.json       what a study found
    STORE/locks/                            who is at work on what; empty files that the
                                            system locks

A run's file is written under another name, flushed and renamed, and only then indexed: a power cut
or Ctrl-C leaves at worst an unreferenced file. A file that replaces an older one is flushed, then
indexed beside the older one, then renamed: until then either of them counts. The index has the
SHA-256 of every file, and every row of it has a checksum, the SHA-256 of its own fields: what is
read back is what was written, or it is an error that says what to do. `Store.check` looks at
everything.

A block has the fingerprint of the program that trained it (`mnemoscope.core.fingerprint`). Blocks
of 0.1 have none; no file of theirs has one in its name. Seeds of one run come from one program.

    store       the class Store: what is kept, and in which order it is written
    index       the folder and its SQLite index: opening, reading rows, the words for what fails
    schema      tables, formats, migration
    run_file    a block of seeds as a row and as a file of arrays
    checkpoints a block that is being trained, saved from time to time
    files       plain files, read and written safely
    checksums   of bytes and of rows
    locks       between processes
    check       looking for damage
"""

from mnemoscope.store.check import Damage, integrity_error
from mnemoscope.store.run_file import (
    DamagedRunError,
    RunRow,
    UnknownKindError,
    arrays_of,
    block_id,
    check_arrays,
    run_of,
)
from mnemoscope.store.store import Store, open_store

__all__ = [
    "Damage",
    "DamagedRunError",
    "RunRow",
    "Store",
    "UnknownKindError",
    "arrays_of",
    "block_id",
    "check_arrays",
    "integrity_error",
    "open_store",
    "run_of",
]
