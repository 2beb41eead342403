"""Every public name of TransformerLens 3.5's objects; a test of `interop` holds the lists to the
library that is installed.
"""


def _names(text):
    return tuple(text.split())


# PyTorch's, which a model there has too
MODULE = _names("""
    T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda
    double dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter
    get_submodule half ipu load_state_dict modules mtia named_buffers named_children
    named_modules named_parameters parameters register_backward_hook register_buffer
    register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_load_state_dict_post_hook
    register_load_state_dict_pre_hook register_module register_parameter
    register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state
    set_submodule share_memory state_dict to to_empty train training type xpu zero_grad
""")
MODEL = _names("""
    OV QK W_E W_E_pos W_K W_O W_Q W_U W_V W_gate W_in W_out W_pos accumulated_bias
    add_caching_hooks add_hook add_perma_hook all_composition_scores all_head_labels b_K b_O
    b_Q b_U b_V b_in b_out blocks cache_all cache_some center_unembed center_writing_weights
    cfg check_and_add_hook check_hooks_to_add clear_contexts context_level dataset embed
    fill_missing_keys fold_layer_norm fold_value_biases from_pretrained
    from_pretrained_no_processing generate generate_stream get_caching_hooks get_pos_offset
    get_residual get_token_position hook_dict hook_embed hook_points hook_pos_embed hooks
    init_weights input_to_embed is_caching list_hooks ln_final load_and_process_state_dict
    load_sample_training_dataset loss_fn mod_dict move_model_modules_to_device mps
    n_params_total pos_embed process_weights_ refactor_factored_attn_matrices
    remove_all_hook_fns reset_hooks run_with_cache run_with_hooks sample_datapoint
    set_tokenizer set_ungroup_grouped_query_attention set_use_attn_in set_use_attn_result
    set_use_hook_mlp_in set_use_split_qkv_input setup to_single_str_token to_single_token
    to_str_tokens to_string to_tokens tokenizer tokens_to_residual_directions unembed
""")
CACHE = _names("""
    accumulated_resid apply_ln_to_stack apply_slice_to_batch_dim cache_dict
    compute_head_results compute_ssm_effective_attention compute_ssm_state decompose_resid
    get_full_resid_decomposition get_neuron_results has_batch_dim has_embed has_pos_embed items
    keys logit_attrs model remove_batch_dim ssm_layers stack_activation stack_head_results
    stack_neuron_results to toggle_autodiff values
""")
FACTORED = _names("""
    A AB B BA S T U V Vh collapse_l collapse_r eigenvalues get_corner has_leading_dims ldim
    make_even mdim ndim norm pair rdim shape svd unsqueeze
""")
HOOK_POINT = _names("""
    add_hook add_perma_hook backward_scale bwd_hooks clear_context ctx enable_reshape fwd_hooks
    has_hooks hook_conversion layer name remove_hooks
""")
