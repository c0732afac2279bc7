"""Functions of formulas: what reduces, what is a formula itself, and the words of other languages."""

from __future__ import annotations

# functions that reduce what stands first over the variables behind it
REDUCING = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "multiply", "argmax": "argmax",
            "argmin": "argmin"}  # fmt: skip
# functions of x over n, as formulas; N is the number of values
COMPOSED = {
    "mean": "sum(x, n) / N",
    "var": "mean((x - mean(x, n))**2, n)",
    "std": "sqrt(var(x, n))",
    "norm": "sqrt(sum(x**2, n))",
    "logsumexp": "max(x, n) + log(sum(exp(x - max(x, n)), n))",
    "softmax": "exp(x - max(x, n)) / sum(exp(x - max(x, n)), n)",
    "log_softmax": "x - max(x, n) - log(sum(exp(x - max(x, n)), n))",
}
# functions of single values: what they take, with numbers for what may be left out, and the formula; an
# operator of the same name is meant within it
FUNCTIONS = {
    "sin": ("x", "sine(x)"),
    "cos": ("x", "cosine(x)"),
    "tan": ("x", "sine(x) / cosine(x)"),
    # of what lies beyond 1, by its reciprocal
    "arctan": (
        "x",
        "sign(x) * abs((abs(x) > 1) * 1.5707963267948966 - arctan(min(abs(x), 1 / max(abs(x), 1))))",
    ),
    "sinh": ("x", "(exp(x) - exp(-x)) / 2"),
    "cosh": ("x", "(exp(x) + exp(-x)) / 2"),
    "exp2": ("x", "exp(0.6931471805599453 * x)"),
    "log2": ("x", "1.4426950408889634 * log(x)"),
    "log10": ("x", "0.4342944819032518 * log(x)"),
    "floor": ("x", "x - mod(x, 1)"),
    "ceil": ("x", "x + mod(-x, 1)"),
    "trunc": ("x", "sign(x) * floor(abs(x))"),
    # halves go to even numbers
    "round": ("x", "floor(x) + (mod(x, 1) > 0.5) + (mod(x, 1) == 0.5) * mod(floor(x), 2)"),
    "clip": ("x, low, high", "min(max(x, low), high)"),
    "elu": ("x, alpha = 1", "max(x, 0) + alpha * (exp(min(x, 0)) - 1)"),
    "leaky_relu": ("x, slope = 0.01", "max(x, 0) + slope * min(x, 0)"),
    "relu6": ("x", "clip(x, 0, 6)"),
    "hardsigmoid": ("x", "clip(x / 6 + 0.5, 0, 1)"),
    "hardswish": ("x", "x * clip(x + 3, 0, 6) / 6"),
    "logsigmoid": ("x", "-softplus(-x)"),
    "softsign": ("x", "x / (1 + abs(x))"),
}
FUNCTIONS |= {other: FUNCTIONS[name] for other, name in {
    "clamp": "clip", "atan": "arctan", "rint": "round"}.items()}  # fmt: skip
# what is written for signs and words of other languages
INSTEAD = {
    "@": "write Z[m, n] = A[m, k] * B[k, n]",
    "//": "write floor(x / 2), or an index m // 2",
    ":": "write a variable where a slice would stand, A[m, k], and '=' for an assignment",
    "[": "write W[0] = 0.25 and W[1] = 0.5 as expressions of their own, or give W as an input",
    "{": "write indices in brackets: Z[i, k]",
    "and": "write 1 if X[m] > 0 and Y[m] > 0 else 0",
    "or": "write 1 if X[m] > 0 or Y[m] > 0 else 0",
    "^": "write X[m] ** 2",
    "=": "write one result a line: Z[m] = X[m], and Y[m] = Z[m] below it",
    "&": "write and between conditions",
    "|": "write or between conditions, and abs(x) for what has no sign",
    "log1p": "write log(1 + x)",
    "expm1": "write exp(x) - 1",
    "topk": "write Z[m, k] = X[m, n] ;; V topk, and ;; V argtopk for their places",
    "cumsum": "write S[0, m] = 0 and S[t+1, m] = S[t, m] + X[t, m]",
    "sort": "write Z[m, k] = X[m, n] ;; V topk, with as many k as n: the largest come first",
}
