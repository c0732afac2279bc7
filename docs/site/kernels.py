"""Writes docs/einsum-kernels.md: the kernels of the corpus that are nearest to their rooflines, and farthest.

python docs/site/kernels.py

Which they are says the table of `python -m tests.einsum.baseline`, whose rows of realistic sizes in bfloat16
are compared: run that first.
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.einsum.baseline import FILE, Row, Subject, read, subjects  # noqa: E402

from nkilab.einsum import report  # noqa: E402
from nkilab.einsum.compiled import CompiledEinsum  # noqa: E402
from nkilab.einsum.roofline import RESOURCES  # noqa: E402

PAGE = ROOT / "docs" / "einsum-kernels.md"
COUNT = 3
CHOSEN = "real bfloat16 nki"
MARK = "<!-- written by `python docs/site/kernels.py`; changes by hand are lost -->\n"
NOT_RUN = "*Not run by the tests: it is compiled, and the text compared.*"
INTRODUCTION = (
    "The kernels that `nkilab einsum` makes of the tests' cascades at sizes of models (bfloat16, trn2, NKI), "
    f"ordered by their predicted latency over the roofline of the cascade: the {COUNT} nearest to it, then "
    f"the {COUNT} farthest from it. What the gap is made of stands with each. The launch, 12.2 us, is"
    " in both figures. Rooflines are described in [Einsums to kernels](einsum.md#rooflines-and-plans)."
)


def ranked(rows: dict[str, Row]) -> list[str]:
    """Names of the cascades that are compared, the nearest to its roofline first."""
    ratios = {
        key.partition(" ")[0]: row.latency / row.roofline
        for key, row in rows.items() if key.endswith(f" {CHOSEN}") and not row.refused
    }  # fmt: skip
    return sorted(ratios, key=lambda name: ratios[name])


def gap(kernel: CompiledEinsum) -> str:
    """What lies between a kernel's latency and the roofline of its cascade, from the one to the other."""
    least, own, latency = kernel.roofline.least_us, kernel.engine_roofline_us, kernel.estimate.latency_us
    launch = kernel.roofline.launch_ns / 1000
    work = own + launch
    more = (
        f"Its instructions and the launch take at least {work:.1f} us, {work / least:.2f} times the roofline"
    )
    waits = f"the other {latency - work:.1f} us are waits between them, and what fills and drains the engines"
    rest = f"; {waits}" if latency > work else ", and they overlap"
    return f"{more}{rest}. In all {report.reason(kernel)}."


def section(subject: Subject) -> str:
    """A kernel with its Einsums, figures and text."""
    kernel = subject.compiled()
    least, latency = kernel.roofline.least_us, kernel.estimate.latency_us
    sizes = ", ".join(f"{rank} = {size}" for rank, size in kernel.cascade.sizes.items())
    bound = RESOURCES[kernel.roofline.bound]
    figures = (
        f"{sizes}. Predicted {latency:.1f} us, roofline {least:.1f} us, which {bound} sets: "
        f"{latency / least:.2f} times it. {gap(kernel)}"
    )
    einsums = "\n".join(str(step) for step in subject.cascade.einsums)
    return "\n\n".join(
        (f"### {subject.name}", f"```text\n{einsums}\n```", fill(figures, 120, break_on_hyphens=False),
         f"```python\n{kernel.source.strip()}\n```", NOT_RUN)
    )  # fmt: skip


def page() -> str:
    """The page."""
    names = ranked(read()[1])
    by_name = {s.name: s for s in subjects() if s.key.endswith(f" {CHOSEN}")}
    parts = ["# The best and the worst kernels of Einsums", fill(INTRODUCTION, 120, break_on_hyphens=False)]
    for title, chosen in (("Nearest to their rooflines", names[:COUNT]), ("Farthest", names[-COUNT:][::-1])):
        parts += [f"## {title}", *(section(by_name[name]) for name in chosen)]
    return "\n\n".join(parts) + f"\n\n{MARK}"


if __name__ == "__main__":
    assert FILE.is_file()
    PAGE.write_text(page(), "utf-8")
