"""How a model changes: the Spec, the loss, one step, the compiled loop, and what is read while it
trains."""

from mnemoscope.core.fingerprint import note_imported
from mnemoscope.training import loop as loop  # it loads everything that trains

# nobody has put anything in its place yet: what comes later is part of the fingerprint
note_imported()
