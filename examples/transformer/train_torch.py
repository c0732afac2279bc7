"""Train a small transformer under PyTorch, its attention, rmsnorm and MLP as NKI kernels, and compare.

    nkilab run examples/transformer/train_torch.py --steps 8

Two models with the same weights see the same batches: one computes with kernels, forward and backward, the
other with PyTorch alone. Their losses agree at every step within TOLERANCE, else the script fails.
"""

import argparse

import kernels
import torch
import torch.nn.functional as F

import nkilab

BATCH, SEQUENCE, WIDTH, HEADS, HIDDEN, LAYERS, WORDS = 2, 128, 128, 2, 256, 2, 32
# relative, of the loss: float32 sums in another order differ by about 1e-7, and training passes it on
TOLERANCE = 1e-5

rmsnorm = nkilab.torch.wrap(kernels.rmsnorm, backward=kernels.rmsnorm_backward)
attention = nkilab.torch.wrap(kernels.attention, backward=kernels.attention_backward)
mlp = nkilab.torch.wrap(kernels.mlp, backward=kernels.mlp_backward)


class WithKernels:
    rmsnorm = staticmethod(rmsnorm)
    attention = staticmethod(attention)
    mlp = staticmethod(mlp)


class WithTorch:
    @staticmethod
    def rmsnorm(x, weight):
        return F.rms_norm(x, x.shape[1:], eps=kernels.EPSILON) * weight

    @staticmethod
    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    @staticmethod
    def mlp(x, up, down):
        return F.silu(x @ up) @ down


class Transformer(torch.nn.Module):
    def __init__(self, operators):
        super().__init__()
        self.operators = operators
        draw = torch.Generator().manual_seed(0)

        def weight(*shape):
            return torch.nn.Parameter(torch.randn(shape, generator=draw) * shape[0] ** -0.5)

        self.words = torch.nn.Parameter(torch.randn((WORDS, WIDTH), generator=draw) * 0.1)
        self.places = torch.nn.Parameter(torch.randn((SEQUENCE, WIDTH), generator=draw) * 0.1)
        self.norms = torch.nn.ParameterList(torch.ones((1, WIDTH)) for _ in range(2 * LAYERS + 1))
        self.projections = torch.nn.ParameterList(weight(WIDTH, 3 * WIDTH) for _ in range(LAYERS))
        self.joins = torch.nn.ParameterList(weight(WIDTH, WIDTH) for _ in range(LAYERS))
        self.ups = torch.nn.ParameterList(weight(WIDTH, HIDDEN) for _ in range(LAYERS))
        self.downs = torch.nn.ParameterList(weight(HIDDEN, WIDTH) for _ in range(LAYERS))

    def heads(self, x):
        """[B * S, W] -> [B * H, S, W / H]."""
        split = x.reshape(BATCH, SEQUENCE, HEADS, WIDTH // HEADS).transpose(1, 2)
        return split.reshape(BATCH * HEADS, SEQUENCE, WIDTH // HEADS)

    def forward(self, tokens):
        x = (self.words[tokens] + self.places).reshape(BATCH * SEQUENCE, WIDTH)
        for layer in range(LAYERS):
            normal = self.operators.rmsnorm(x, self.norms[2 * layer])
            q, k, v = map(self.heads, (normal @ self.projections[layer]).chunk(3, -1))
            seen = self.operators.attention(q, k, v).reshape(BATCH, HEADS, SEQUENCE, -1)
            x = x + seen.transpose(1, 2).reshape(BATCH * SEQUENCE, WIDTH) @ self.joins[layer]
            normal = self.operators.rmsnorm(x, self.norms[2 * layer + 1])
            x = x + self.operators.mlp(normal, self.ups[layer], self.downs[layer])
        return self.operators.rmsnorm(x, self.norms[-1]) @ self.words.T


def batch(draw):
    """Sequences that count on by threes, which the model is to find."""
    starts = torch.randint(WORDS, (BATCH, 1), generator=draw)
    tokens = (starts + 3 * torch.arange(SEQUENCE + 1)) % WORDS
    return tokens[:, :-1], tokens[:, 1:].reshape(-1)


def predicted(target):
    """Microseconds of the kernels of a step, and how many are launched."""
    total, count = 0.0, 0
    for kernel, shapes, times in kernels.launches(LAYERS, BATCH, SEQUENCE, WIDTH, HEADS, HIDDEN):
        estimated = nkilab.estimate(
            kernel, *(nkilab.spec(shape, "float32") for shape in shapes), target=target
        )
        total, count = total + times * estimated.latency_us, count + times
    return total, count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--target", default="trn2")
    asked = parser.parse_args()
    models = [Transformer(WithKernels), Transformer(WithTorch)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]
    draw = torch.Generator().manual_seed(1)
    print("step  with kernels  with PyTorch  apart")
    for step in range(asked.steps):
        tokens, wanted = batch(draw)
        losses = []
        for model, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(tokens), wanted)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        apart = abs(losses[0] - losses[1]) / losses[1]
        print(f"{step:4d}  {losses[0]:12.6f}  {losses[1]:12.6f}  {apart:.1e}")
        if apart > TOLERANCE:
            raise SystemExit(f"the losses are {apart:.1e} apart; {TOLERANCE} is allowed")
    microseconds, count = predicted(asked.target)
    print(
        f"predicted on {asked.target}: {microseconds:.1f} us per step in {count} kernel launches, forward "
        "and backward; projections, loss and optimizer are not in it"
    )


if __name__ == "__main__":
    main()
