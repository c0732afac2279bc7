"""How findings are told: text, JSON, SARIF, comments that silence them, exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import nkilab
from nkilab.checking import every_launch, report_of
from nkilab.checks.comments import settings_near
from nkilab.checks.declare import RULES
from nkilab.checks.finding import Finding, Site
from nkilab.checks.report import Report, summary_line
from nkilab.checks.sarif import sarif
from nkilab.checks.sources import SourceFile, Sources
from nkilab.checks.terminal import text_of
from nkilab.errors import UsageError
from tests.checks.gallery import cores, memory, races
from tests.checks.gallery.case import CASES
from tests.command_line import call, outcome_of, script

assert cores
assert memory
assert races
KERNEL = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def holes(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile[0:64], x[0:64])
    nisa.dma_copy(out, tile){comment}
    return out


@nki.jit
def whole(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile)
    return out
"""
ARG = ("--arg", "f32[128,512]")
TEXT = """\
kernels.py:11: error: dma_copy reads [128, 512] of tile: float32[128, 512] in sbuf, which was
  written in part only [unwritten-read]
   11 |     nisa.dma_copy(out, tile)
      |     ^^^^^^^^^^^^^^^^^^^^^^^^
  kernels.py:8: made here, unwritten
    8 |     tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
      |            --------------------------------------------------
  hint: write the whole tensor first, with nisa.memset or a full load
"""


def kernels(folder: Path, comment: str = "") -> Path:
    return script(folder, KERNEL.format(comment=comment), "kernels.py")


def test_a_finding_is_printed_with_line_caret_second_line_and_hint(tmp_path: Path) -> None:
    done = call("check", f"{kernels(tmp_path)}:holes", *ARG)
    assert outcome_of(done) == (1, f"{TEXT}\nholes on trn2: 1 error, 0 warnings\n", "")


def test_a_sound_kernel_passes(tmp_path: Path) -> None:
    done = call("check", f"{kernels(tmp_path)}:whole", *ARG)
    assert outcome_of(done) == (0, "whole on trn2: 0 errors, 0 warnings\n", "")


def test_json_holds_everything_under_a_versioned_schema(tmp_path: Path) -> None:
    done = call("check", f"{kernels(tmp_path)}:holes", *ARG, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert document["schema"] == "nkilab.check/1"
    assert (document["kernel"], document["target"], document["passes"]) == ("holes", "trn2", False)
    assert document["counts"] == {"error": 1, "warning": 0, "note": 0, "advice": 0}
    (finding,) = document["findings"]
    assert (finding["rule"], finding["where"], finding["other_where"]) == (
        "unwritten-read", "kernels.py:11", "kernels.py:8",
    )  # fmt: skip
    assert finding["site"] == {"file": str(tmp_path / "kernels.py"), "line": 11}
    # one tile of 512 float32: 2048 bytes per partition of 208 KiB - 8 (machine row of trn2)
    assert document["occupancy"][0]["sbuf"]["peak"] == 2048


def test_sarif_names_rule_place_and_second_place(tmp_path: Path) -> None:
    path = tmp_path / "found.sarif"
    done = call("check", f"{kernels(tmp_path)}:holes", *ARG, "--sarif", path, folder=tmp_path)
    assert done.returncode == 1
    document = json.loads(path.read_text())
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    (result,) = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "unwritten-read"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "kernels.py"
    assert place["region"] == {"startLine": 11, "startColumn": 5, "endColumn": 29}
    assert result["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 8
    assert result["level"] == "error"


def test_a_comment_with_rule_and_reason_silences_a_line(tmp_path: Path) -> None:
    comment = "  # nkilab: ignore[unwritten-read] the rest is a pad"
    done = call("check", f"{kernels(tmp_path, comment)}:holes", *ARG)
    assert outcome_of(done) == (0, "holes on trn2: 0 errors, 0 warnings, 1 silenced\n", "")


@pytest.mark.parametrize(
    ("comment", "problem", "fix"),
    [
        ("# nkilab: ignore", "the comment names no rule", "write `# nkilab: ignore[RULE] reason`"),
        ("# nkilab: ignore[unwritten-read]", "the comment gives no reason to ignore unwritten-read",
         "write `# nkilab: ignore[RULE] reason`"),
        ("# nkilab: ignore[unwriten-read] typo", "there is no rule unwriten-read",
         "did you mean unwritten-read?"),
    ],
)  # fmt: skip
def test_a_comment_that_silences_nothing_in_particular_is_a_finding(
    tmp_path: Path, comment: str, problem: str, fix: str
) -> None:
    done = call("check", f"{kernels(tmp_path, '  ' + comment)}:holes", *ARG, "--json")
    findings = {f["rule"]: f for f in json.loads(done.stdout)["findings"]}
    assert set(findings) == {"unwritten-read", "ignore-comment"}
    assert (findings["ignore-comment"]["message"], findings["ignore-comment"]["fix"]) == (problem, fix)


def test_a_comment_above_a_call_of_several_lines_silences_it() -> None:
    file = SourceFile("k.py", "# nkilab: ignore[spill] known\ncall(\n    1,\n)\nother()\n")
    (comment,) = file.ignores
    assert (comment.first, comment.last, comment.rules, comment.reason) == (1, 4, ("spill",), "known")


def test_comments_above_each_other_silence_the_same_line() -> None:
    file = SourceFile("k.py", "# nkilab: ignore[spill] known\n# nkilab: ignore[psum-full] too\ncall()\n")
    assert [(comment.rules, comment.last) for comment in file.ignores] == [
        (("spill",), 3),
        (("psum-full",), 3),
    ]


def test_pyproject_silences_rules_everywhere_or_by_file(tmp_path: Path) -> None:
    settings = tmp_path / "pyproject.toml"
    settings.write_text('[tool.nkilab.check]\nper-file-ignores = { "ker*.py" = ["unwritten-read"] }\n')
    assert call("check", f"{kernels(tmp_path)}:holes", *ARG).returncode == 0
    settings.write_text('[tool.nkilab.check]\nignore = ["unwritten-read"]\n')
    assert call("check", f"{kernels(tmp_path)}:holes", *ARG).returncode == 0
    settings.write_text('[tool.nkilab.check]\nignore = ["spill"]\n')
    assert call("check", f"{kernels(tmp_path)}:holes", *ARG).returncode == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('ignore = ["spil"]', "there is no rule spil"),
        ("ignore = 3", "rules are 3; they are a list of names"),
        ("skip = []", "[tool.nkilab.check] has skip; its keys are ignore, per-file-ignores"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool.nkilab.check]\n{text}\n")
    with pytest.raises(UsageError) as refused:
        settings_near(str(tmp_path / "kernels.py"))
    assert refused.value.problem == f"{path}: {problem}"


# moves runs of 256 bytes
STRIPES = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 8192), nl.float32, buffer=nl.shared_hbm)
    for i in range(128):
        tile = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, x[:, i * 64 : (i + 1) * 64])
        nisa.dma_copy(out[:, i * 64 : (i + 1) * 64], tile)
    return out
"""


def test_warnings_fail_and_advice_does_not(tmp_path: Path) -> None:
    warned = RULES["spill"].pairs[0].wrong
    path = script(tmp_path, warned.text, "spilled.py")
    done = call("check", f"{path}:kernel", "--arg", *warned.args.values(), "--json")
    assert (done.returncode, json.loads(done.stdout)["passes"]) == (1, False)
    path = script(tmp_path, STRIPES, "stripes.py")
    done = call("check", f"{path}:kernel", "--arg", "f32[128,8192]", "--json")
    document = json.loads(done.stdout)
    assert document["counts"]["advice"] > 0
    assert (done.returncode, document["passes"]) == (0, True)


def test_an_error_of_the_kernel_is_a_finding_and_nothing_else_is_checked(tmp_path: Path) -> None:
    example = RULES["kernel-error"].pairs[0].wrong
    path = script(tmp_path, example.text, "wide.py")
    args = [part for spec in example.args.values() for part in ("--arg", spec)]
    document = json.loads(call("check", f"{path}:kernel", *args, "--json").stdout)
    (finding,) = document["findings"]
    assert finding["message"] == "nc_matmul: N is 1024; trn2 allows 512 (moving free max)"
    assert finding["fix"] == "split the free axis of `moving`"
    ran = r"the kernel stopped before its end, after 2 instructions \(\d+\.\d\d us predicted\), so only its"
    (note,) = document["notes"]
    assert re.fullmatch(f"{ran} text was checked", note)


def test_a_script_runs_with_all_its_kernels_checked(tmp_path: Path) -> None:
    kernels(tmp_path)
    lines = ["import numpy as np", "from kernels import holes, whole", "x = np.ones((128, 512), np.float32)",
             "whole(x)", "holes(x)", "holes(x)", "print('done')"]  # fmt: skip
    host = script(tmp_path, "\n".join(lines))
    done = call("run", "--check", host, folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "done\n")
    assert done.stderr == f"{TEXT}\n3 launches checked: 1 error, 0 warnings\n"


def test_every_launch_in_a_block_is_checked_and_none_behind_it() -> None:
    case = next(c for c in CASES if c.name == "memory.right_everything_was_loaded")
    import numpy as np

    with every_launch() as reports:
        case.kernel(np.ones((128, 512), np.float32))
    case.kernel(np.ones((128, 512), np.float32))
    assert [report.kernel for report in reports] == ["right_everything_was_loaded"]


def test_the_interface_returns_findings_with_the_documented_fields() -> None:
    case = next(c for c in CASES if c.name == "memory.wrong_nothing_was_loaded")
    (finding,) = nkilab.check(case.kernel, *case.args)
    assert isinstance(finding, nkilab.Finding)
    assert finding.fails
    assert (finding.rule, finding.fix) == (
        "unwritten-read", "write the whole tensor first, with nisa.memset or a full load",
    )  # fmt: skip
    assert finding.where.startswith("memory.py:")
    assert finding.other_where.startswith("memory.py:")


def test_a_line_that_cannot_be_read_is_told_without_an_excerpt() -> None:
    finding = Finding("spill", "m", "gone.py:3", severity="warning", site=Site("/no/gone.py", 3))
    report = Report("k", "trn2", (finding,), sources=Sources())
    assert text_of(report) == "gone.py:3: warning: m [spill]"
    located = sarif([report], "0", Path("/no"))["runs"][0]["results"][0]["locations"][0]
    assert located["physicalLocation"] == {"artifactLocation": {"uri": "gone.py"}, "region": {"startLine": 3}}


def test_the_summary_counts_each_kind() -> None:
    kinds = ("error", "error", "warning", "advice")
    findings = tuple(Finding("spill", str(i), "", severity=kind) for i, kind in enumerate(kinds))
    assert summary_line([Report("k", "t", findings)]) == "2 errors, 1 warning, 1 piece of advice"


def test_tensors_of_two_cores_have_both_lines() -> None:
    case = next(c for c in CASES if c.name == "cores.right_halves_are_sent")
    assert report_of(case.kernel, case.args, {}).passes


def test_what_pythons_own_code_raises_is_told_at_the_line_that_called_it(tmp_path: Path) -> None:
    text = "import json\nimport nki\n\n\n@nki.jit\ndef k(x):\n    json.loads('{')\n    return x\n"
    (tmp_path / "kernel.py").write_text(text)
    done = call("check", "kernel.py:k", "--arg", "f32[4,4]", "--json", folder=tmp_path)
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["rule"], finding["where"]) == ("kernel-error", "kernel.py:7")
