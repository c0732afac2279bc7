"""Train a small transformer under JAX, its attention, rmsnorm and MLP as NKI kernels, and compare.

    nkilab run examples/transformer/train_jax.py --steps 8

The step is compiled by jax.jit twice from the same weights: once with kernels forward and backward, once with
jax.numpy alone. The losses agree at every step within TOLERANCE, else the script fails.
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import kernels
import numpy as np

import nkilab

BATCH, SEQUENCE, WIDTH, HEADS, HIDDEN, LAYERS, WORDS = 2, 128, 128, 2, 256, 2, 32
# relative, of the loss: float32 sums in another order differ by about 1e-7, and training passes it on
TOLERANCE = 1e-5
RATE, MOMENTUM = 0.1, 0.9


class WithKernels:
    rmsnorm = nkilab.jax.wrap(kernels.rmsnorm, backward=kernels.rmsnorm_backward)
    attention = nkilab.jax.wrap(kernels.attention, backward=kernels.attention_backward)
    mlp = nkilab.jax.wrap(kernels.mlp, backward=kernels.mlp_backward)


class WithJax:
    @staticmethod
    def rmsnorm(x, weight):
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + kernels.EPSILON) * weight

    @staticmethod
    def attention(q, k, v):
        scores = q @ k.swapaxes(1, 2) * q.shape[-1] ** -0.5
        seen = jnp.tril(jnp.ones(scores.shape[1:], bool))
        return jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)) @ v

    @staticmethod
    def mlp(x, up, down):
        return jax.nn.silu(x @ up) @ down


def weights():
    draw = np.random.default_rng(0)

    def weight(*shape, scale=None):
        numbers = draw.standard_normal(shape) * (shape[0] ** -0.5 if scale is None else scale)
        return jnp.asarray(numbers.astype(np.float32))

    layers = [
        {
            "norms": (jnp.ones((1, WIDTH)), jnp.ones((1, WIDTH))),
            "projection": weight(WIDTH, 3 * WIDTH), "join": weight(WIDTH, WIDTH),
            "up": weight(WIDTH, HIDDEN), "down": weight(HIDDEN, WIDTH),
        }
        for _ in range(LAYERS)
    ]  # fmt: skip
    words, places = weight(WORDS, WIDTH, scale=0.1), weight(SEQUENCE, WIDTH, scale=0.1)
    return {"words": words, "places": places, "layers": layers, "norm": jnp.ones((1, WIDTH))}


def heads(x):
    """[B * S, W] -> [B * H, S, W / H]."""
    split = x.reshape(BATCH, SEQUENCE, HEADS, WIDTH // HEADS).swapaxes(1, 2)
    return split.reshape(BATCH * HEADS, SEQUENCE, WIDTH // HEADS)


def loss_of(operators, parameters, tokens, wanted):
    x = (parameters["words"][tokens] + parameters["places"]).reshape(BATCH * SEQUENCE, WIDTH)
    for layer in parameters["layers"]:
        normal = operators.rmsnorm(x, layer["norms"][0])
        q, k, v = map(heads, jnp.split(normal @ layer["projection"], 3, -1))
        seen = operators.attention(q, k, v).reshape(BATCH, HEADS, SEQUENCE, -1)
        x = x + seen.swapaxes(1, 2).reshape(BATCH * SEQUENCE, WIDTH) @ layer["join"]
        normal = operators.rmsnorm(x, layer["norms"][1])
        x = x + operators.mlp(normal, layer["up"], layer["down"])
    chances = jax.nn.log_softmax(operators.rmsnorm(x, parameters["norm"]) @ parameters["words"].T)
    return -jnp.take_along_axis(chances, wanted[:, None], 1).mean()


def step(operators, parameters, speed, tokens, wanted):
    loss, slopes = jax.value_and_grad(partial(loss_of, operators))(parameters, tokens, wanted)
    speed = jax.tree.map(lambda v, g: MOMENTUM * v + g, speed, slopes)
    return loss, jax.tree.map(lambda w, v: w - RATE * v, parameters, speed), speed


def batch(draw):
    """Sequences that count on by threes, which the model is to find."""
    starts = draw.integers(WORDS, size=(BATCH, 1))
    tokens = (starts + 3 * np.arange(SEQUENCE + 1)) % WORDS
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
    steps = [jax.jit(partial(step, operators)) for operators in (WithKernels, WithJax)]
    models = [weights(), weights()]
    speeds = [jax.tree.map(jnp.zeros_like, weights()) for _ in models]
    draw = np.random.default_rng(1)
    print("step  with kernels      with JAX  apart")
    for number in range(asked.steps):
        tokens, wanted = batch(draw)
        losses = []
        for which, compiled in enumerate(steps):
            loss, models[which], speeds[which] = compiled(models[which], speeds[which], tokens, wanted)
            losses.append(float(loss))
        apart = abs(losses[0] - losses[1]) / losses[1]
        print(f"{number:4d}  {losses[0]:12.6f}  {losses[1]:12.6f}  {apart:.1e}")
        if apart > TOLERANCE:
            raise SystemExit(f"the losses are {apart:.1e} apart; {TOLERANCE} is allowed")
    microseconds, count = predicted(asked.target)
    print(
        f"predicted on {asked.target}: {microseconds:.1f} us per step in {count} kernel launches, forward "
        "and backward; projections, loss and optimizer are not in it"
    )


if __name__ == "__main__":
    main()
