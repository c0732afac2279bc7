"""Random numbers, and the generators behind them.

Each lane of VectorE has four XORWOW generators and each lane of GpSimdE one (trn3 guide, "XORWOW-based PRNG";
nki.isa.rand_set_state), of six 32-bit words: x, y, z, w, v of Marsaglia's xorwow and its counter d. Not
documented, our choice: this order of the words, that element i of a row comes from generator i mod 4 of
VectorE, what the words are before anybody sets them, how a seed becomes words, and that VectorE before trn3,
whose generator is a shift register with no visible state, is modelled the same way. Numbers can be reproduced
from seed or state and have the documented distribution; their bits are not the hardware's.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ..tiles.convert import store
from ..tiles.tile import PSUM
from . import common_rules
from .attributes import NUMBER, Attr
from .costs import engine_step
from .declaration_parts import Example, Step
from .declare import FLOATS, In, Instruction, Out, Registers, Rule, ScalarOrVector, call_rule, rule
from .elementwise import as_column, as_shape, widen_operand

WORDS = 6
# words of state per lane, by engine: four generators on VectorE, one on GpSimdE
STATE_WORDS = {"vector": 4 * WORDS, "gpsimd": WORDS}
INTEGERS = ("int32", "int16", "int8", "uint32", "uint16", "uint8")
UNIFORM_DTYPES = ("float32", "float8_e4m3", "float8_e5m2", "float16", "bfloat16", "tfloat32", *INTEGERS)
_COUNTER_STEP = 362437


def seeded(seed: int, lanes: int, words: int) -> np.ndarray:
    """State words [lanes, words] of generators that one seed starts, all of them different.

    Word k of the flat table is the murmur3 finalizer of seed + (k + 1) * 0x9e3779b9. The first word of each
    generator is made odd: five zeros would stay zeros.
    """
    places = np.arange(1, lanes * words + 1, dtype=np.uint32)
    mixed = np.uint32(seed) + places * np.uint32(0x9E3779B9)
    for factor, places_right in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        mixed ^= mixed >> np.uint32(places_right)
        mixed *= np.uint32(factor)
    mixed ^= mixed >> np.uint32(16)
    state = mixed.reshape(lanes, words)
    state[:, ::WORDS] |= np.uint32(1)
    return state


def fresh_generators(lanes: int) -> np.ndarray:
    """The register file of all generators, [lanes] of fields by engine: seed 0 on VectorE, 1 on GpSimdE."""
    return _first_generators(lanes).copy()


@cache
def _first_generators(lanes: int) -> np.ndarray:
    state = np.zeros(lanes, [(name, np.uint32, (words,)) for name, words in STATE_WORDS.items()])
    for seed, (name, words) in enumerate(STATE_WORDS.items()):
        state[name] = seeded(seed, lanes, words)
    return state


def drawn(state: np.ndarray, count: int) -> np.ndarray:
    """The next `count` random words of each lane, [lanes, count]; advances `state` [lanes, words]."""
    lanes, words = state.shape
    generators = words // WORDS
    state_words = state.reshape(lanes, generators, WORDS).transpose(2, 0, 1)
    *recent, counter = (np.ascontiguousarray(word) for word in state_words)
    steps = -(-count // generators)
    bits = np.empty((steps, lanes, generators), np.uint32)
    two, one, four = np.uint32(2), np.uint32(1), np.uint32(4)
    for step in range(steps):
        t = recent[0] ^ (recent[0] >> two)
        t ^= t << one
        last = recent[4]
        t ^= last ^ (last << four)
        recent = [*recent[1:], t]
        bits[step] = t
    ticks = np.arange(1, steps + 1, dtype=np.uint32) * np.uint32(_COUNTER_STEP)
    bits += counter + ticks[:, None, None]
    if steps:
        counter = counter + ticks[-1]
    state[...] = np.stack([*recent, counter], axis=-1).reshape(lanes, words)
    return bits.transpose(1, 0, 2).reshape(lanes, -1)[:, :count]


def _draw(form: Any, engine: str, array: Any, registers: Any) -> np.ndarray:
    """A random word for each element of a tile, in its shape, from the generators of its lanes."""
    start = form.dst.start_partition
    # a field of a slice shares its memory, so the generators advance
    lanes = registers[engine][start : start + array.shape[0]]
    words = np.array(lanes)
    numbers = drawn(words, array.size // array.shape[0])
    lanes[...] = words
    return numbers.reshape(array.shape)


class Dropout(Instruction):
    """Set elements to 0 with a probability, and copy the others as they are.

    `prob` is a number or a tile [P, 1]: 0 keeps every element, 1 or more none.
    """

    engines = ("vector",)
    registers = "random"
    dst = Out("P F*")
    data = In("P F*")
    prob = ScalarOrVector(FLOATS)
    example = Example({"data": [[1, 2], [3, 4]], "prob": [[0], [1]]}, {"dst": [[1, 2], [0, 0]]})

    types_agree = common_rules.types_agree(
        "dst", "data", "dst and data differ in type", broken_by={"dst.dtype": "bfloat16"},
        hint="cast with tensor_copy afterwards",
    )  # fmt: skip

    @rule(
        "data is of an integer type and prob is not float32",
        broken_by={"dst.dtype": "int32", "data.dtype": "int32", "prob.dtype": "bfloat16"},
        hint="cast prob with tensor_copy",
    )
    def integers_need_a_float32(self) -> bool:
        is_float32 = self.prob is NUMBER or self.prob.dtype.name == "float32"
        return is_float32 or not self.data.dtype.is_integer

    def compute(self, dst: Any, data: Any, prob: Any, registers: Any) -> None:
        words = _draw(self, "vector", dst, registers)
        chance = np.float64(widen_operand(as_column(prob, dst.ndim), self.prob))
        dst[...] = np.where(words < chance * 2.0**32, dst.dtype.type(0), as_shape(data, dst.shape))

    def cost(self) -> list[Step]:
        # 2.26 costs: max(64, N)
        return [engine_step(self.machine, "vector", "DROPOUT", self.sizes["F*"])]


class Rng(Instruction):
    """Write 32 random bits per element, the lowest of them where the type is narrower.

    VectorE continues the generators that set_rng_seed starts. The bits are not those of the hardware.
    """

    engines = ("vector", "gpsimd")
    registers = "random"
    dst = Out("P F*", dtypes=INTEGERS)
    engine = Attr("vector", ("unknown", "vector", "gpsimd"))
    # by hand: one step of the first two generators of lane 0, from their words for seed 0
    example = Example({}, {"dst": [[4037970609, 797287012]]}, dtypes={"dst": "uint32"})

    gpsimd_stays_in_sbuf = common_rules.gpsimd_stays_in_sbuf("dst", source=", constraints")

    @rule(
        "engine is gpsimd; on trn1 only vector makes random numbers", source=", constraints",
        broken_by={"engine": "gpsimd"}, chips=("trn1",),
    )  # fmt: skip
    def engine_has_a_generator(self) -> bool:
        return self.engine != "gpsimd" or self.machine.generation >= 3

    def compute(self, dst: Any, registers: Any) -> None:
        words = _draw(self, "gpsimd" if self.engine == "gpsimd" else "vector", dst, registers)
        dst[...] = words.astype(f"u{dst.itemsize}").view(dst.dtype)

    def cost(self) -> list[Step]:
        if self.engine == "gpsimd":
            # assumed: an element a cycle
            return [engine_step(self.machine, "gpsimd", "RNG", self.sizes["F*"], widening=4)]
        # trn3 guide: VectorE makes four values per lane and cycle; assumed: one on earlier chips
        is_fast = self.machine.generation >= 4
        cycles = self.sizes["F*"] / (4 if is_fast else 1)
        return [engine_step(self.machine, "vector", "RNG", cycles, widening=1 if is_fast else 2)]


class Rand2(Instruction):
    """Write uniform random numbers from min to max, made in float32 with 24 random bits, rounded once.

    `min` and `max` are numbers or float32 tiles [P, 1]. The numbers are not those of the hardware.
    """

    engines = ("vector",)
    registers = "random"
    dst = Out("P F*", dtypes=UNIFORM_DTYPES)
    min = ScalarOrVector(("float32",))
    max = ScalarOrVector(("float32",))
    smallest = {"min": 0.0, "max": 1.0}
    example = Example({"min": [[3], [-2]], "max": [[3], [-2]]}, {"dst": [[3, 3], [-2, -2]]})

    chip_has_it = common_rules.chip_has_it(
        4, "rand2 exists from trn3 on", hint="fill an integer tile with rng and scale it"
    )

    @call_rule(
        "min is not below max", source=", constraints", broken_by={"max": -1.0}, numbers=("min", "max")
    )
    def range_is_not_empty(self, min: Any, max: Any) -> bool:
        return min is None or max is None or min < max

    def compute(self, dst: Any, min: Any, max: Any, registers: Any) -> None:
        low = widen_operand(as_column(min, dst.ndim), self.min)
        high = widen_operand(as_column(max, dst.ndim), self.max)
        words = _draw(self, "vector", dst, registers) >> np.uint32(8)
        share = words.astype(np.float32) * np.float32(2**-24)
        store(dst, low + share * (high - low), self.dst.dtype)

    def cost(self) -> list[Step]:
        # trn3 guide: four values per lane and cycle
        return [engine_step(self.machine, "vector", "RAND2", self.sizes["F*"] / 4)]


def _state_engine(form: Any) -> str:
    return "vector" if form.engine == "vector" else "gpsimd"


def _engine_has_a_state() -> Rule:
    """The chip lets programs see the state of the engine's generators."""

    @rule(
        "engine is vector; on trn2 only gpsimd has a visible state", source=", constraints",
        broken_by={"engine": "vector", "W": 24}, chips=("trn2",),
    )  # fmt: skip
    def engine_has_a_state(form: Any) -> bool:
        return form.engine != "vector" or form.machine.generation >= 4

    return engine_has_a_state


def _words_fill_the_state() -> Rule:
    """A lane's row has the words of its generators, no more and no fewer."""

    @rule(
        "the row of a lane is not 6 words for gpsimd, or 24 for vector",
        source=", tile size",
        broken_by={"W": 7},
    )
    def words_fill_the_state(form: Any) -> bool:
        return form.sizes["W*"] == STATE_WORDS[_state_engine(form)]

    return words_fill_the_state


class RandSetState(Instruction):
    """Load the state of the random generators of an engine: a row of words for each lane.

    GpSimdE has one generator of 6 words per lane, VectorE four. The words of a generator are taken as
    x, y, z, w, v and d of xorwow; their order on the hardware is not documented.
    """

    engines = ("gpsimd", "vector")
    registers = "random"
    state = Registers()
    src_seeds = In("P W*", ("sbuf",), ("uint32",))
    engine = Attr("gpsimd", ("unknown", "gpsimd", "vector"))
    smallest = {"W": WORDS}
    example = Example(
        {"src_seeds": [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]]},
        {},
        dtypes={"src_seeds": "uint32"},
        registers={"gpsimd": [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]]},
    )

    chip_has_it = common_rules.chip_has_it(3, "trn1 has no rand_set_state", source=", constraints")

    engine_has_a_state = _engine_has_a_state()

    words_fill_the_state = _words_fill_the_state()

    def compute(self, state: None, src_seeds: Any, registers: Any) -> None:
        start = self.src_seeds.start_partition
        lanes = registers[_state_engine(self)][start : start + len(src_seeds)]
        lanes[...] = src_seeds.reshape(lanes.shape)

    def cost(self) -> list[Step]:
        return _state_steps(self, "RAND_SET_STATE")


class RandGetState(Instruction):
    """Store the state of the random generators of an engine: a row of words for each lane.

    The words are those that rand_set_state takes.
    """

    engines = ("gpsimd", "vector")
    registers = "random"
    dst = Out("P W*", dtypes=("uint32",))
    engine = Attr("gpsimd", ("unknown", "gpsimd", "vector"))
    smallest = {"W": WORDS}
    # by hand: the finalizer of 1 + (k + 1) * 0x9e3779b9 for k from 0 to 5, the first made odd
    example = Example(
        {},
        {"dst": [[2527132011, 314344336, 2535364964, 2041432039, 1495043544, 3445983177]]},
        dtypes={"dst": "uint32"},
    )

    chip_has_it = common_rules.chip_has_it(3, "trn1 has no rand_get_state", source=", constraints")

    engine_has_a_state = _engine_has_a_state()

    words_fill_the_state = _words_fill_the_state()

    @rule(
        "engine is gpsimd, which cannot reach psum", source=", constraints", broken_by={"dst.memory": "psum"},
        key="err_unsupported_memory",
    )  # fmt: skip
    def gpsimd_stays_in_sbuf(self) -> bool:
        return _state_engine(self) != "gpsimd" or self.dst.memory != PSUM

    def compute(self, dst: Any, registers: Any) -> None:
        start = self.dst.start_partition
        dst[...] = registers[_state_engine(self)][start : start + len(dst)].reshape(dst.shape)

    def cost(self) -> list[Step]:
        return _state_steps(self, "RAND_GET_STATE")


class SetRngSeed(Instruction):
    """Start the random generators of VectorE from one 32-bit seed, read as bits.

    Equal seeds give equal numbers in rng, rand2 and dropout; they are not those of the hardware.
    """

    engines = ("vector",)
    registers = "random"
    state = Registers()
    src_seeds = In("1 1", dtypes=("float32", "int32", "uint32"))
    # by hand: the finalizer of 7 + (k + 1) * 0x9e3779b9 for k from 0 to 23, every sixth made odd
    example = Example(
        {"src_seeds": [[7]]},
        {},
        dtypes={"src_seeds": "uint32"},
        registers={
            "vector": [[
                588686121, 1937383562, 4286812467, 2372217166, 1915552099, 1162222791,
                2898530241, 1107288293, 1278588126, 1100944165, 57433132, 2726204051,
                3646417919, 3920473120, 2201769959, 3054002946, 583022390, 2468736017,
                3116258267, 1601486067, 1232465174, 1797746599, 830699205, 3962679694,
            ]]
        },
    )  # fmt: skip

    def compute(self, state: None, src_seeds: Any, registers: Any) -> None:
        seed = int(np.ascontiguousarray(src_seeds).view(np.uint32).reshape(-1)[0])
        lanes = registers["vector"]
        lanes[...] = seeded(seed, *lanes.shape)

    def cost(self) -> list[Step]:
        # assumed: one short instruction
        return [engine_step(self.machine, "vector", "SET_RNG_SEED", 1, widening=2)]


def _state_steps(form: Any, label: str) -> list[Step]:
    # assumed: a word a cycle; nothing is documented
    return [engine_step(form.machine, _state_engine(form), label, form.sizes["W*"], widening=4)]
