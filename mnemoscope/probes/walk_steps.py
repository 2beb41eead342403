"""The steps of a walk besides attention: embedding, feed-forward layers and read-out."""

import numpy as np

from mnemoscope.probes.walk_lines import Line, Step, Writer


def walk_embedding(writer: Writer) -> None:
    """Tokens, and the positions that are added to them.

    Args:
        writer: Where the walk begins.
    """
    positions = writer.config.positions
    trace = writer.trace
    looked_up = f"W_E[{writer.ids.tolist()}]"
    lines = [writer.given("W_E", writer.params["embed.W_E"], writer.token_names)]
    if positions not in ("learned", "sinusoidal"):
        lines.append(writer.line("X", looked_up, writer.x))
        did = "Each position starts as its token"
        if positions == "none":
            did += ", wherever it stands"
        sentence = writer.move("embedding", lines[-1], did)
        writer.steps.append(Step("Look up the tokens", tuple(lines), sentence))
        return
    tokens = writer.line("E", looked_up, trace["hook_embed"])
    places = trace["hook_pos_embed"]
    if positions == "learned":
        lines.append(writer.given("W_pos", writer.params["pos_embed.W_pos"]))
        lines += [tokens, writer.line("P", f"W_pos[0:{len(writer.ids)}]", places)]
    else:
        lines += [tokens, *_sinusoids(writer)]
    lines.append(writer.line("X", "E + P", writer.x))
    did = "Each position starts as its token plus its place"
    sentence = writer.move("embedding + position", lines[-1], did)
    title = "Look up the tokens and their positions"
    writer.steps.append(Step(title, tuple(lines), sentence))


def _sinusoids(writer: Writer) -> list[Line]:
    """P, sines and cosines of the positions side by side, with the angles above it."""
    d_model = writer.config.d_model
    dims = range(d_model)
    angles = writer.angles(d_model, 10_000.0, [dims[i : i + 2] for i in dims[::2]])
    formula = "interleave(sin(Phi), cos(Phi))"
    if d_model % 2:
        formula += f"[:, 0:{d_model}]"
    return [angles, writer.line("P", formula, writer.trace["hook_pos_embed"])]


def walk_feed_forward(writer: Writer, layer: int) -> None:
    """Two matrices with the activation between them, at each position by itself.

    Args:
        writer: Where the walk is so far.
        layer: Which.
    """
    block = f"blocks.{layer}"
    mlp = f"{block}.mlp"
    g, f, result = (writer.name(base, layer) for base in "GFY")
    source, lines = writer.normed(f"{block}.ln2", "N2", layer)
    formula, before = _before_hidden(writer, layer, source)
    lines += [*before, writer.line(g, formula, writer.trace[f"{mlp}.hook_post"])]
    out = writer.trace[f"{block}.hook_mlp_out"]
    names = (writer.name("W_out", layer), writer.name("b_out", layer))
    lines += writer.affine(f, g, names, (f"{mlp}.W_out", f"{mlp}.b_out"), out)
    did = writer.pushes("The feed-forward layer", out)
    key = "feed-forward"
    if writer.waiting:
        key = "attention + feed-forward"
        did += ", and what attention found is added with it"
    lines += writer.add(f"{block}.ln2", lines[-1], result)
    sentence = writer.move(f"{key}{writer.which(layer)}", lines[-1], did)
    title = "Feed forward, each position by itself"
    writer.steps.append(Step(title, tuple(lines), sentence))


def _before_hidden(writer: Writer, layer: int, source: str) -> tuple[str, list[Line]]:
    """The formula of the hidden units, and the lines that it is made of."""
    config = writer.config
    mlp = f"blocks.{layer}.mlp"
    w_in = writer.name("W_in", layer)
    b_in = writer.name("b_in", layer)
    pre = writer.trace[f"{mlp}.hook_pre"]
    if not config.gated_mlp:
        h = writer.name("H", layer)
        params = (f"{mlp}.W_in", f"{mlp}.b_in")
        return _activated(writer, h), writer.affine(h, source, (w_in, b_in), params, pre)
    gate = writer.name("H_gate", layer)
    linear = writer.name("H_in", layer)
    w_gate = writer.name("W_gate", layer)
    into = writer.trace[f"{mlp}.hook_pre_linear"]
    lines = [
        *writer.affine(gate, source, (w_gate, ""), (f"{mlp}.W_gate", ""), pre),
        # its bias comes after the product
        *writer.affine(linear, source, (w_in, ""), (f"{mlp}.W_in", ""), into),
    ]
    formula = f"{_activated(writer, gate)} * {linear}"
    if f"{mlp}.b_in" in writer.params:
        lines.append(writer.given(b_in, writer.params[f"{mlp}.b_in"]))
        formula += f" + {b_in}"
    return formula, lines


def _activated(writer: Writer, name: str) -> str:
    return name if writer.config.act == "linear" else f"{writer.config.act}({name})"


def walk_read_out(writer: Writer, probabilities: np.ndarray) -> None:
    """Logits, probabilities, and the answer after every token.

    Args:
        writer: Where the walk is so far.
        probabilities: Of every token after every token.
    """
    w, b = writer.reading
    names = writer.token_names
    lines = []
    source = writer.at
    if writer.config.norm == "pre":
        source = "N_final"
        lines = writer.norm("ln_final", writer.at, source)
    read = writer.given("W_U", w, (), names)
    if writer.config.tied:
        read = Line("W_U", "W_E^T", w, read.rows, names)
    lines.append(read)
    formula = f"{source} @ W_U"
    if "unembed.b_U" in writer.params:
        lines.append(writer.given("b_U", b, (), names))
        formula += " + b_U"
    lines.append(writer.line("L", formula, writer.logits, names))
    lines.append(writer.line("Pr", "softmax(L)", probabilities, names))
    told = []
    for where, row in zip(writer.prompt, probabilities, strict=True):
        told.append(f"after {where} comes {names[row.argmax()]} ({row.max():.1%})")
    writer.steps.append(Step("Read out", tuple(lines), f"The model says: {', '.join(told)}."))
