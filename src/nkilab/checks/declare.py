"""How a rule of the checks is written down: once, with an example that breaks it and one that keeps it.

A rule is data; the families of checks find where it is broken. Explanations, documents, SARIF and the tests
of the examples follow from the declaration.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import partial
from textwrap import dedent, indent
from typing import Literal, NamedTuple, NotRequired, TypedDict, Unpack

from msgspec import Struct
from msgspec.structs import replace

from ..dialects.history import NEWEST, VERSIONS, order
from .finding import CERTAIN, NOWHERE, Certainty, Finding, Origin, Severity, Site

# in the order in which the documents tell them
FAMILIES: dict[str, str] = {
    "kernel": "What stops a kernel",
    "initialisation": "What was never written",
    "races": "What nothing orders",
    "psum": "Accumulation in PSUM",
    "capacity": "What does not fit",
    "loops": "Loops that the compiler runs in any order",
    "language": "What the compiler refuses though Python runs it",
    "compiler": "What the build refuses though the simulator runs it",
    "numerics": "Precision (`--numerics`)",
    "replay": "Other orders (`--replay N`)",
    "advice": "Speed",
    "comments": "Comments to nkilab",
}
RULES: dict[str, Rule] = {}
_PARTS: tuple[Literal["title", "what", "why", "fix", "source"], ...] = (
    "title", "what", "why", "fix", "source",
)  # fmt: skip

PACKAGES = {"nki": "nki", "neuronxcc": "neuronxcc.nki"}
_IMPORTS = {
    "nki": "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n",
    "neuronxcc": "import neuronxcc.nki as nki\nimport neuronxcc.nki.compiler as ncc\n"
    "import neuronxcc.nki.isa as nisa\nimport neuronxcc.nki.language as nl\n",
}


# lines of examples that make tiles, and one tile of such a line
_TILES = re.compile(r"^( *)tiles: (.*)$", re.MULTILINE)
_TILE = re.compile(r"(\w+) ([\w.]+)\[(.*?)\] (\w+)([^;]*)")
_RETURNED = re.compile(r"^tiles: (?:.*; )?out [^;<\n]* hbm[^;<\n]*(?:< ([^;\n]*))?", re.MULTILINE)
_TYPES = {"f32": "nl.float32", "bf16": "nl.bfloat16", "i32": "nl.int32", "u32": "nl.uint32"}


# a line that calls an instruction with operands by place
_CALL = re.compile(r"^( *)(nisa\.\w+\(\w+[\[,].*\))", re.MULTILINE)
# what loads a tile or stores to a tensor, by spelling
_LOADED = {"nki": "nisa.dma_copy({}, {})", "neuronxcc": "{}[...] = nl.load({})"}
_STORED = {"nki": "nisa.dma_copy({}, {})", "neuronxcc": "nl.store({}, {})"}
_PLACED = re.compile(r"nl.(\w+), address=\(0, (\w+)\)")


def _allocations(line: re.Match[str], spelling: str) -> str:
    """What makes the tiles of a line, and loads them."""
    lines, loads = [], []
    for name, dtype, shape, memory, rest in _TILE.findall(line[2]):
        more, _, source = rest.partition(" < ")
        filled = (_STORED if memory == "hbm" else _LOADED)[spelling].format(name, source)
        loads += [line[1] + filled] if source and name != "out" else []
        lines.append(
            f"{line[1]}{name} = nl.ndarray(({shape.replace(',', ', ')}), {_TYPES.get(dtype, dtype)}, "
            f"buffer=nl.{'shared_hbm' if memory == 'hbm' else memory}{more})"
        )
    text = "\n".join((*lines, *loads))
    return text if spelling == "nki" else _PLACED.sub(r"ncc.\1.mod_alloc(base_addr=\2)", text)


def _assigned(line: re.Match[str]) -> str:
    """A call that writes to its first operand, as Beta 1 has it: what the call returns is assigned."""
    call = ast.parse(line[2], mode="eval").body
    assert isinstance(call, ast.Call)
    dst, *args = map(ast.unparse, call.args)
    named = [f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords]
    called, target = ast.unparse(call.func), dst if dst.endswith("]") else f"{dst}[...]"
    # a sum begins where nothing is written yet
    sign = "+=" if called == "nisa.nc_matmul" and "accumulate=False" not in named else "="
    match called:
        case "nisa.dma_copy":
            return f"{line[1]}{called}(dst={dst}, src={args[0]})"
        case "nisa.memset":
            args = [f"{dst}.shape", *args, f"{dst}.dtype"]
    words = (*args, *(word for word in named if not word.startswith("accumulate=")))
    return f"{line[1]}{target} {sign} {called}({', '.join(words)})"


class Example(Struct, frozen=True):
    """A small kernel."""

    # of the function, which is called `kernel`. A line `tiles: a f32[128,512] sbuf < x; ...` makes tiles,
    # here one that is loaded from x; one in hbm that is called out is returned at the end, and what stands
    # behind its `<` is stored to it before
    body: str
    args: dict[str, str]  # per parameter what it is called with, as on a command line: "f32[128,512]"
    spelling: str = "nki"  # "nki" or "neuronxcc"
    grid: str = ""  # of the launch, as on a command line
    above: str = ""  # lines before the kernel
    within: str = ""  # the head of a function around it, "made(scale=2.0)", or ""
    options: tuple[str, ...] = ()  # further options of `nkilab check`

    def around(self, lines: Lines, above: str = "", options: tuple[str, ...] = ()) -> Example:
        """The same with lines in the place of `{}` in its body and in the arguments."""
        middle = lines if isinstance(lines, str) else "\n".join(lines)
        options = (*self.options, *options)
        body, *specs = (text.format(middle.strip("\n")) for text in (self.body, *self.args.values()))
        args = dict(zip(self.args, specs, strict=True))
        return replace(self, body=body, args=args, above=above or self.above, options=options)

    @property
    def in_beta1(self) -> Example:
        """The same in the spelling of Beta 1, whose instructions return what others write to an operand."""
        return replace(self, spelling="neuronxcc", body=_CALL.sub(_assigned, self.body))

    def pair(self, wrong: Lines, right: Lines) -> Pair:
        """The same around what breaks a rule and around what keeps it."""
        return Pair(self.around(wrong), self.around(right))

    @property
    def text(self) -> str:
        """The file: imports and the kernel."""
        head = f"@nki.jit\ndef kernel({', '.join(self.args)}):\n"
        allocations = partial(_allocations, spelling=self.spelling)
        body = indent(_TILES.sub(allocations, dedent(self.body).strip("\n")), "    ")
        returned = _RETURNED.search(self.body)
        source = returned[1] if returned else ""
        stored = f"\n    {_STORED[self.spelling].format('out', source)}" if source else ""
        body += f"{stored}\n    return out" if returned else ""
        above, kernel = dedent(self.above).strip("\n"), f"{head}{body}\n"
        if self.within:
            call = f"{self.within.partition('(')[0]}()"
            kernel = f"def {self.within}:\n{indent(kernel, '    ')}    return kernel\n\n\nkernel = {call}\n"
        return f"{_IMPORTS[self.spelling]}\n{above + chr(10) if above else ''}\n{kernel}"

    @property
    def shown(self) -> str:
        """The same without imports, for documents."""
        return self.text.removeprefix(_IMPORTS[self.spelling]).strip("\n")


# lines of a kernel
Lines = str | tuple[str, ...]
# copies x to out through a tile
COPIED = Example(
    """
tiles: tile f32[128,512] sbuf < x; out f32[128,512] hbm < tile
{}
""",
    {"x": "f32[128,512]"},
)
# multiplies the tile of COPIED
SCALED = "nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0={})"


class Refusal(Struct, frozen=True):
    """That the vendor's build refuses what breaks a rule."""

    certainty: Certainty  # how that is known; what is certain is an error, the rest a note
    code: str = ""  # of the compiler's error, "NCC_INLA001"; "" where its front end refuses
    build_error: str = ""  # the sentence that the build ends with, or ""
    since: str = "0.1"  # first version of NKI that refuses it; "beta1" is the `neuronxcc` spelling
    until: str = ""  # last version that does; "" if the newest does
    generations: tuple[int, ...] = ()  # of the chips for which it does; () for all
    milder: Severity | None = None  # severity of a rule that fails less than its certainty says

    @property
    def severity(self) -> Severity:
        """Of findings of the rule."""
        return self.milder or ("error" if self.certainty in CERTAIN else "note")

    def applies(self, version: str, generation: int) -> bool:
        """Whether a version, "" for the newest, refuses it for a generation of chips; 0 for any."""
        own = order(version or NEWEST)
        is_within = order(self.since) <= own <= order(self.until or VERSIONS[-1])
        return is_within and (not generation or not self.generations or generation in self.generations)


class Pair(NamedTuple):
    """A kernel that breaks a rule, and no other that fails, and the same, repaired."""

    wrong: Example
    right: Example


class Rule(Struct, frozen=True):
    """A rule of the checks."""

    id: str  # as `# nkilab: ignore[id]` and `nkilab explain id` spell it
    family: str  # one of `FAMILIES`
    severity: Severity  # of its findings
    title: str  # the rule as a claim that a sound kernel keeps
    what: str  # when it is broken
    why: str  # what the hardware or the compiler does then
    fix: str  # one thing to do, imperative
    source: str  # document and heading
    # examples, of one spelling or of both; none where only a damaged installation, another table of
    # dependences or a slow kernel can break it
    pairs: tuple[Pair, ...]
    # why one spelling alone has such a mistake; "" where both have it, or versions say so
    one_spelling: str = ""
    refusal: Refusal | None = None  # that the vendor's build refuses it; None where the hardware punishes it

    @property
    def origin(self) -> Origin:
        """Who refuses what breaks the rule."""
        return "compiler" if self.refusal is not None else "hardware"

    @property
    def certainty(self) -> Certainty:
        """How the rule is known; of warnings documents say little, of notes builds say otherwise."""
        if self.refusal is not None:
            return self.refusal.certainty
        uncertain: dict[str, Certainty] = {"warning": "derived", "note": "disputed"}
        return uncertain.get(self.severity, "documented")

    def finding(
        self, message: str, site: Site, other: Site = NOWHERE, other_message: str = "", *, fix: str = "",
        notes: Sequence[str] = (), severity: Severity | None = None, gain_us: float | None = None,
        command: str = "",
    ) -> Finding:  # fmt: skip
        """A finding of this rule; `fix` and `severity` where they differ from the rule's."""
        code, build_error = (self.refusal.code, self.refusal.build_error) if self.refusal else ("", "")
        return Finding(
            self.id, message, str(site), str(other), fix or self.fix, severity or self.severity, site, other,
            other_message, tuple(notes), gain_us, command, self.origin, self.certainty, code, build_error,
        )  # fmt: skip


class Facts(TypedDict):
    """What a rule says, as `Rule` has it.

    Lines of `wrong` and `right` stand in `kernel`. What the hardware punishes has both in the other spelling
    too, unless `one_spelling` says why not: `other`, a kernel for the same lines or a pair, or `in_beta1`.
    """

    title: str
    what: str
    why: str
    fix: str
    source: str
    wrong: NotRequired[Example | Lines]
    right: NotRequired[Example | Lines]
    kernel: NotRequired[Example | str]
    other: NotRequired[Example | Pair]
    one_spelling: NotRequired[str]
    options: NotRequired[tuple[str, ...]]


def rule(id: str, family: str, severity: Severity | Refusal, **facts: Unpack[Facts]) -> Rule:
    """Declare a rule; a `Refusal` stands in the place of the severity where the vendor's build refuses it.

    Raises:
        TypeError: if a part is missing, or the identifier is taken. A rule without an example is one that
            only a damaged installation or another platform can break.
    """
    parts = {name: facts[name] for name in _PARTS}
    missing = [name for name, part in parts.items() if not part]
    if missing or family not in FAMILIES or id in RULES:
        raise TypeError(f"rule {id}: {', '.join(missing) or 'its family or identifier'} will not do")
    refusal, level = (severity, severity.severity) if isinstance(severity, Refusal) else (None, severity)
    reason, other = facts.get("one_spelling", ""), facts.get("other")
    own = _pair(facts, facts.get("kernel", COPIED))
    if isinstance(other, Example):
        other = _pair(facts, other)
    elif own and not other and not reason and refusal is None:
        other = Pair(own.wrong.in_beta1, own.right.in_beta1)
    pairs = tuple(pair for pair in (own, other) if pair)
    RULES[id] = Rule(id, family, level, **parts, pairs=pairs, one_spelling=reason, refusal=refusal)
    return RULES[id]


def _pair(facts: Facts, kernel: Example | str) -> Pair | None:
    """Both examples of a rule, with its lines in a kernel."""
    around = COPIED.around(kernel) if isinstance(kernel, str) else kernel
    options = facts.get("options", ())

    def example(lines: Example | Lines) -> Example:
        return lines if isinstance(lines, Example) else around.around(lines, options=options)

    return Pair(example(facts["wrong"]), example(facts["right"])) if "wrong" in facts else None
