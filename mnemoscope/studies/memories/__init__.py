"""Weights as associative memories: what they store, and what an optimiser makes of them. Claims and parts; judges follow."""
