"""Papers put to the test: claims, the evidence for them, and the ledger.

The studies themselves are in `library`.
"""
