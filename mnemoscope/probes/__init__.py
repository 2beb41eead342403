"""WHAT WE READ OFF: skills, attention roles, knock-outs. Probes read; they change nothing."""
