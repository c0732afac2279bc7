"""Whatever is given ends in a kernel or one of our errors; and what does not matter changes nothing."""

from __future__ import annotations

import io
import random
import re
import warnings

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from nkilab.einsum import compile as compile_einsum
from nkilab.errors import NkilabError, SpecError, UnsupportedError, UsageError
from tests.einsum.mapped import SCALED_SUM
from tests.einsum.renaming import shape_of
from tests.einsum.specs import PRODUCT, SUMS
from tests.examples import examples

PLAIN = """\
einsum:
  declaration: {X: [M, N], G: [M], E: [M, N], D: [M], R: [M], Z: [M, N], W: [I1, M]}
  expressions:
    - G[m] = X[m, n] ;; V max
    - E[m, n] = X[m, n] . G[m] ;; M binary(subtract_exp)
    - D[m] = E[m, n] ;; V add
    - R[m] = D[m] ;; M unary(reciprocal)
    - Z[m, n] = E[m, n] . R[m] ;; M mul
    - W[0, m] = const(0)
    - iterate: i
      body:
        - W[i+1, m] = W[i, m] . R[m] ;; M add
  shape: {M: 130, N: 40, I1: 4, I: 3}
format:
  X: {dtype: bfloat16}
options: {kernel-name: soft, cascade-outputs: [Z, W]}
"""
WORDS = re.compile(r"\w+|\s+|[^\w\s]")
STRANGE = (
    "", "0", "1", "-1", "999999999999", "1e400", "lambda", "M", "K0", "[]", "{}", "null", "true", ".inf",
    "mul", "'", "[[", "if", "const", "&x", "*x", "!!python/name:os.system", "\t", "\x00", "²", "½", "<<",
    "---", ": ", "\n",
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A specification of ours with a few words replaced, left out, swapped or doubled."""
    words = WORDS.findall(draw(st.sampled_from((PRODUCT, SUMS, SCALED_SUM, PLAIN))))
    for _ in range(draw(st.integers(1, 3))):
        one, other = (draw(st.integers(0, len(words) - 1)) for _ in range(2))
        match draw(st.sampled_from(("strange", "swap", "copy", "lines"))):
            case "strange":
                words[one] = draw(st.sampled_from(STRANGE))
            case "swap":
                words[one], words[other] = words[other], words[one]
            case "copy":
                words[one] = words[other]
            case _:
                lines = "".join(words).split("\n")
                del lines[one % len(lines)]
                words = WORDS.findall("\n".join(lines)) or [""]
    return "".join(words)


@settings(max_examples=examples(20), deadline=None)
@given(damaged(), st.sampled_from(("nki", "neuronxcc")))
def test_damaged_text_ends_in_a_kernel_or_one_of_our_errors(text: str, dialect: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            assert compile_einsum(text, dialect=dialect).module_text
        except NkilabError as error:
            event(type(error).__name__)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("einsum: " + "[" * 5000, "1:24: spec: the specification has more than 16 levels"),
        ("einsum: [" + "1," * 60000 + "1]", "1:40000: spec: the specification has more than 20000 values"),
        ("einsum: " + "9" * 5000, "1:9: spec: a value has more than 4000 characters"),
        ("einsum: '" + "x" * 300000 + "'",
         "spec: the specification has 300010 characters; at most 262144 are read"),
        ("a: &x [1]\neinsum: *x", "1:4: spec: the anchor &x is refused; nothing may refer to it"),
        (
            "einsum: !!python/object/apply:os.system ['true']",
            "1:9: spec: the tag tag:yaml.org,2002:python/object/apply:os.system is refused; a specification "
            "holds texts, numbers, lists and mappings",
        ),
        ("einsum: {<<: {a: 1}}", "1:10: spec: the key << is refused; write the keys out"),
        ("einsum:\n  declaration: {A: [M], Z: [M]}\n  expressions: [" + "'Z[m] = A[m]'," * 501 + "]",
         "3:3: einsum.expressions: there are 501 Einsums; at most 500"),
        ("einsum:\n  declaration: {A: [M], Z: [M]}\n  expressions: ['Z[m] = A[9999999999*m]']",
         "3:26: einsum.expressions[0]: 9999999999 stands in an index; whole numbers have at most 9 digits"),
        (f"einsum:\n  declaration: {{A: [M], Z: [M]}}\n  expressions: ['Z[m] = A[m]']\n"
         f"mapping:\n  partitioning: {{Z: {{M: [{', '.join(['uniform_shape(2)'] * 9)}]}}}}",
         "5:22: mapping.partitioning.Z.M: M is split 9 times; at most 8"),
        ("einsum:\n  declaration: {A: [M, N], Z: [N, M]}\n  expressions: ['Z[n, m] = A[m, n]']\n"
         "  shape: {M: 900001, N: 900001}",
         "einsum.expressions: the kernel runs "),
        ("---\neinsum: 1\n---\n", "3:1: spec: a second document begins; one is read"),
        ("einsum: {\n", "2:1: spec: this is no YAML: expected the node content, but found '<stream end>'"),
    ],
    ids=["deep", "many", "long number", "long", "alias", "tag", "merge", "Einsums", "index", "splits",
         "extents", "two documents", "no YAML"],
)  # fmt: skip
def test_text_from_strangers_is_data_and_bounded(text: str, message: str) -> None:
    with pytest.raises((SpecError, UnsupportedError)) as refused:
        compile_einsum(text)
    assert str(refused.value).startswith(message.split(": expected")[0])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mapping:\n", "maping:\n",
         "20:1: maping: maping is no key here; the keys are einsum, mapping, format, binding, options\n"
         "  hint: write mapping, if that is meant"),
        ("  loop-order:\n", "  loop_order:\n",
         "28:3: mapping.loop_order: loop_order is no key here; the keys are partitioning, loop-order, "
         "spacetime\n"
         "  hint: write loop-order, if that is meant"),
        ("M mul V add", "M mull V add",
         "16:42: einsum.expressions[3]: mull is no operator\n"),
        ("[k, m] . YS", "[k] . YS",
         "16:17: einsum.expressions: XS has the ranks [K, M] and the indices [k] here, not one for each\n"),
        ("kernel-name: product", "kernel-name: a b", "88:16: options.kernel-name: 'a b' is no Python name"),
        ("uniform_shape(128)]}\n    YS", "uniform_shape(0)]}\n    YS",
         "22:14: mapping.partitioning.XS.K[0]: 'uniform_shape(0)' is no split; write uniform_shape(NUMBER)"),
        ("cascade-outputs: [ZH]", "cascade-outputs: [ZZ]",
         "89:20: options.cascade-outputs: the output ZZ is not declared\n"),
        ("shape: {K: 256", "shape: {K: many",
         "19:14: einsum.shape.K: 'many' stands where a whole number of at least 1 is needed"),
        ("{dtype: float32}\n", "{dtype: float33}\n", "38:14: format.P.dtype: "),
    ],
    ids=lambda v: "" if "\n" in v or ":" in v else v,
)  # fmt: skip
def test_errors_of_the_language_point_into_the_text(old: str, new: str, message: str) -> None:
    assert PRODUCT.count(old) == 1
    with pytest.raises(SpecError) as refused:
        compile_einsum(PRODUCT.replace(old, new))
    assert (str(refused.value) + "\n").startswith(message)


# what does not matter


def shuffled(value: object, rng: random.Random) -> object:
    """The same YAML with the keys of every mapping in another order."""
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {k: shuffled(value[k], rng) for k in keys}
    return [shuffled(v, rng) for v in value] if isinstance(value, list) else value


def text_of(value: object) -> str:
    stream, yaml = io.StringIO(), YAML(typ="safe")
    yaml.sort_base_mapping_type_on_output = False
    yaml.dump(value, stream)
    return stream.getvalue()


@settings(max_examples=examples(5), deadline=None)
@given(st.integers(0, 2**16), st.sampled_from((PRODUCT, PLAIN)))
def test_the_order_of_keys_and_of_entries_of_the_binding_changes_nothing(seed: int, text: str) -> None:
    rng, document = random.Random(seed), YAML(typ="safe").load(text)
    declaration = document["einsum"].pop("declaration")
    if "binding" in document:
        for key in ("engine", "tensor"):
            rng.shuffle(document["binding"][key])
    other = shuffled(document, rng)
    # the declaration's order is that of the arguments
    other["einsum"]["declaration"] = declaration
    assert compile_einsum(text_of(other)).source == compile_einsum(text).source


@settings(max_examples=examples(5), deadline=None)
@given(st.permutations(("DS.M1", "P.M1", "ZS.M1", "ZH.M1")), st.permutations(("K", "M", "J")))
def test_the_order_of_a_group_and_the_names_of_ranks_change_names_alone(
    members: list[str], letters: list[str]
) -> None:
    text = PRODUCT.replace("[DS.M1, P.M1, ZS.M1, ZH.M1]", f"[{', '.join(members)}]")
    names = {old: f"{new}Q" for old, new in zip(("K", "M", "J"), letters)}
    for old, new in names.items():
        text = re.sub(rf"(?<![\w-])(?<!;; ){old}(?=\d?\b)", f"@{new}", text)
        text = re.sub(rf"(?<=[\[ .]){old.lower()}(?=[],])", f"@{new.lower()}", text)
    other = compile_einsum(text.replace("@", ""))
    assert shape_of(other.source) == shape_of(compile_einsum(PRODUCT).source)


PARTS = {
    "partitioning": "  partitioning:\n    S: {M: [uniform_shape(64)]}\n",
    "spacetime": "  spacetime:\n    S: {space: [M], time: [N]}\n",
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_mapping_is_never_ignored(part: str) -> None:
    text = (
        "einsum:\n  declaration:\n    A: [M, N]\n    S: [M]\n  expressions:\n    - S[m] = A[m, n] ;; V add\n"
        "  shape: {M: 256, N: 512}\n"
    )
    plain, compiled = compile_einsum(text), compile_einsum(f"{text}mapping:\n{PARTS[part]}")
    assert not any("completed" in change for change in plain.changes)
    assert any("completed" in change for change in compiled.changes)
    # M in 4 parts of 64 where it is split so, in 2 of 128 where only its place is given
    assert "range(M // M_TILE):" in compiled.source
    assert f"\nM_TILE = {64 if part == 'partitioning' else 128}\n" in compiled.source
    a = np.random.default_rng(0).standard_normal((256, 512))
    np.testing.assert_allclose(compiled(a), a.sum(1), rtol=0, atol=1e-4)


def test_an_extent_of_no_rank_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        compile_einsum("Z[m] = A[m] ;; M unary(exp)", sizes={"M": 4, "L": 3})
    assert "size of L is given; the ranks are M" in str(refused.value)


def test_a_rank_may_be_named_by_its_variable() -> None:
    compiled = compile_einsum("ij->i", sizes={"i": 4, "J": 3})
    assert compiled(np.ones((4, 3))).tolist() == [3.0] * 4
    with pytest.raises(UsageError) as refused:
        compile_einsum("ij->i", sizes={"i": 4, "I": 4, "j": 3})
    assert "two sizes of I are given\n  hint: leave i or I out" in str(refused.value)
