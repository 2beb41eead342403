"""The steps of a walk through a layer's attention: Q, K, V, their turns, each head, the output."""

import numpy as np

from mnemoscope.models.attention_kinds import ATTENTION
from mnemoscope.models.shapes import heads_of_qkv
from mnemoscope.probes.walk_lines import Line, Rows, Step, Writer, exact


def walk_attention(writer: Writer, layer: int) -> None:
    """Every step of one layer's attention.

    Args:
        writer: Where the walk is so far.
        layer: Which.
    """
    _project(writer, layer)
    if writer.config.positions == "rotary":
        _turn(writer, layer)
    for head in range(writer.config.n_heads):
        _attend(writer, layer, head)
    _write(writer, layer)


def _project(writer: Writer, layer: int) -> None:
    """The packed product of queries, keys and values, and its split by head."""
    attn = f"blocks.{layer}.attn"
    params = writer.params
    packed = writer.name("QKV", layer)
    source, lines = writer.normed(f"blocks.{layer}.ln1", "N", layer)
    weights = []
    biases = []
    views = []
    for letter in "QKV":
        w = params[f"{attn}.W_{letter}"]
        weights.append(w.transpose(1, 0, 2).reshape(w.shape[1], -1))
        biases.append(params.get(f"{attn}.b_{letter}", np.zeros(0)).ravel())
        view = writer.trace[f"{attn}.hook_{letter.lower()}"]
        views.append(view.reshape(len(view), -1))
    lines.append(writer.given(f"W_{packed}", np.concatenate(weights, axis=1)))
    formula = f"{source} @ W_{packed}"
    if f"{attn}.b_Q" in params:
        lines.append(writer.given(f"b_{packed}", np.concatenate(biases)))
        formula += f" + b_{packed}"
    whole = np.concatenate(views, axis=1)
    lines.append(writer.line(packed, formula, whole))
    lines += _split_by_head(writer, layer, packed, whole)
    sentence = (
        f"Three views of the same vectors{_shared(writer, layer)}; nothing is written yet, "
        f"so {writer.stay()}."
    )
    title = "Q, K, V: queries, keys and values"
    writer.steps.append(Step(title, tuple(lines), sentence))


def _split_by_head(writer: Writer, layer: int, packed: str, whole: Rows) -> list[Line]:
    """Each head's columns of the packed product: all queries, then all keys, then values."""
    lines = []
    end = 0
    for letter, n in heads_of_qkv(writer.config).items():
        for name in writer.names_by_head(letter, layer, n):
            begin = end
            end = begin + writer.config.d_head
            lines.append(writer.line(name, f"{packed}[:, {begin}:{end}]", whole[:, begin:end]))
    return lines


def _shared(writer: Writer, layer: int) -> str:
    """Which heads share keys and values, where any do."""
    n_heads = writer.config.n_heads
    n = writer.config.n_key_value_heads
    if n == n_heads:
        return ""
    size = n_heads // n
    groups = []
    for group in range(n):
        heads = ", ".join(map(str, range(group * size, (group + 1) * size)))
        which = f" g{group}" if n > 1 else ""
        groups.append(f"heads {heads} share keys and values{which}")
    return f"; {', '.join(groups)}"


def _turn(writer: Writer, layer: int) -> None:
    """Queries and keys turned by the angles of their positions."""
    config = writer.config
    dims = config.rotary_dim
    lines = []
    if not any(config.has_attn(before) for before in range(layer)):
        # the angles are the same in all layers
        half = dims // 2
        if config.rotary_adjacent_pairs:
            pairs = [(2 * i, 2 * i + 1) for i in range(half)]
        else:
            pairs = [(i, i + half) for i in range(half)]
        lines.append(writer.angles(dims, config.rotary_base, pairs))
    heads = heads_of_qkv(config)
    for letter in "QK":
        turned = writer.trace[f"blocks.{layer}.attn.hook_rot_{letter.lower()}"]
        before = writer.names_by_head(letter, layer, heads[letter])
        after = writer.names_by_head(f"{letter}_rot", layer, heads[letter])
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            lines.append(writer.line(new, f"rotate({old}, Phi)", turned[:, i]))
    rest = config.d_head - dims
    others = f"; the last {rest} of {config.d_head} dimensions stay" if rest else ""
    sentence = (
        "Each pair of dimensions (a, b) turns by its angle, into (a cos - b sin, a sin + b cos)"
        f"{others}. Of positions, scores then know only how far apart they are; {writer.stay()}."
    )
    title = "Turn queries and keys by their positions"
    writer.steps.append(Step(title, tuple(lines), sentence))


def _attend(writer: Writer, layer: int, head: int) -> None:
    """One head: scores, mask, pattern, and the values it carries."""
    config = writer.config
    attn = f"blocks.{layer}.attn"
    kind = ATTENTION[config.attention]
    is_rotary = config.positions == "rotary"
    group = head * config.n_key_value_heads // config.n_heads
    s, m, a, z = (writer.names_by_head(base, layer, config.n_heads)[head] for base in "SMAZ")
    turned = "_rot" if is_rotary else ""
    q = writer.names_by_head(f"Q{turned}", layer, config.n_heads)[head]
    k = writer.names_by_head(f"K{turned}", layer, config.n_key_value_heads)[group]
    v = writer.names_by_head("V", layer, config.n_key_value_heads)[group]
    site = "hook_rot_" if is_rotary else "hook_"
    scores = writer.trace[f"{attn}.{site}q"][:, head] @ writer.trace[f"{attn}.{site}k"][:, group].T
    formula = f"{q} @ {k}^T"
    if kind.is_scaled:
        scores = scores / np.sqrt(config.d_head)
        formula += f" / sqrt({config.d_head})"
    lines = [writer.line(s, formula, scores, writer.places)]
    seen = s
    if config.causal:
        hidden = "" if np.isneginf(kind.hidden) else f", {exact(kind.hidden)}"
        seen = f"mask({s}{hidden})"
    if config.attention != "linear":
        if config.causal:
            masked = writer.trace[f"{attn}.hook_attn_scores"][head]
            lines.append(writer.line(m, seen, masked, writer.places))
            seen = m
        seen = f"{config.attention}({seen})"
    pattern = writer.trace[f"{attn}.hook_pattern"][head]
    carried = writer.trace[f"{attn}.hook_z"][:, head]
    lines += [
        writer.line(a, seen, pattern, writer.places),
        writer.line(z, f"{a} @ {v}", carried),
    ]
    is_one_of_many = config.n_heads > 1
    who = f"Head {head}" if is_one_of_many else "The head"
    sentence = f"{who} {_looks(writer, pattern)}; {writer.stay()} until it writes."
    title = f"Attend, head {head}" if is_one_of_many else "Attend"
    writer.steps.append(Step(title, tuple(lines), sentence))


def _looks(writer: Writer, pattern: Rows) -> str:
    """Where a head looks from the last position."""
    last = pattern[-1]
    most = int(np.abs(last).argmax())
    if not last[most]:
        return "looks, from the last position, at nothing"
    share = f"{last[most]:.0%}" if writer.config.attention == "softmax" else f"{last[most]:.2f}"
    return f"looks, from the last position, most at {writer.places[most]} ({share})"


def _write(writer: Writer, layer: int) -> None:
    """What the heads carry, through W_O and into the stream."""
    block = f"blocks.{layer}"
    config = writer.config
    z, o, result = (writer.name(base, layer) for base in "ZOR")
    lines = []
    if config.n_heads > 1:
        heads = ", ".join(writer.names_by_head("Z", layer, config.n_heads))
        carried = writer.trace[f"{block}.attn.hook_z"].reshape(len(writer.ids), -1)
        lines.append(writer.line(z, f"concat({heads})", carried))
    out = writer.trace[f"{block}.hook_attn_out"]
    names = (writer.name("W_O", layer), writer.name("b_O", layer))
    lines += writer.affine(o, z, names, (f"{block}.attn.W_O", f"{block}.attn.b_O"), out)
    did = writer.pushes("Attention", out)
    if config.parallel_attn_mlp and config.has_mlp(layer):
        writer.waiting.append(lines[-1])
        title = "What attention found"
        sentence = f"{did}; it waits for the feed-forward layer, which reads the same stream."
        writer.steps.append(Step(title, tuple(lines), sentence))
        return
    lines += writer.add(f"{block}.ln1", lines[-1], result, config.attn_residual)
    title = "Write what attention found into the stream"
    if not config.attn_residual:
        title = "Put what attention found in the stream's place"
    sentence = writer.move(f"attention{writer.which(layer)}", lines[-1], did)
    writer.steps.append(Step(title, tuple(lines), sentence))
