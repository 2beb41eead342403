"""Faster ways to the same logits: each is exact, and each says for which models and tasks it applies."""
