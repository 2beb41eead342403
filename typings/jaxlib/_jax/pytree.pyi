from typing import Any

class PyTreeDef:
    num_leaves: int
    num_nodes: int

def __getattr__(name: str) -> Any: ...
