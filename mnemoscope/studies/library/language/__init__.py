"""The language study: does what tiny models do hold in a real language model?

Nothing is trained.
"""
