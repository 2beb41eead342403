"""How a model changes: the Spec, the loss, one step, the compiled loop, and what is read while it
trains."""

from mnemoscope.core.devices import use_all_cores
from mnemoscope.core.fingerprint import note_imported
from mnemoscope.training import loop as loop  # it loads everything that trains

# nobody has put anything in its place yet: what comes later is part of the fingerprint
note_imported()
# JAX can be told of the cores only before it first computes
use_all_cores()
