r"""Models in TransformerLens's format, both ways: a folder with `model.safetensors`, the state
dict, and `config.json`.

Names and axes are the same on both sides, so a tensor goes over as it is. What differs is what may
be left out: a HookedTransformer always has biases, an unembedding of its own and, unless positions
are rotary, a table of them, so zeros and the transposed embedding are written for what a model of
ours does without. The header of the file keeps our own configuration, and reading gives back the
very same model. Reading such a folder into TransformerLens (masks and tables of angles are buffers
without weights, some with shapes that depend on its version: hence strict=False):

    config = HookedTransformerConfig.from_dict(json.load(open("DIR/config.json")))
    model = HookedTransformer(config)
    model.load_state_dict(safetensors.torch.load_file("DIR/model.safetensors"), strict=False)

and writing one there, for `read_transformer_lens` and `mnemoscope import`:

    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    safetensors.torch.save_file(state, "DIR/model.safetensors")
    json.dump(model.cfg.to_dict(), open("DIR/config.json", "w"), default=str)

What the other side cannot say is refused by name: a model that loads and computes something else
would be worse than none.
"""

from mnemoscope.exchange.lens.convert_config import SUPPORT
from mnemoscope.exchange.lens.export_model import write_transformer_lens
from mnemoscope.exchange.lens.import_model import read_transformer_lens

__all__ = ["SUPPORT", "read_transformer_lens", "write_transformer_lens"]
