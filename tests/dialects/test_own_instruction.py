"""An instruction that a user defines is served in both spellings, as nothing in NKI has its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.command_line import SOURCE

SCRIPT = '''
import numpy as np
import nkilab
from nkilab.isa.costs import engine_step
from nkilab.isa.declare import FLOATS, Example, In, Instruction, Out
from nkilab.isa.elementwise import PARTITIONS
from nkilab.tiles.convert import store, widen


class RowMirror(Instruction):
    """Turn the elements of each row round."""

    source = "a test"
    engines = ("vector",)
    dst = Out("P F", dtypes=FLOATS)
    src = In("P F", dtypes=FLOATS)
    limits = (PARTITIONS,)
    example = Example({"src": [[1, 2, 3]]}, {"dst": [[3, 2, 1]]})

    def compute(self, dst, src):
        store(dst, widen(src, self.src.dtype)[:, ::-1], self.dst.dtype)

    def cost(self):
        return [engine_step(self.machine, "vector", "ROW_MIRROR", self.sizes["F"], widening=2.0)]


with nkilab.activate():
    import neuronxcc.nki as beta1
    import neuronxcc.nki.isa as beta1_isa
    import neuronxcc.nki.language as beta1_nl
    import nki
    import nki.isa as nisa
    import nki.language as nl


@nki.jit
def dst_first(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    turned = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    nisa.row_mirror(turned, tile)
    nisa.dma_copy(out, turned)
    return out


@beta1.jit
def value_returning(x):
    out = beta1_nl.ndarray(x.shape, x.dtype, buffer=beta1_nl.shared_hbm)
    beta1_nl.store(out, beta1_isa.row_mirror(beta1_nl.load(x)))
    return out


x = np.arange(128 * 8, dtype=np.float32).reshape(128, 8)
for kernel in (dst_first, value_returning):
    assert np.array_equal(kernel(x), x[:, ::-1])
    print(nkilab.estimate(kernel, nkilab.spec(x.shape, "float32")).summary["vector_engine_instruction_count"])
'''


def test_an_instruction_of_ones_own_runs_in_both_spellings(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, tmp_path / "own.py"], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": SOURCE},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "1\n1\n"), done.stderr
