"""Faster ways to the same logits: each is exact, and says for which models and tasks it applies."""
