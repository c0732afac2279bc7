"""What of a model deserves a kernel; PyTorch's own count of FLOP and hand calculations say what is right."""

from __future__ import annotations

import pytest

import nkilab
from nkilab.errors import UsageError
from nkilab.machine import MACHINES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
F = torch.nn.functional


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        scores = torch.matmul(q, k.transpose(-1, -2)) * 0.125
        return torch.matmul(torch.softmax(scores, -1), v)


class Block(torch.nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.norm = torch.nn.RMSNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        return x + self.down(F.silu(self.up(x)))


class Blocks(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(count)))

    def forward(self, x):
        return self.blocks(x)


def test_attention_is_one_candidate_with_three_inputs_and_one_output():
    B, S, D = 4, 1024, 64
    candidates = nkilab.torch.candidates(
        Attention(), *(torch.empty(B, S, D, device="meta") for _ in range(3))
    )
    best = candidates[0]
    assert best.operators == ("matmul", "mul", "softmax", "matmul")
    assert (len(best.inputs), len(best.outputs), best.times) == (3, 1, 1)
    # three tensors in, one out, of 4 bytes; two products of 2 S S D each
    assert best.roofline.bytes == 4 * (B * S * D) * 4
    assert best.flops == B * 2 * (2 * S * S * D)
    chip = MACHINES["trn2"]
    tensor_us = best.flops * chip["fp32_passes"] / (chip["peak_tflops_bf16"] * 1e6)
    assert best.roofline.times_ns["tensor"] / 1000 == pytest.approx(tensor_us)
    # one by one the scores cross HBM at least four more times: written and read between three operators
    bandwidth = min(chip["dma_engines"] * chip["dma_bytes_per_ns"], chip["hbm_bytes_per_ns"])
    traffic_us = (best.roofline.bytes + 6 * B * S * S * 4) / bandwidth / 1000
    assert candidates.apart_us == pytest.approx(best.apart_us)
    assert best.apart_us >= traffic_us
    assert best.saved_us == pytest.approx(best.apart_us - best.roofline_us)


def test_flop_are_those_that_pytorch_counts():
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    model, x = Blocks(2), torch.randn(2, 128, 64)
    # PyTorch counts attention where it is made of products
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(x)
    candidates = nkilab.torch.candidates(model, x)
    assert sum(row.flops * row.times for row in candidates) == counter.get_total_flops()
    picture = torch.randn(1, 3, 16, 16)
    convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
    with FlopCounterMode(display=False) as counter:
        convolution(picture)
    assert nkilab.torch.candidates(convolution, picture)[0].flops == counter.get_total_flops()


def test_alike_layers_are_one_candidate_and_no_operator_is_in_two():
    candidates = nkilab.torch.candidates(Blocks(3), torch.randn(2, 512, 64))
    assert candidates[0].times == 3
    nodes = [node for row in candidates for part in row.nodes for node in part]
    assert len(nodes) == len(set(nodes)) == 3 * 8
    assert [row.saved_us for row in candidates] == sorted((row.saved_us for row in candidates), reverse=True)
    assert all(len(row.inputs) <= 8 and len(row.outputs) <= 2 for row in candidates)


class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
        self.gate, self.up, self.down = (
            torch.nn.Linear(64, 256),
            torch.nn.Linear(64, 256),
            torch.nn.Linear(256, 64),
        )
        self.drop = torch.nn.Dropout(0.1)

    def forward(self, x):
        y = self.norm(x)
        return x + self.drop(self.down(F.silu(self.gate(y)) * self.up(y)))


class Pictures(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Conv2d(n, 64, 3, padding=1) for n in (3, 64))
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(64) for _ in range(2)])

    def forward(self, x):
        x = F.relu(self.norms[0](self.first(x)))
        return F.max_pool2d(x + F.relu(self.norms[1](self.second(x))), 2)


class Rotated(torch.nn.Module):
    def forward(self, q, k, cos, sin):
        q, k = (x * cos + torch.cat(x.chunk(2, -1)[::-1], -1) * sin for x in (q, k))
        mask = ~torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril()
        return torch.einsum("btd,bsd->bts", q, k).masked_fill(mask, -1e9).softmax(-1)


def test_models_of_other_kinds_are_cut_where_an_engineer_would():
    gated = nkilab.torch.candidates(Gated().eval(), torch.randn(4, 512, 64))
    # all at once would read nine tensors; the dropout of an evaluation is no operator
    assert [row.operators for row in gated] == [
        ("layer_norm", "linear", "silu", "linear", "mul"),
        ("linear", "add"),
    ]
    pictures = nkilab.torch.candidates(Pictures().eval(), torch.randn(8, 3, 32, 32))
    assert pictures.left_out == {}
    # no part holds the convolution's input and what follows it without the convolution
    assert [row.operators for row in pictures] == [
        ("relu", "conv2d", "batch_norm", "relu", "add", "max_pool2d"),
        ("conv2d", "batch_norm"),
    ]
    pooled = 8 * 64 * 16 * 16 * 4
    normed = 8 * 64 * 32 * 32 * 4
    weights = (64 * 64 * 9 + 64 + 4 * 64) * 4
    assert pictures[0].roofline.bytes == normed + pooled + weights
    rotated = nkilab.torch.candidates(Rotated(), *(torch.randn(2, 256, 64) for _ in range(4)))
    assert rotated.left_out == {}
    # q k: 2 batches of [256, 64] [64, 256]; what makes the mask is a constant
    assert sum(row.flops for row in rotated) == 2 * 2 * 256 * 64 * 256
    assert {name for row in rotated for name in row.operators} == {
        "mul", "cat", "add", "einsum", "masked_fill", "softmax",
    }  # fmt: skip


def test_a_tensor_that_is_given_twice_counts_where_it_stands():
    class Own(torch.nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x)

    candidates = nkilab.torch.candidates(Own(), torch.randn(2, 128, 64))
    assert candidates[0].flops == 2 * 2 * (2 * 128 * 128 * 64)
    assert candidates[0].roofline.bytes == 2 * (2 * 128 * 64) * 4


def test_bounds_hold_and_other_chips_have_other_rooflines():
    x = torch.randn(2, 512, 64)
    small = nkilab.torch.candidates(Blocks(1), x, max_operators=2, max_inputs=3, max_outputs=1)
    assert max(len(row.operators) for row in small) == 2
    assert max(len(row.inputs) for row in small) <= 3
    two, one = (nkilab.torch.candidates(Blocks(1), x, target=name) for name in ("trn2", "trn1"))
    assert (two.target, one.target) == ("trn2", "trn1")
    assert one.apart_us > two.apart_us
    with pytest.raises(UsageError, match="max_operators is 0; it must be a whole number of at least 1"):
        nkilab.torch.candidates(Blocks(1), x, max_operators=0)
    with pytest.raises(UsageError, match="trn9"):
        nkilab.torch.candidates(Blocks(1), x, target="trn9")


def test_a_part_that_something_outside_is_computed_from_and_read_by_is_no_candidate():
    class Detour(torch.nn.Module):
        def forward(self, x):
            y = torch.exp(x)
            # topk is no operator whose work is known; a kernel of exp and mul would wait for itself
            return y * torch.topk(y, 1).values

    candidates = nkilab.torch.candidates(Detour(), torch.randn(8, 16))
    assert [row.operators for row in candidates] == [("mul",), ("exp",)]
    # x and y of 8 * 16 elements: exp writes y, since topk reads it
    assert candidates[1].roofline.bytes == 2 * 8 * 16 * 4
    assert candidates.left_out == {"topk": 1}
    assert "Left out, their work is not known: topk (1)" in str(candidates)


def test_the_table_says_that_it_is_a_roofline():
    # x[128, 256] w[512, 256]: 128 KiB, 512 KiB and 256 KiB cross the border, 2 * 128 * 256 * 512 FLOP
    model = torch.nn.Sequential(torch.nn.Linear(256, 512, bias=False), torch.nn.SiLU())
    text = str(nkilab.torch.candidates(model, torch.randn(128, 256)))
    lines = text.splitlines()
    assert lines[0].startswith("Candidates for kernels on trn2, by roofline; ")
    assert lines[2].split()[3:] == ["1", "2", "1", "917.5", "33.6", "hbm", "linear", "silu"]
    assert "Times are rooflines" in text


def test_an_exported_program_is_taken_as_it_is():
    x = torch.randn(2, 128, 64)
    exported = torch.export.export(Blocks(1), (x,))
    assert str(nkilab.torch.candidates(exported)) == str(nkilab.torch.candidates(Blocks(1), x))


class Attends(torch.nn.Module):
    """One attention per way to say which scores count."""

    def __init__(self, length, **options):
        super().__init__()
        self.options = options
        self.register_buffer("lower", torch.ones(length, length, dtype=torch.bool).tril(), persistent=False)

    def mask(self, kind):
        ones = torch.ones(self.lower.shape[0], self.lower.shape[1])
        return {
            "buffer": self.lower,
            "computed": ones.tril().bool(),
            "infinities": torch.zeros_like(ones).masked_fill(ones.triu(1).bool(), float("-inf")),
        }[kind]

    def forward(self, q, k, v, mask=None):
        options = dict(self.options)
        if isinstance(options.get("attn_mask"), str):
            options["attn_mask"] = self.mask(options["attn_mask"])
        if mask is not None:
            options["attn_mask"] = mask
        return F.scaled_dot_product_attention(q, k, v, **options)


H, L, E = 4, 256, 64
FULL = 2 * H * L * L * (E + E)
CAUSAL = FULL * (L + 1) // (2 * L)


def attends(*more, heads=H, keys=L, **options):
    q, k = torch.empty(1, H, L, E), torch.empty(1, heads, keys, E)
    (row,) = nkilab.torch.candidates(Attends(L, **options), q, k, k, *more)
    return row


@pytest.mark.parametrize(
    ("options", "flops"),
    [
        ({}, FULL),
        ({"is_causal": True}, CAUSAL),
        ({"attn_mask": "buffer"}, CAUSAL),
        ({"attn_mask": "computed"}, CAUSAL),
        ({"attn_mask": "infinities"}, CAUSAL),
        # the first 256 rows of 512 keys: as many scores as of 256
        ({"is_causal": True, "keys": 2 * L}, CAUSAL),
        ({"enable_gqa": True, "heads": 2}, FULL),
    ],
    ids=str,
)
def test_attention_does_the_work_that_its_mask_leaves(options, flops):
    row = attends(**options)
    assert row.flops == flops
    # one pass of ScalarE over the scores
    chip = MACHINES["trn2"]
    scores = flops / (2 * (E + E))
    expected = scores / chip["partitions"] / chip["scalar_clock_ghz"]
    assert row.roofline.times_ns["scalar"] == pytest.approx(expected)


def test_a_mask_that_the_caller_gives_leaves_all_the_work():
    assert attends(torch.ones(L, L, dtype=torch.bool)).flops == FULL


def test_dropout_in_attention_is_a_pass_more():
    plain, dropping = (attends(dropout_p=p).roofline.times_ns["elementwise"] for p in (0.0, 0.5))
    # two passes of VectorE and one of ScalarE; then three and one
    assert dropping == pytest.approx(plain * 4 / 3)


class Both(torch.nn.Module):
    def forward(self, q, k, v):
        causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return causal, F.scaled_dot_product_attention(q, k, v)


def test_full_attention_ranks_above_causal_attention_and_is_another_kernel():
    candidates = nkilab.torch.candidates(Both(), *(torch.empty(1, H, L, E) for _ in range(3)))
    assert [(row.flops, row.times) for row in candidates] == [(FULL, 1), (CAUSAL, 1)]
    assert candidates[0].saved_us > candidates[1].saved_us


@pytest.mark.parametrize("options", [
    {"stride": 2}, {"dilation": 2}, {"groups": 4}, {"stride": 3, "dilation": 2, "groups": 2, "padding": 1},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("kind", [torch.nn.Conv2d, torch.nn.ConvTranspose2d])
def test_arguments_of_convolutions_change_their_flop_as_pytorch_counts(kind, options):
    from torch.utils.flop_counter import FlopCounterMode

    model, x = kind(8, 16, 3, **options), torch.randn(2, 8, 16, 16)
    with FlopCounterMode(display=False) as counter:
        model(x)
    (row,) = nkilab.torch.candidates(model, x)
    assert row.flops == counter.get_total_flops()


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_the_flop_of_a_decomposed_convolution_are_those_of_the_module():
    model, x = torch.nn.ConvTranspose2d(8, 16, 3, stride=2), torch.randn(2, 8, 16, 16)
    exported = torch.export.export(model, (x,)).run_decompositions()
    (row,) = nkilab.torch.candidates(exported)
    # every element of the input meets 16 weights per element of the window
    assert row.flops == 2 * (2 * 8 * 16 * 16) * 16 * 3 * 3


class Products(torch.nn.Module):
    def forward(self, a, b):
        return torch.einsum("bij,bjk->bik", a, b), a @ b


def test_a_factor_that_is_repeated_over_the_batch_counts_in_full():
    candidates = nkilab.torch.candidates(Products(), torch.empty(8, 32, 64), torch.empty(1, 64, 16))
    assert {row.flops for row in candidates} == {2 * 8 * 32 * 64 * 16}


class Dropping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.whole, self.maps, self.none = torch.nn.Dropout(), torch.nn.Dropout2d(), torch.nn.Dropout(0.0)

    def forward(self, x):
        return self.none(self.maps(self.whole(torch.tanh(x))))


def test_a_dropout_that_drops_nothing_is_no_operator():
    x = torch.empty(2, 8, 64, 64)
    assert [r.operators for r in nkilab.torch.candidates(Dropping().eval(), x)] == [("tanh",)]
    training = nkilab.torch.candidates(Dropping().train(), x)
    named = [name for row in training for name in row.operators]
    # the one that never drops is none in training either
    assert named.count("dropout") == 1


class Compared(torch.nn.Module):
    def forward(self, x, y):
        return x > y


def test_a_comparison_of_float32_takes_as_long_as_float32_does():
    chip = MACHINES["trn2"]
    times = [
        nkilab.torch.candidates(Compared(), *(torch.empty(512, 512, dtype=t) for _ in range(2)))[0]
        .roofline.times_ns["elementwise"]
        for t in (torch.float32, torch.bfloat16)
    ]  # fmt: skip
    rest = chip["scalar_clock_ghz"] + chip["gpsimd_clock_ghz"]
    wide = chip["vector_fp32_lanes"] * chip["vector_clock_ghz"] + rest
    narrow = chip["vector_mode_speedup"] * chip["vector_clock_ghz"] + rest
    assert times[0] / times[1] == pytest.approx(narrow / wide)


class Dilated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.near, self.far = (torch.nn.Conv2d(8, 8, 3, padding=n, dilation=n) for n in (1, 2))

    def forward(self, x):
        return self.near(x), self.far(x)


def test_convolutions_that_differ_in_an_argument_alone_are_two_kernels():
    candidates = nkilab.torch.candidates(Dilated(), torch.empty(2, 8, 16, 16))
    assert [row.times for row in candidates] == [1, 1]
