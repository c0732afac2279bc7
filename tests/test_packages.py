"""Kernels in packages: imported once, by the name that they have there, with what they import beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import call, outcome_of

HEAD = "import nki\nimport nki.language as nl\nimport nki.isa as nisa\n"
KERNEL = """
print("imported", __name__)

@nki.jit
def scaled(x, factor=1):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    scale(tile)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
SCALE = """import nki.isa as nisa
import nki.language as nl

def scale(tile):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
"""
SPACE = "schema: nkilab.space/1\nparameters: {factor: [1, 2, 3]}\n"
ARG = ("--arg", "f32[4,4]")


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A package with packages below it, whose kernel imports its sibling, its cousin and itself by name."""
    put(tmp_path, {
        "lib/pkg/__init__.py": "", "lib/pkg/sub/__init__.py": "", "lib/pkg/common.py": SCALE,
        "lib/pkg/sub/utils.py": "from ..common import scale\n",
        "lib/pkg/sub/mod.py": HEAD + "from .utils import scale\nimport pkg.common\nfrom .. import common\n"
        "assert scale is common.scale is pkg.common.scale\n" + KERNEL,
        "space.yaml": SPACE, "card.txt": "total_time 3.1e-5\n",
    })  # fmt: skip
    return tmp_path


MOD = "lib/pkg/sub/mod.py:scaled"
VERBS = {
    "check": ("check", MOD, *ARG), "estimate": ("estimate", MOD, *ARG), "profile": ("profile", MOD, *ARG),
    "diff": ("diff", MOD, MOD, *ARG), "compare": ("compare", MOD, "card.txt", *ARG),
    "tune": ("tune", MOD, *ARG, "--space", "space.yaml"),
    "workers": ("tune", MOD, *ARG, "--space", "space.yaml", "--workers", "2"),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_a_kernel_of_a_package(verb: str, library: Path) -> None:
    done = call(*VERBS[verb], folder=library)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "imported pkg.sub.mod"
    assert done.stdout.count("imported") == 1


def test_a_kernel_of_a_package_is_found_from_within_it(library: Path) -> None:
    done = call("estimate", "mod.py:scaled", *ARG, folder=library / "lib" / "pkg" / "sub")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "imported pkg.sub.mod")


def test_findings_name_the_lines_of_a_module_of_a_package(library: Path) -> None:
    text = (library / "lib/pkg/sub/mod.py").read_text().replace("    nisa.dma_copy(dst=tile, src=x)\n", "")
    (library / "lib/pkg/sub/mod.py").write_text(text)
    done = call("check", MOD, *ARG, "--json", folder=library)
    # the multiplication reads what nothing wrote
    places = {
        (finding["file"], finding["line"]) if "file" in finding else finding["where"]
        for finding in json.loads(done.stdout)["findings"]
    }
    assert any("common.py" in str(place) and "5" in str(place) for place in places), done.stdout


NAMESPACES = {
    "a sibling": ("ns/mod.py", "from .scales import scale\n", {"ns/scales.py": SCALE}, "ns.mod"),
    "a cousin": ("ns/in/mod.py", "from ..scales import scale\n", {"ns/scales.py": SCALE}, "ns.in.mod"),
    "a cousin of a sibling": (
        "ns/in/mod.py", "from .near import scale\n",
        {"ns/scales.py": SCALE, "ns/in/near.py": "from ..scales import scale\n"}, "ns.in.mod",
    ),
    "an absolute name": ("ns/mod.py", "from ns.scales import scale\n", {"ns/scales.py": SCALE}, "ns.mod"),
    "a package's module": (
        "ns/pkg/mod.py", "from ..scales import scale\n", {"ns/scales.py": SCALE, "ns/pkg/__init__.py": ""},
        "ns.pkg.mod",
    ),
    "a folder with a dash": (
        "my-ns/mod.py", "from .scales import scale\n", {"my-ns/scales.py": SCALE}, "my-ns.mod",
    ),
    "no package": ("ns/mod.py", "from scales import scale\n", {"ns/scales.py": SCALE}, "mod"),
    "a bare name in a package": (
        "pkg/mod.py", "from scales import scale\n",
        {"pkg/scales.py": SCALE, "pkg/__init__.py": ""}, "pkg.mod",
    ),
    "a package called nki": (
        "nki/pkg/mod.py", "from .scales import scale\n",
        {"nki/__init__.py": "", "nki/pkg/__init__.py": "", "nki/pkg/scales.py": SCALE}, "pkg.mod",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", NAMESPACES)
def test_imports_say_where_a_package_begins(which: str, tmp_path: Path) -> None:
    file, line, others, name = NAMESPACES[which]
    put(tmp_path, {file: HEAD + line + KERNEL, **others})
    done = call("check", f"{file}:scaled", *ARG, folder=tmp_path)
    assert outcome_of(done) == (0, f"imported {name}\nscaled on trn2: 0 errors, 0 warnings\n", "")


def test_a_folder_that_can_be_no_package_is_told(tmp_path: Path) -> None:
    put(tmp_path, {"v1.2/mod.py": HEAD + "from .scales import scale\n" + KERNEL, "v1.2/scales.py": SCALE})
    assert outcome_of(call("check", "v1.2/mod.py:scaled", *ARG, folder=tmp_path)) == (
        2,
        "",
        f"nkilab: {tmp_path}/v1.2/mod.py has relative imports, and its folder v1.2 can be no package\n"
        "  hint: give the folder a name without dots that is not nki or neuronxcc\n",
    )


def test_two_versions_of_a_package_are_told_apart(tmp_path: Path) -> None:
    slow = SCALE + 63 * "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.0)\n"
    for version, scales in (("before", slow), ("after", SCALE)):
        put(tmp_path / version, {
            "pkg/__init__.py": "", "pkg/mod.py": HEAD + "from .scales import scale\n" + KERNEL,
            "pkg/scales.py": scales, "flat.py": HEAD + "from pkg.scales import scale\n" + KERNEL,
        })  # fmt: skip
    for file in ("pkg/mod.py", "flat.py"):
        done = call("diff", f"before/{file}:scaled", f"after/{file}:scaled", *ARG, "--json", folder=tmp_path)
        # 63 more instructions of at least 60 cycles at 1.4 GHz take longer than 2 us
        document = json.loads(done.stdout)
        assert document["speedup"] > 1.1, (file, document["speedup"])


def test_run_takes_a_script_with_relative_imports(library: Path) -> None:
    put(library / "lib" / "pkg", {
        "host.py": "import numpy as np\nfrom .sub.mod import scaled\nprint(__name__, __package__)\n"
        "print(scaled(np.ones((1, 2), np.float32)))\n",
    })  # fmt: skip
    done = call("run", "lib/pkg/host.py", folder=library)
    assert outcome_of(done) == (0, "imported pkg.sub.mod\n__main__ pkg\n[[2. 2.]]\n", "")


def test_a_script_of_a_package_without_relative_imports_runs_as_python_runs_it(library: Path) -> None:
    put(library / "lib" / "pkg", {"host.py": "print(__name__, __package__ or 'none')\n"})
    assert outcome_of(call("run", "lib/pkg/host.py", folder=library)) == (0, "__main__ none\n", "")


def test_a_missing_module_of_a_package_is_told_with_the_users_line(library: Path) -> None:
    put(library, {"lib/pkg/sub/mod.py": HEAD + "from .missing import scale\n" + KERNEL})
    done = call("check", MOD, *ARG, folder=library)
    assert done.returncode == 1
    assert done.stderr.count("File ") == 1
    assert 'mod.py", line 4, in <module>' in done.stderr
    assert "ModuleNotFoundError: No module named 'pkg.sub.missing'\n" in done.stderr
