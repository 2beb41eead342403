"""Names that objects of TransformerLens have and ours do without, with what to use instead.

A model there is a module of PyTorch, with hooks, a tokenizer and a device that stay on it. Here a
model is data: whatever acts on it is given to the call.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from mnemoscope.core.errors import NoSuchNameError, UserError

NO_PRETRAINED = (
    "no 'from_pretrained' here: mnemoscope.load_model reads language models, and what "
    "TransformerLens wrote, from folders"
)
_PLACES = "JAX places arrays: jax.device_put(model, device) is a copy there"


def _by_name(groups: Mapping[str, str]) -> Mapping[str, str]:
    """What to use instead, by name, from the names that share an answer."""
    return MappingProxyType({name: say for say, names in groups.items() for name in names.split()})


MODEL = _by_name(
    {
        "prompts are rows of token numbers; mnemoscope.load_model gives a language model with "
        "its model.tokenizer, which has encode and decode": """
            to_tokens to_string to_str_tokens to_single_token to_single_str_token
            get_token_position tokenizer set_tokenizer""",
        "no hook stays on a model; run_with_hooks(tokens, fwd_hooks=[...]) takes those of one "
        "run": """
            hooks add_hook add_perma_hook check_and_add_hook check_hooks_to_add list_hooks
            remove_all_hook_fns clear_contexts context_level register_forward_hook
            register_forward_pre_hook""",
        "jax.grad of a function of an edit's value is the gradient at a site": """
            register_backward_hook register_full_backward_hook
            register_full_backward_pre_hook zero_grad requires_grad_""",
        "run_with_cache(tokens, names_filter=...) returns the cache": """
            add_caching_hooks cache_all cache_some get_caching_hooks is_caching""",
        "there is no site hook_attn_in; allowed: edits and hooks at q_input, k_input and "
        "v_input": "set_use_attn_in",
        "there is no site hook_mlp_in; allowed: edits and hooks at resid_mid": """
            set_use_hook_mlp_in""",
        "shared keys and values stay shared; model.W_K has them once for each head": """
            set_ungroup_grouped_query_attention""",
        "weights stay as they were trained; cache.apply_ln_to_stack applies a norm's too": """
            process_weights_ fold_layer_norm fold_value_biases center_unembed
            center_writing_weights refactor_factored_attn_matrices fill_missing_keys""",
        "cache['embed'] and cache['pos_embed'] are what goes in": """
            input_to_embed get_pos_offset get_residual""",
        "nothing is added to the embedding where positions are none or rotary": "hook_pos_embed",
        "model(tokens) runs it": "forward",
        "model.generate(tokens, max_new_tokens=...) returns whole prompts": "generate_stream",
        "mnemoscope.tasks has what models are trained on": """
            load_sample_training_dataset sample_datapoint dataset""",
        "mnemoscope.models.init draws parameters": "init_weights setup",
        _PLACES: """
            to cpu cuda mps xpu ipu mtia device move_model_modules_to_device to_empty
            share_memory""",
        "each array has its dtype: jax.tree.map(lambda x: x.astype('float16'), model) is a copy "
        "with another": "float half double bfloat16 type",
        "a model has no mode, since nothing is dropped at random": "train training",
        "jax.jit compiles a function of the model": "compile",
        "model.params has every parameter by name, and named_parameters() their pairs": """
            parameters get_parameter register_parameter buffers named_buffers get_buffer
            register_buffer n_params_total""",
        "model.blocks has the layers and hook_dict the sites by name": """
            mod_dict modules named_modules children named_children get_submodule set_submodule
            add_module register_module apply extra_repr""",
        "mnemoscope.load_model reads models": """
            load_state_dict load_and_process_state_dict register_load_state_dict_post_hook
            register_load_state_dict_pre_hook register_state_dict_post_hook
            register_state_dict_pre_hook get_extra_state set_extra_state""",
        "a model is no module of PyTorch": "T_destination call_super_init dump_patches",
    }
)

CACHE = _by_name(
    {
        _PLACES.replace("model", "cache[name]"): "to",
        "results of heads are cached; cache['result', layer] has them": "compute_head_results",
        "jax.grad of a function of an edit's value is the gradient at a site": "toggle_autodiff",
        "no model here has state-space layers": """
            ssm_layers compute_ssm_state compute_ssm_effective_attention""",
    }
)

HOOK_POINT = _by_name(
    {
        "no hook stays on a model; run_with_hooks(tokens, fwd_hooks=[...]) takes those of one "
        "run": """
            add_hook add_perma_hook remove_hooks has_hooks fwd_hooks""",
        "jax.grad of a function of an edit's value is the gradient at a site": """
            bwd_hooks backward_scale""",
        "a function keeps what it finds in a variable of its own": "ctx clear_context",
        "a hook gets the value with the axes that model.config.sites() says": """
            enable_reshape hook_conversion""",
    }
)


def refuse(names: Mapping[str, str], kind: str, name: str) -> NoReturn:
    """Raise for an attribute that is not there; in one line that helps where TransformerLens has
    it.

    Args:
        names: Those of one of its objects: `MODEL`, `CACHE` or `HOOK_POINT`.
        kind: The class that was asked.
        name: The attribute.
    """
    if name in names:
        raise NoSuchNameError(f"no {name!r} here: {names[name]}")
    raise AttributeError(f"{kind!r} object has no attribute {name!r}")


def refuse_keywords(other: Mapping[str, Any], allowed: str) -> None:
    """Raise for keywords that TransformerLens takes here and we do not.

    Args:
        other: The keywords that are left.
        allowed: Those that there are, in words.
    """
    if "bwd_hooks" in other:
        raise UserError("no bwd_hooks; allowed: jax.grad of a function of an edit's value")
    if "project_output_onto" in other:
        raise UserError("no project_output_onto; allowed: the stack @ directions")
    for name in other:
        raise UserError(f"no keyword {name!r}; allowed: {allowed}")
