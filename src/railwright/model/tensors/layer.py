"""Which tensors the operators of a layer make, read and keep, in the order they run.

`activations` says how many bytes a pass keeps.  Here is when each tensor comes and goes, which is what a
caching allocator sees (`training/memory/allocator.py`).

Legend: rows tokens of a microbatch in the tensor-parallel group; part, full hidden states of one tensor rank
and of all.
"""

from __future__ import annotations

from collections.abc import Mapping

from railwright.model.operators.cut import WHOLE, Cut
from railwright.model.operators.kernels import ELEMENT
from railwright.model.operators.norms import ENDS, WORKING
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.flops import gate_width, value_width
from railwright.model.shape.pattern import PARTS, Layer, additions, made_as
from railwright.model.tensors.experts import experts
from railwright.model.tensors.mixers import linear_mixer
from railwright.model.tensors.sparse_kept import sparse_latents, sparse_values
from railwright.model.tensors.tensor_lists import (
    BEFORE_EXCHANGE,
    INPUT,
    NARROW_OUTPUT,
    NARROW_QKV,
    OUTPUT,
    PROJECTED_INPUT,
    QKV,
    SCOPES,
    STORED,
    LayerTensors,
    Makes,
)


def layer_tensors(
    arch: Transformer,
    layer: Layer,
    rows: float,
    sequence: int,
    kept: Mapping[str, float],
    cut: Cut = WHOLE,
    *,
    exchanged: bool = False,
    working: float = 0.0,
    stays: tuple[str, ...] = (),
    copied: bool = False,
) -> LayerTensors:
    """The tensors of one layer; arguments as `layer_activations`, which `check_cut` must have passed.

    kept       `layer_activations` of the same layer without recomputation: sizes of what can be kept [byte]
    exchanged  heads are swapped for tokens around the attention (context parallelism by all-to-all)
    working    bytes that 'flash' attention needs for itself
    stays      outputs of norms that are kept as they were gathered over tensor ranks, and `kept` so
    copied     rows are copied around what gathers and scatters them along the sequence

    Read off Megatron-LM's modules (core/transformer/transformer_layer.py, attention.py, multi_latent_
    attention.py, mlp.py, moe/) and, for attention that is not fused, off Megatron-DeepSpeed's of 2022
    (megatron/model/transformer.py).  Tensors below a megabyte are left out.
    """
    arch = made_as(arch, layer)
    # autograd's kernels of 2021 and 2022 dropped into a tensor of its own before they added it
    drop_adds = cut.hidden_dropout == "fused" and not cut.biased
    mask = kept.get("dropout masks", 0.0) / additions(arch, layer)
    tape = Tape(arch, rows, kept, cut.tp, cut.split, stays, copied, mask, drop_adds)
    mixer, mlp = PARTS[layer]
    before, out = INPUT, "mlp norm input" if mlp else OUTPUT
    if mixer == "attention":
        before = tape.attention(cut, sequence, exchanged, working, out)
    elif mixer == "linear":
        before = linear_mixer(tape, out)
    else:
        tape.groups[INPUT] = "mlp norm input"
    if mlp == "dense":
        tape.mlp(before)
    elif mlp == "moe":
        experts(tape, before, cut)
    return tape.done()


class Tape:
    """Writes a layer's operators one after another.

    mask       of hidden states that are dropped before an addition [byte]
    drop_adds  what is left of dropped hidden states is added at once, and is no tensor
    """

    def __init__(
        self,
        arch: Transformer,
        rows: float,
        kept: Mapping[str, float],
        tp: int,
        split: int,
        stays: tuple[str, ...] = (),
        copied: bool = False,
        mask: float = 0.0,
        drop_adds: bool = False,
    ) -> None:
        self.arch, self.rows, self.kept, self.tp, self.split = arch, rows, kept, tp, split
        self.stays, self.copied = stays, copied
        self.full = ELEMENT * rows * arch.hidden
        self.part = self.full / split
        self.mask, self.drop_adds = mask, drop_adds
        self.operators: list[Makes] = []
        self.gradients: dict[str, float] = {INPUT: self.part}
        self.groups: dict[str, str] = {}

    def done(self) -> LayerTensors:
        made = {t for op in self.operators for t in op.makes}
        until = {}
        for tensor, last in SCOPES.items():
            # the rows that a scatter leaves take the place of all rows
            name = f"{tensor}, scattered" if f"{tensor}, scattered" in made else tensor
            if name in made and last in made:
                until[name] = last
        return LayerTensors(tuple(self.operators), self.gradients, self.groups, until)

    def op(
        self,
        reads: tuple[str, ...],
        makes: Mapping[str, tuple[float, float]],
        keeps: tuple[str, ...] = (),
        **rest: object,
    ) -> None:
        """Write one operator.

        makes  tensor -> bytes in 16 bits, which its gradient has, and those it is held in
        """
        self.operators.append(Makes(reads, {k: v[1] for k, v in makes.items()}, keeps, **rest))  # type: ignore[arg-type]
        self.gradients.update({k: v[0] for k, v in makes.items()})

    def size(self, name: str, default: float) -> tuple[float, float]:
        return default, self.kept.get(name, default)

    def norm(self, of: str, out: str) -> None:
        whole = out in self.stays
        held = self.kept.get(out, self.full) / self.split if whole else self.kept.get(out, self.part)
        self.normed((of,), {out: (self.part, held)}, of, out.removesuffix(" output"))

    def normed(
        self, reads: tuple[str, ...], makes: Mapping[str, tuple[float, float]], of: str, group: str
    ) -> None:
        """A norm of `of`, counted as `group`; one kernel per operation keeps other tensors (`norms.ENDS`)."""
        size, out = self.gradients[of], next(iter(makes))
        inner = {f"{out}{end}": end for end in ENDS if f"{group}{end}" in self.kept}
        self.groups |= {name: f"{group}{end}" for name, end in inner.items()}
        if not inner:
            self.op(reads, makes, (of,))
            return
        ahead, back = (times * size for times in WORKING)
        inside = {name: (0.0, ENDS[end] * size) for name, end in inner.items()}
        self.op(reads, {**inside, **makes}, tuple(inner), beside=(ahead, back))

    def activation(self, of: str, out: str, size: tuple[float, float]) -> None:
        """Between two products; one kernel per operation keeps the activated gates too.  What it reads may be
        kept in 8 bits, of which the backward pass makes 16 again."""
        gates, stored = f"{out.removesuffix(' product')} activated", f"{of}{STORED}"
        inner = {name: (0.0, self.kept[name]) for name in (gates, stored) if name in self.kept}
        self.op((of,), {**inner, out: size}, (of, *inner))

    def gathered(self, out: str) -> str:
        """The rows of all tensor ranks, by name; the backward pass gathers them again, unless they stay.

        Attention and an MLP that share a norm gather its output each for itself.
        """
        if self.split == 1:
            return out
        whole = f"{out}, gathered"
        if whole in self.gradients:
            whole = f"{out}, gathered twice"
        copy = self.full * self.copied
        if out in self.stays:
            made = self.size(out, self.full)
            self.op((out,), {whole: made}, beside=(made[1] * self.copied, copy))
            self.groups[whole] = out
            return whole
        size = self.kept.get(out, self.part) * self.split
        ahead = size * self.copied
        self.op((out,), {whole: (self.full, size)}, beside=(ahead, max(size + ahead, copy)))
        return whole

    def read(self, out: str, gathered: str) -> str:
        """What a product keeps of what it read: the rows of one tensor rank, or all of them."""
        return gathered if out in self.stays else out

    def product(self, of: str, out: str, size: tuple[float, float], keeps: str, *weights: float) -> None:
        self.op((of,), {out: size}, (keeps,), weights=weights)

    def closing(self, of: str, before: str, out: str, *more: str) -> None:
        """The rows of one tensor rank again, dropout, and the addition to what the block read."""
        if self.split > 1:
            copy = self.full * self.copied
            self.op((of,), {f"{of}, scattered": (self.part, self.part)}, beside=(copy, copy))
            of = f"{of}, scattered"
        if self.arch.norms_per_layer > 2:
            self.normed((of,), {f"{of}, normed": (self.part, self.part)}, of, "output norms")
            self.groups[of] = "output norm inputs"
            of = f"{of}, normed"
        if self.mask:
            mask, dropped = f"{of}, mask", f"{of}, dropped"
            left = 0.0 if self.drop_adds else self.part
            self.op(
                (of,),
                {dropped: (self.part, left), mask: (0.0, self.mask)},
                (mask,),
                beside=(left, 0.0),
            )
            self.groups[mask] = "dropout masks"
            of = dropped
        self.op((before, of, *more), {out: (self.part, self.part)}, same=True)

    def attention(self, cut: Cut, sequence: int, exchanged: bool, working: float, out: str) -> str:
        """The attention block; returns the name of what the MLP reads, `out` unless it runs beside it."""
        arch, rows = self.arch, self.rows
        self.norm(INPUT, "attention norm output")
        if arch.index_topk:
            qkv = sparse_latents(self, sequence)
        else:
            qkv = self._latent() if arch.attention == "mla" else self._grouped()
        value = value_width(arch)
        size = ELEMENT * rows * arch.heads / self.tp * (arch.kv_lora if arch.index_topk else value)
        if cut.attention == "flash":
            self._flash(qkv, size, exchanged, working)
        else:
            self._scores(qkv, cut.attention_dropout, ELEMENT * rows * sequence * arch.heads / self.tp, size)
        given = "attention output"
        if arch.attention_gate:
            made = {"gated output": self.size("gated output", size)}
            self.op(("attention gates", given), made, ("attention gates", given))
            given = "gated output"
        if arch.index_topk:
            given = sparse_values(self)
        weight = arch.hidden * arch.heads / self.tp * value
        self.product(given, "projected", (self.full, self.full), given, weight)
        if arch.norms_per_layer == 1:
            return "projected"
        self.closing("projected", INPUT, out)
        return out

    def _flash(self, qkv: str, out: float, exchanged: bool, working: float) -> None:
        """Attention in one kernel.  Where heads are swapped for tokens, all-to-alls read and write copies
        (Transformer Engine, context_parallel.py, flash_attn_a2a_communicate), of 8 bits where attention keeps
        its output so.  There 16-bit inputs are joined before they are cast, and in the backward pass their
        gradients in 8 bits before they are made 16 (`narrow.NARROW`)."""
        made, eight = "attention output", NARROW_OUTPUT in self.kept
        wire = 0.5 if eight else 1.0
        after = PROJECTED_INPUT if eight and not self.arch.attention_gate else made
        if after != made:
            self.groups[made] = after
        if exchanged:
            size, whole = self.gradients[qkv], f"{qkv}, exchanged"
            self.op((qkv,), {whole: (size, wire * size)}, beside=(wire * size, wire * size))
            self.groups[whole] = QKV
            qkv, made = whole, BEFORE_EXCHANGE
        lse = self.kept.get("attention scores", 0.0)
        makes = {made: self.size(made if exchanged else after, out), "log-sum-exp": (0.0, lse)}
        keeps, beside = (qkv, made), (working, working)
        if NARROW_QKV in self.kept:
            makes[NARROW_QKV] = (0.0, self.kept[NARROW_QKV])
            keeps = (NARROW_QKV, made)
        if eight:
            makes[NARROW_OUTPUT] = (0.0, self.kept[NARROW_OUTPUT])
            keeps = (NARROW_QKV, NARROW_OUTPUT)
            joined = 0.0 if exchanged else self.gradients[qkv]
            beside = (joined, out / 2 + self.gradients[qkv])
        self.op((qkv,), makes, (*keeps, "log-sum-exp"), beside=beside)
        self.groups["log-sum-exp"] = "attention scores"
        if exchanged:
            given = {"attention output": self.size(after, out)}
            self.op((made,), given, beside=(wire * out, wire * out))

    def _grouped(self) -> str:
        """One product makes queries, keys, values and gates; what is normed is another tensor before."""
        arch, norm = self.arch, "attention norm output"
        heads, keys = arch.heads / self.tp, max(arch.kv_heads / self.tp, 1.0)
        values, gates = value_width(arch) * keys, gate_width(arch) / self.tp
        size = ELEMENT * self.rows * (arch.head_dim * (heads + keys) + values)
        of, made = self.gathered(norm), arch.head_dim * (heads + keys) + values * (not arch.shared_values)
        weight = ((made + gates) * arch.hidden,)
        beside = {"attention gates": self.wide("attention gates", gates)} if gates else {}
        if not arch.qk_norm:
            self.op((of,), {QKV: (size, size), **beside}, (self.read(norm, of),), weights=weight)
            return QKV
        before = "query and key before norm"
        apart = 0.0 if arch.value_norm or arch.shared_values else ELEMENT * self.rows * values
        normed = ELEMENT * self.rows * made - apart
        parts = {before: (normed, normed), **({"values": (apart, apart)} if apart else {}), **beside}
        self.op((of,), parts, (self.read(norm, of),), weights=weight)
        reads = (before, "values") if apart else (before,)
        self.normed(reads, {QKV: (size, size)}, before, "query and key norm")
        return QKV

    def _latent(self) -> str:
        """Down to latents on this rank's rows, and up again; then rotary positions write keys and values."""
        arch, heads = self.arch, self.arch.heads / self.tp
        down = [n for n in (arch.q_lora, arch.kv_lora + arch.rope_dim) if n]
        latent = self.size("latents", ELEMENT * self.rows / self.split * sum(down))
        of = "attention norm output"
        self.product(of, "latents", latent, of, *(n * arch.hidden for n in down))
        query = heads * (arch.head_dim + arch.rope_dim)
        keys = heads * (arch.head_dim + arch.v_head_dim)
        size = ELEMENT * self.rows * (query + keys)
        inner = ((arch.q_lora or arch.hidden) * query, arch.kv_lora * keys)
        self.product("latents", "before rotation", (size, size), "latents", *inner)
        both = ELEMENT * self.rows * (2 * query + heads * arch.v_head_dim)
        self.op(("before rotation",), {QKV: (both, both)})
        return QKV

    def _scores(self, qkv: str, dropped: bool, scores: float, out: float) -> None:
        """Attention that writes its scores, of which some may be `dropped`.

        baddbmm reads a tensor of their size made for it, or ALiBi's small one; Megatron's fused softmax
        writes its gradient over that of its output.
        """
        read = 0.0 if self.arch.alibi else scores
        self.op((qkv,), {"scores": (scores, scores)}, (qkv,), beside=(read, self.gradients[qkv]))
        self.op(("scores",), {"softmax": (scores, scores)}, ("softmax",), same=True)
        of = "softmax"
        names = ["softmax"]
        if dropped:
            self.op(
                ("softmax",),
                {"dropped softmax": (scores, scores), "attention mask": (0.0, scores / ELEMENT)},
                ("attention mask",),
            )
            of = "dropped softmax"
            names += ["dropped softmax", "attention mask"]
        self.groups |= dict.fromkeys(names, "attention scores")
        self.op((of, qkv), {"context": (out, out)}, (of, qkv))
        self.op(("context",), {"attention output": (out, out)})

    def mlp(self, before: str) -> None:
        arch = self.arch
        up = (2 if arch.gated else 1) * arch.ffn / self.tp
        first = self.mlp_norm(before)
        of = self.gathered(first)
        kept = self.read(first, of)
        self.product(of, "mlp up output", self.wide("mlp up output", up), kept, up * arch.hidden)
        inner = arch.ffn / self.tp
        self.activation("mlp up output", "mlp product", self.wide("mlp product", inner))
        down = inner * arch.hidden
        self.product("mlp product", "down", (self.full, self.full), "mlp product", down)
        self.end(before, "down")

    def mlp_norm(self, before: str) -> str:
        """The norm before the MLP, or that of attention where they share it."""
        if self.arch.norms_per_layer == 1:
            return "attention norm output"
        self.norm(before, "mlp norm output")
        return "mlp norm output"

    def end(self, before: str, of: str, *more: str) -> None:
        """The end of a layer; `more` is added beside."""
        if self.arch.norms_per_layer == 1:
            self.closing(of, INPUT, OUTPUT, before, *more)
        else:
            self.closing(of, before, OUTPUT, *more)

    def wide(self, name: str, columns: float) -> tuple[float, float]:
        return self.size(name, ELEMENT * self.rows * columns)
