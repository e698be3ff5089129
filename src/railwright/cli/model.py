"""`railwright model`: what a transformer consists of and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.groups import group

if TYPE_CHECKING:
    from railwright.model.shape.architecture import Transformer


def add_to(app: typer.Typer) -> None:
    """Hang the commands of this file on the application."""
    commands = group("Show model architectures and their cost.")
    commands.command("list")(list_models)
    commands.command("families")(list_families)
    commands.command("show")(show)
    app.add_typer(commands, name="model")


def list_models() -> None:
    """List the bundled models."""
    from railwright.cli.tables import print_table
    from railwright.model import bundled_models, count_parameters, load_model
    from railwright.units import show_count

    lines = []
    for name in bundled_models():
        arch = load_model(name)
        parameters = count_parameters(arch)
        experts = f"{arch.experts_per_token} of {arch.experts}" if arch.is_moe else ""
        lines.append(
            (name, show_count(parameters.total), show_count(parameters.active), str(arch.layers), experts)
        )
    print_table(("name", "parameters", "active", "layers", "experts"), lines)


def list_families() -> None:
    """List the model_type of every config.json that is read."""
    from railwright.model.configs.families import FAMILIES

    # One a line: for grep, and for eyes.
    for kind in sorted(FAMILIES, key=str.lower):
        typer.echo(kind)


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Bundled name, or path of a config.json.")],
    sequence: Annotated[
        int, typer.Option("--sequence", "-s", min=1, help="Sequence length in tokens.")
    ] = 4096,
) -> None:
    """Show shape, parameters and FLOPs per token."""
    from railwright.cli.tables import print_table
    from railwright.model import count_parameters, flops_per_token, load_model
    from railwright.model.shape.pattern import full_layers, num_moe_layers
    from railwright.units import show_count

    arch = load_model(name)
    parameters = count_parameters(arch)
    flops = flops_per_token(arch, sequence)
    lines = [
        ("layers", str(arch.layers)),
        ("hidden", show_count(arch.hidden)),
        *_attention(arch),
        ("MLP width", show_count(arch.ffn)),
        ("vocabulary", show_count(arch.vocab)),
        ("LM head", "shares the embedding's weights" if arch.tied_embeddings else "has weights of its own"),
    ]
    lines += _mixers(arch)
    if arch.is_moe:
        shared = f", {arch.shared_experts} shared" if arch.shared_experts else ""
        width = f"{arch.experts} of width {show_count(arch.expert_ffn)}"
        latent = f", of latents of width {show_count(arch.expert_latent)}" if arch.expert_latent else ""
        lines.append(("experts", f"{width}, {arch.experts_per_token} per token{latent}{shared}"))
        lines.append(("layers with experts", f"{num_moe_layers(arch)} of {arch.layers}"))
    if arch.sliding_window:
        span = f"{'chunks' if arch.window_chunked else 'window'} of {show_count(arch.sliding_window)} tokens"
        lines.append((span, f"in {arch.layers - full_layers(arch)} of {arch.layers} layers"))
    if arch.mtp_layers:
        layers = "1 extra layer" if arch.mtp_layers == 1 else f"{arch.mtp_layers} extra layers"
        told = f"{layers} of {show_count(parameters.mtp)} parameters, in no figure below"
        lines.append(("multi-token prediction", told))
    lines += [
        ("parameters", f"{show_count(parameters.total)} ({parameters.total:,.0f})"),
        ("active parameters", f"{show_count(parameters.active)} ({parameters.active:,.0f})"),
        ("FLOPs per token, forward", f"{flops.forward:.4g}"),
        ("FLOPs per token, training", f"{flops.total:.4g}"),
        ("at sequence", f"{show_count(sequence)} tokens, {_scores(arch, sequence)}"),
        ("source", arch.source),
    ]
    print_table((arch.name, ""), lines)
    for note in arch.notes:
        typer.echo(f"! {note}")


def _attention(arch: Transformer) -> list[tuple[str, str]]:
    """Heads and their widths; of latent attention also the ranks."""
    from railwright.model.shape.pattern import layer_kinds, takes_keys
    from railwright.units import show_count

    if arch.attention == "gqa":
        heads = f"gqa, {arch.heads} heads of {arch.head_dim}, {arch.kv_heads} for keys and values"
        if arch.v_head_dim:
            heads += f", values of {arch.v_head_dim}"
        if arch.window_heads:
            shared = arch.window_kv_heads or arch.kv_heads
            of = f" of {arch.window_head_dim}" if arch.window_head_dim else ""
            heads += f"; in layers with a window {arch.window_heads} heads{of}, {shared} for keys and values"
        gates = {"": "", "head": ", outputs gated by head", "element": ", outputs gated by element"}
        return [("attention", heads + gates[arch.attention_gate])]
    queries = show_count(arch.q_lora) if arch.q_lora else "none"
    keys = f"keys of {arch.head_dim} and {arch.rope_dim} rotary, values of {arch.v_head_dim}"
    index = f"{arch.index_heads} index heads of {arch.index_dim}"
    chosen = f"the best {show_count(arch.index_topk)}, chosen by {index}"
    if sharing := sum(map(takes_keys, layer_kinds(arch))):
        chosen += f" in all but {sharing} layers, which take those of a layer before"
    return [
        ("attention", f"mla, {arch.heads} heads; {keys}"),
        ("latent ranks", f"{queries} for queries, {show_count(arch.kv_lora)} for keys and values"),
        *([("keys met", chosen)] if arch.index_topk else []),
    ]


def _mixers(arch: Transformer) -> list[tuple[str, str]]:
    """Layers of a model that are not all attention with an MLP."""
    from railwright.model.shape.pattern import is_hybrid, num_layers

    if not is_hybrid(arch):
        return []
    found = [("layers with attention", f"{num_layers(arch, mixer='attention')} of {arch.layers}")]
    if mixer := arch.linear:
        heads = f"{mixer.heads} heads of {mixer.value_dim}, {mixer.key_heads} of keys of {mixer.key_dim}"
        count = num_layers(arch, mixer="linear")
        found.append(("linear layers", f"{count} of {arch.layers}: {MIXERS[mixer.kind]}, {heads}"))
    return found


MIXERS = {
    "mamba2": "Mamba-2",
    "gated_deltanet": "gated delta net",
    "kda": "Kimi delta attention",
    "lightning": "lightning attention",
}
"""How linear mixers are called."""


def _scores(arch: Transformer, sequence: int) -> str:
    """Which attention scores the FLOPs count (`model.shape.flops.attended_keys`)."""
    from railwright.model.shape.pattern import full_layers

    if 0 < arch.index_topk < sequence:
        return f"attention scores of {arch.index_topk:,} keys, index scores of all"
    if not 0 < arch.sliding_window < sequence:
        return "full attention scores"
    span = "chunk" if arch.window_chunked else "window"
    rest = f", in {full} layers of the whole sequence" if (full := full_layers(arch)) else ""
    return f"attention scores of the whole {span}{rest}"
