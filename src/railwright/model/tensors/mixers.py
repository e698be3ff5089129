"""The tensors of a linear mixer, written on a layer's tape (`layer`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from railwright.model.operators.mixer_operators import mixer_working
from railwright.model.shape.mixers import low_rank, mixer_of, projected
from railwright.model.tensors.tensor_lists import INPUT

if TYPE_CHECKING:
    from railwright.model.tensors.layer import Tape

OWN = ("mixer rule", "mixer gates", "mixer normed")
"""What a mixer's kernels keep beside what they read and make (`mixer_operators.mixer_keeps`)."""


def linear_mixer(tape: Tape, out: str) -> str:
    """Norm, product, kernels, product; `out` is what the layer goes on with, and is returned.

    What the kernels need for themselves comes and goes with the one that scans.
    """
    arch, mixer, norm = tape.arch, mixer_of(tape.arch), "mixer norm output"
    tape.groups[INPUT] = "mixer norm input"
    tape.norm(INPUT, norm)
    of, wide = tape.gathered(norm), projected(mixer) / tape.tp
    middle, behind = low_rank(mixer)
    thin = (middle * arch.hidden, behind * mixer.value_dim) if middle else ()
    made = tape.wide("mixer projected", wide)
    tape.product(of, "mixer projected", made, norm, wide * arch.hidden, *thin)
    ahead, back = (tape.rows * each for each in mixer_working(arch, tape.tp))
    values = mixer.values / tape.tp
    makes = {"mixer scanned": tape.wide("mixer scanned", values)}
    makes |= {name: (0.0, tape.kept[name]) for name in OWN if name in tape.kept}
    tape.op(("mixer projected",), makes, ("mixer projected", *makes), beside=(ahead, back))
    tape.op(("mixer scanned",), {"mixer output": tape.wide("mixer output", values)}, ("mixer scanned",))
    full = (tape.full, tape.full)
    tape.product("mixer output", "projected", full, "mixer output", values * arch.hidden)
    tape.closing("projected", INPUT, out)
    return out
