"""What jax's annotations name of its compiled half, which comes without types.

Without this, pyright in its strict mode knows the type of no function of jax that takes a device,
which is nearly every function of `jax.numpy`.
"""

from typing import Any

class Client:
    platform: str
    platform_version: str

class Device:
    id: int
    platform: str
    device_kind: str
    process_index: int
    client: Client

def __getattr__(name: str) -> Any: ...
