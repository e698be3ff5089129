"""Tensors of a layer's experts, as `layer` lists those of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from railwright.model.operators.cut import Cut
from railwright.model.operators.kernels import ELEMENT

if TYPE_CHECKING:
    from railwright.model.tensors.layer import Tape


def experts(tape: Tape, before: str, cut: Cut) -> None:
    """Router, exchange of tokens, grouped products, the way back, and the shared expert; or one expert after
    the other."""
    arch, ep, etp = tape.arch, cut.ep, cut.expert_tp or cut.tp
    norm = read = tape.mlp_norm(before)
    if arch.branch_norms:
        read = "router norm output"
        tape.norm(before, read)
    if "experts" in cut.unfused:
        tape.op((read,), {"router": (0.0, tape.kept.get("router", 0.0))}, (read, "router"))
        _one_by_one(tape, norm)
        _end(tape, before, norm)
        return
    part = tape.part * arch.expert_width / arch.hidden
    sent = part * arch.experts_per_token
    received = tape.rows * arch.experts_per_token * etp / tape.tp * cut.imbalance
    rows, inner = ELEMENT * received * arch.expert_width, arch.expert_ffn / etp
    up = 2 if arch.gated else 1
    tape.op((read,), {"router": (0.0, tape.kept.get("router", 0.0))}, (read, "router"))
    of = _latents(tape, norm, part) if arch.expert_latent else norm
    tape.op((of,), {"permuted": (sent, sent)})
    of = "permuted"
    if ep > 1 or etp > 1:
        tape.op((of,), {"dispatched": (rows, rows)})
        of = "dispatched"
    tape.op((of,), {"expert input": tape.size("expert input", rows)})
    here = round(arch.experts / ep)
    wide = ELEMENT * received * inner
    tape.product(
        "expert input",
        "expert up output",
        tape.size("expert up output", up * wide),
        "expert input",
        *[up * inner * arch.expert_width] * here,
    )
    tape.activation("expert up output", "expert product", tape.size("expert product", wide))
    second = [inner * arch.expert_width] * here
    tape.product("expert product", "expert output", (rows, rows), "expert product", *second)
    if cut.by_pytorch:
        weighted = tape.size("expert output, weighted", rows)
        of = "expert output, weighted"
        tape.op(("expert output",), {of: weighted}, ("expert output", of))
    else:
        tape.op(("expert output",), {"unsorted": (rows, rows)})
        of = "unsorted"
    if ep > 1 or etp > 1:
        tape.op((of,), {"returned": (sent, sent)})
        of = "returned"
    if arch.expert_latent:
        _from_latents(tape, of, part)
    else:
        tape.op((of,), {"down": (tape.part, tape.part)})
    _end(tape, before, norm)


def _one_by_one(tape: Tape, norm: str) -> None:
    """Each expert gathers its rows, and what it makes is weighted and added to the sum of all at once.

    Autograd has the gradients of one expert after another, and adds those of what they gathered up.  What is
    added stays too, of which the gradient reads no more than its shape.
    Sources: as `model.operators.looped`'s; PyTorch, tools/autograd/derivatives.yaml (index_add).
    """
    arch = tape.arch
    rows = ELEMENT * tape.rows * arch.experts_per_token / arch.experts
    wide, gates = rows * arch.expert_ffn, 2 if arch.gated else 1
    size, weight = rows * arch.hidden, arch.hidden * arch.expert_ffn
    added: list[str] = []

    def named(name: str, i: int) -> str:
        tape.groups[f"{name} {i}"] = name
        return f"{name} {i}"

    def made(name: str, full: float) -> tuple[float, float]:
        return full, tape.kept.get(name, full * arch.experts) / arch.experts

    for i in range(arch.experts):
        given, up, product, out = (
            named(name, i) for name in ("expert input", "expert up output", "expert product", "expert output")
        )
        tape.op((norm,), {given: made("expert input", size)})
        tape.product(given, up, made("expert up output", gates * wide), given, *[weight] * gates)
        inner = {}
        if "expert activated" in tape.kept:
            inner = {named("expert activated", i): (0.0, tape.kept["expert activated"] / arch.experts)}
        tape.op((up,), {**inner, product: made("expert product", wide)}, (up, *inner))
        tape.product(product, out, made("expert output", size), product, weight)
        weighted = named("expert output, weighted", i)
        held = made("expert output, weighted", size)[1]
        tape.op((out,), {weighted: (tape.part, held)}, (out, weighted))
        added.append(weighted)
    tape.op(tuple(added), {"down": (tape.part, tape.part)}, same=True)


def _end(tape: Tape, before: str, norm: str) -> None:
    """The shared expert beside what the others gave, `down`, and the end of the layer."""
    arch = tape.arch
    more: tuple[str, ...] = ()
    if arch.shared_ffn:
        if arch.shared_norm:
            norm = "shared norm output"
            tape.norm(before, norm)
        more = _shared(tape, norm)
    of = "down"
    if arch.branch_norms:
        of, *more_normed = (_normed(tape, branch, ()) for branch in (of, *more))
        more = tuple(more_normed)
    if arch.experts_norm and arch.norms_per_layer < 4:
        of = _normed(tape, "down", more)
        more = ()
    split, tape.split = tape.split, 1
    tape.end(before, of, *more)
    tape.split = split


def _latents(tape: Tape, norm: str, part: float) -> str:
    """Down to latents; in narrow formats of a copy that is quantised for it."""
    of = norm
    if "latents' input" in tape.kept:
        of = "latents' input"
        tape.op((norm,), {of: tape.size(of, tape.part)})
    tape.product(of, "latents", (part, part), of, tape.arch.hidden * tape.arch.expert_latent)
    return "latents"


def _from_latents(tape: Tape, of: str, part: float) -> None:
    """What experts gave, summed over those of a token, and up to hidden states again."""
    if "latents' input" in tape.kept:
        tape.op((of,), {"latents back": (part, part)})
        of = "latents back"
    tape.op((of,), {"expert latents": tape.size("expert latents", part)})
    weight = tape.arch.hidden * tape.arch.expert_latent
    tape.product("expert latents", "down", (tape.part, tape.part), "expert latents", weight)


def _normed(tape: Tape, of: str, more: tuple[str, ...]) -> str:
    """What experts and shared expert give together, normed."""
    if more:
        tape.op((of, *more), {"experts together": (tape.part, tape.part)}, same=True)
        of = "experts together"
    tape.normed((of,), {f"{of}, normed": (tape.part, tape.part)}, of, "output norms")
    tape.groups[of] = "output norm inputs"
    return f"{of}, normed"


def _shared(tape: Tape, norm: str) -> tuple[str, ...]:
    arch = tape.arch
    inner = arch.shared_ffn / tape.tp
    up = (2 if arch.gated else 1) * inner
    of, keeps = tape.gathered(norm), norm
    if "shared input" in tape.kept:
        tape.op((of,), {"shared input": tape.size("shared input", tape.full)})
        of = keeps = "shared input"
    tape.product(of, "shared up output", tape.wide("shared up output", up), keeps, up * arch.hidden)
    tape.activation("shared up output", "shared product", tape.wide("shared product", inner))
    tape.product(
        "shared product", "shared down", (tape.full, tape.full), "shared product", inner * arch.hidden
    )
    if tape.split == 1:
        return ("shared down",)
    tape.op(("shared down",), {"shared down, scattered": (tape.part, tape.part)})
    return ("shared down, scattered",)
