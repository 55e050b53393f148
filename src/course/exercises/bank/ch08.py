"""Exercises of chapter 8: the layer."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy import ndarray

from course.exercises import modules, probes, solutions
from course.exercises.bank.ch02 import SOFTMAX
from course.exercises.bank.ch06 import lower_triangle
from course.exercises.bank.ch07 import head_stages
from course.exercises.bank.inputs import (
    Generator,
    as_tensors,
    layer_inputs,
    layer_inputs_with_mask,
)
from course.exercises.mistakes.common import hide, softmax, swap
from course.exercises.mistakes.heads import (
    merge_mistakes,
    through_heads_mistakes,
)
from course.exercises.mistakes.masking import (
    causal_use_mistakes,
    use_mistakes,
)
from course.exercises.mistakes.normalising import softmax_mistakes
from course.exercises.mistakes.projections import layer_projection_mistakes
from course.exercises.mistakes.scaling import (
    head_scale_mistakes,
    scale_mistakes,
)
from course.exercises.mistakes.scores import score_mistakes, value_mistakes
from course.exercises.predictions import Prediction
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import (
    MASK_STYLES,
    Case,
    Exercise,
    Mistake,
    Stages,
    State,
)

CHAPTER = 8


def layer_stages(stored: str = "in_out",
                 allowed: Callable[[State], ndarray] | None = None) -> Stages:
    """The pipeline of the whole layer.

    Args:
        stored: "in_out" for x @ W, "out_in" for x @ W.T as in nn.Linear.
        allowed: Gives the mask, if there is one.
    """
    def times(x: ndarray, W: ndarray) -> ndarray:
        return x @ (W if stored == "in_out" else W.T)

    stages: Stages = {"q": lambda s: times(s.x, s.W_q),
                      "k": lambda s: times(s.x, s.W_k),
                      "v": lambda s: times(s.x, s.W_v)}
    for name, stage in head_stages().items():
        if name == "weights" and allowed is not None:
            stages["masked"] = lambda s: hide(s.scaled, allowed(s), s.style)
            stage = lambda s: softmax(s.masked, s.style)  # noqa: E731
        stages[name] = stage
    return {**stages, "output": lambda s: times(s.merged, s.W_o)}


def layer_mistakes(stored: str = "in_out",
                   masked: str = "") -> list[Mistake]:
    """The catalogue for the whole layer.

    Args:
        stored: How the matrices are stored, as for ``layer_stages``.
        masked: "causal", "given" or "" for no mask.
    """
    source = "masked" if masked else "scaled"
    mistakes = [*layer_projection_mistakes(stored),
                *through_heads_mistakes(),
                *merge_mistakes("heads", shrinking=False),
                *score_mistakes(value="value"),
                *scale_mistakes(weights=None if masked else "weights"),
                *head_scale_mistakes("x"),
                *softmax_mistakes(source, axes=4, masked=bool(masked)),
                *value_mistakes(stage="heads", returns=False)]
    if masked == "causal":
        mistakes += causal_use_mistakes()
    elif masked:
        mistakes += use_mistakes()
    else:
        mistakes.append(_sequence_first())
    return [*mistakes, *_cut_first(stored)]


def _sequence_first() -> Mistake:
    def turned(x: ndarray) -> ndarray:
        return x.swapaxes(0, 1)

    stages = head_stages()
    return Mistake(
        "sequence-first", "attention across the batch instead of the "
        "sequence", "Batch and sequence changed places, so words of different "
        "sequences attend to each other.",
        {"query": lambda s: stages["query"](_with(s, q=turned(s.q))),
         "key": lambda s: stages["key"](_with(s, k=turned(s.k))),
         "value": lambda s: stages["value"](_with(s, v=turned(s.v))),
         "merged": lambda s: turned(stages["merged"](s))},
        why="Some functions want (seq_len, batch, features), as "
            "nn.MultiheadAttention does without batch_first=True. Any array "
            "with three axes fits.",
        question="Does the second sequence change what comes out for the "
                 "first?",
        fix="batch_first=True", in_pairs=False, explained=CHAPTER)


def _with(s: State, **changed: ndarray) -> State:
    return SimpleNamespace(**{**s.__dict__, **changed})


def _cut_first(stored: str) -> list[Mistake]:
    """Mistakes of those who separate the heads before they project."""
    def cut(shared: bool) -> Stages:
        def project(x: ndarray, W: ndarray, num_heads: int) -> ndarray:
            size = x.shape[-1] // num_heads
            parts = []
            for head in range(num_heads):
                own = slice(head * size, (head + 1) * size)
                block = slice(0, size) if shared else own
                part = W[block, block]
                parts.append(x[..., own] @ (
                    part if stored == "in_out" else part.T))
            return np.concatenate(parts, axis=-1)

        return {"q": lambda s: project(s.x, s.W_q, s.num_heads),
                "k": lambda s: project(s.x, s.W_k, s.num_heads),
                "v": lambda s: project(s.x, s.W_v, s.num_heads)}

    why = ("Each head reads all features of a word through its own columns "
           "of W. Cut after the product.")
    question = "Can a feature in the last columns of x reach head 0?"
    return [
        Mistake("cut-before-W", "x cut into heads before the product, with a "
                "block of W for each",
                "A head sees its own slice of the embedding alone.",
                cut(shared=False), why=why, question=question,
                fix="separate_heads(x @ W_q, num_heads)", in_pairs=False,
                explained=5),
        Mistake("cut-before-W-shared", "x cut into heads before the product, "
                "with one small W for all",
                "A head sees its own slice of the embedding alone, and all "
                "heads use the same numbers of W.",
                cut(shared=True), why=why, question=question,
                fix="separate_heads(x @ W_q, num_heads)", in_pairs=False,
                explained=5)]


def _causal(s: State) -> ndarray:
    return lower_triangle(s.x.shape[1])


def _packed(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, seq_len: int, num_heads: int,
             head_dim: int) -> Case:
        shape = (batch, seq_len, 3 * num_heads * head_dim)
        return Case(name, {"packed": rng.normal(size=shape),
                           "num_heads": num_heads},
                    {"batch": batch, "seq_len": seq_len,
                     "num_heads": num_heads, "head_dim": head_dim})

    return [case("2 heads", 2, 5, 2, 4), case("3 heads", 3, 3, 3, 3),
            case("4 heads", 1, 6, 4, 2)]


def _unpacked(axes: str) -> Callable[[State], Any]:
    """Read the packed axis in the given order and give three arrays."""
    def unpack(s: State) -> tuple[ndarray, ...]:
        batch, seq_len, width = s.packed.shape
        sizes = {"t": 3, "h": s.num_heads, "d": width // (3 * s.num_heads)}
        split = s.packed.reshape(batch, seq_len, *(sizes[a] for a in axes))
        return tuple(np.einsum(f"bs{axes}->tbhsd", split))
    return unpack


def _unpack_mistakes() -> list[Mistake]:
    right = _unpacked("thd")
    fix = "packed.reshape(batch, seq_len, 3, num_heads, head_dim)"
    why = "Queries of all heads first, then all keys, then all values."
    question = "Which columns hold the key of head 0?"

    def bare(s: State) -> tuple[ndarray, ...]:
        batch, seq_len = s.packed.shape[:2]
        return tuple(part.reshape(batch, s.num_heads, seq_len, -1)
                     for part in np.split(s.packed, 3, axis=-1))

    def unmoved(s: State) -> tuple[ndarray, ...]:
        return tuple(part.swapaxes(1, 2) for part in right(s))

    def order(*places: int) -> Callable[[State], Any]:
        return lambda s: tuple(right(s)[place] for place in places)

    return [
        Mistake("unpack-per-head", "query, key and value of head 0, then of "
                "head 1", "The columns were read head by head.",
                {"qkv": _unpacked("htd")},
                why="Some models pack that way; this one does not. Say which "
                    "layout you read.",
                question=question, fix=fix, explained=CHAPTER),
        Mistake("unpack-interleaved", "columns dealt out to query, key and "
                "value", "Every third column went to the query.",
                {"qkv": _unpacked("hdt")}, why=why, question=question,
                fix=fix, explained=CHAPTER),
        Mistake("unpack-features-dealt", "features dealt out to the heads",
                "Each head holds every num_heads-th feature.",
                {"qkv": _unpacked("tdh")}, why=why,
                question="Which columns hold the query of head 0?", fix=fix,
                explained=CHAPTER),
        Mistake("split-reshape", "a bare reshape, without a transpose",
                "A head holds a few tokens with all their features.",
                {"qkv": bare}, why="reshape never moves a number in memory.",
                question="Which tokens are in your head 0?", fix=fix,
                explained=5),
        Mistake("split-no-transpose", "heads that stand behind the positions",
                "The axes are (batch, seq_len, num_heads, head_dim).",
                {"qkv": unmoved}, why="`@` works on the last two axes.",
                question="Where must the head axis stand?", fix=fix,
                explained=5),
        Mistake("proj-order", "query and key in each other's place",
                "All three arrays are right, but not their order.",
                {"qkv": order(1, 0, 2)}, why=why,
                question="In which order are the three packed?", fix=fix,
                explained=CHAPTER),
        Mistake("proj-order-kv", "key and value in each other's place",
                "All three arrays are right, but not their order.",
                {"qkv": order(0, 2, 1)}, why=why,
                question="In which order are the three packed?", fix=fix,
                explained=CHAPTER),
    ]


def _kernels(rng: Generator) -> list[Case]:
    return [Case(name, {"kernel": rng.normal(size=sizes)},
                 dict(zip(("embed_dim", "num_heads", "head_dim"), sizes)))
            for name, sizes in (("all sizes different", (6, 2, 5)),
                                ("all sizes equal", (3, 3, 3)))]


def _kernel_mistakes() -> list[Mistake]:
    fix = "kernel.reshape(embed_dim, -1).T"

    def mistake(name: str, label: str, effect: str, why: str, question: str,
                change: Callable[[ndarray], ndarray]) -> Mistake:
        return Mistake(name, label, effect,
                       {"weight": lambda s: change(s.kernel)}, why=why,
                       question=question, fix=fix, explained=CHAPTER)

    return [
        mistake("kernel-reshape", "a bare reshape to the final shape",
                "The shape is right, and the numbers are mixed up.",
                "reshape keeps the order in memory, where the features of x "
                "come first. First reshape, then transpose.",
                "In which column must kernel[1, 0, 0] stand?",
                lambda k: k.reshape(-1, len(k))),
        mistake("kernel-not-transposed", "the matrix as x @ W uses it",
                "The result is (embed_dim, num_heads * head_dim).",
                "nn.Linear stores (out, in).",
                "Which shape has the weight of nn.Linear(3, 4)?",
                lambda k: k.reshape(len(k), -1)),
        mistake("kernel-heads-dealt", "features of the heads in turn",
                "Feature 0 of every head comes first, then feature 1.",
                "Rows h * head_dim to (h + 1) * head_dim - 1 belong to head "
                "h.", "Which head do rows 0 and 1 belong to?",
                lambda k: k.transpose(2, 1, 0).reshape(-1, len(k))),
        mistake("kernel-per-head", "a matrix for every head",
                "The head axis is still there.",
                "nn.Linear has one matrix for all heads.",
                "How many axes has the weight of nn.Linear?",
                lambda k: k.transpose(1, 2, 0)),
    ]


def _linear_inputs(rng: Generator) -> list[Case]:
    return [Case(name, {"x": rng.normal(size=(batch, in_dim)),
                        "weight": rng.normal(size=(out_dim, in_dim)),
                        "bias": rng.normal(size=out_dim)},
                 {"batch": batch, "in_dim": in_dim, "out_dim": out_dim})
            for name, batch, in_dim, out_dim in (
                ("all sizes different", 2, 5, 3),
                ("all sizes equal", 4, 4, 4))]


def _linear_mistakes() -> list[Mistake]:
    fix = "x @ weight.T + bias"
    return [
        Mistake("linear-not-transposed", "x @ weight without the transpose",
                "Column j of the weight was taken for row j.",
                {"output": lambda s: s.x @ s.weight + s.bias},
                why="nn.Linear stores (out, in). A square weight hides the "
                    "mistake: no shape complains.",
                question="Which axis of the weight meets the features of x?",
                fix=fix, explained=CHAPTER),
        Mistake("linear-no-bias", "the product without the bias",
                "bias plays no part.",
                {"output": lambda s: s.x @ s.weight.T},
                why="nn.Linear has a bias unless it is told otherwise.",
                question="Which argument plays no part?", fix=fix,
                explained=CHAPTER),
        Mistake("linear-weight-first", "weight @ xᵀ",
                "There is one column for each row of x.",
                {"output": lambda s: s.weight @ s.x.T
                 + s.bias[:, None]},
                why="Rows of the result belong to rows of x.",
                question="Is an output a row or a column?", fix=fix,
                explained=CHAPTER),
        Mistake("linear-bias-first", "the bias added to x, before the "
                "product", "The weight acted on the bias too.",
                {"output": lambda s: (s.x + s.bias) @ s.weight.T},
                why="The bias comes last.",
                question="In which order do weight and bias act?", fix=fix,
                explained=CHAPTER),
        Mistake("linear-bias-subtracted", "the bias subtracted",
                "Its sign is wrong.",
                {"output": lambda s: s.x @ s.weight.T - s.bias},
                why="The bias is added.", question="Plus or minus?", fix=fix,
                explained=CHAPTER),
    ]


CROSS: Stages = {
    "query": lambda s: s.x @ s.W_q,
    "key": lambda s: s.memory @ s.W_k,
    "value": lambda s: s.memory @ s.W_v,
    "scores": lambda s: s.query @ swap(s.key),
    "scaled": lambda s: s.scores / np.sqrt(s.key.shape[-1]),
    "weights": lambda s: softmax(s.scaled),
    "output": lambda s: s.weights @ s.value,
}


def _cross_inputs(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, query_len: int, key_len: int,
             embed_dim: int, head_dim: int) -> Case:
        matrices = {name_of_matrix: rng.normal(size=(embed_dim, head_dim))
                    / np.sqrt(embed_dim) * 1.5
                    for name_of_matrix in ("W_q", "W_k", "W_v")}
        return Case(name, {
            "x": rng.normal(size=(batch, query_len, embed_dim)),
            "memory": rng.normal(size=(batch, key_len, embed_dim)),
            **matrices},
            {"batch": batch, "query_len": query_len, "key_len": key_len,
             "embed_dim": embed_dim, "head_dim": head_dim})

    return [case("all sizes different", 2, 5, 7, 6, 3),
            case("as many queries as keys", 2, 4, 4, 5, 5),
            case("all sizes equal", 4, 4, 4, 4, 4)]


def _cross_mistakes() -> list[Mistake]:
    fix = "x @ W_q, memory @ W_k, memory @ W_v"
    why = ("Each token of the decoder asks; what it reads comes from the "
           "encoder.")
    question = "Who asks, and who answers?"
    return [
        Mistake("cross-swapped", "queries from the encoder, keys and values "
                "from the decoder", "There is one row for each token of the "
                "encoder.",
                {"query": lambda s: s.memory @ s.W_q,
                 "key": lambda s: s.x @ s.W_k,
                 "value": lambda s: s.x @ s.W_v},
                why=why, question=question, fix=fix, explained=6),
        Mistake("cross-self", "self-attention of the decoder",
                "The encoder's output plays no part.",
                {"key": lambda s: s.x @ s.W_k,
                 "value": lambda s: s.x @ s.W_v},
                why=why, question="Which argument plays no part?", fix=fix,
                explained=6),
        Mistake("cross-value-from-x", "values from the decoder",
                "The keys came from the encoder, the values did not.",
                {"value": lambda s: s.x @ s.W_v}, why=why, question=question,
                fix=fix, explained=6),
        Mistake("cross-key-value-swapped", "keys and values in each other's "
                "place", "The values were compared and the keys averaged.",
                {"key": lambda s: s.memory @ s.W_v,
                 "value": lambda s: s.memory @ s.W_k},
                why="Keys say where to look; values say what is read there. "
                    "(Keras asks for value before key.)",
                question="Which of the two is compared with the query?",
                fix=fix, explained=6),
        Mistake("cross-memory-self", "self-attention of the encoder",
                "The decoder's tokens play no part.",
                {"query": lambda s: s.memory @ s.W_q}, why=why,
                question="Which argument plays no part?", fix=fix,
                explained=6),
        Mistake("W-transposed", "x @ W.T for all three matrices",
                "The three were transposed before the product.",
                {"query": lambda s: s.x @ s.W_q.T,
                 "key": lambda s: s.memory @ s.W_k.T,
                 "value": lambda s: s.memory @ s.W_v.T},
                why="Square matrices hide this mistake: no shape complains.",
                question="Is W stored as (in, out) or as (out, in)?",
                fix=fix, explained=CHAPTER),
        *score_mistakes(value="value"), *scale_mistakes(weights="weights"),
        *softmax_mistakes(), *value_mistakes(),
    ]


def _tiny_cross() -> Case:
    return Case("two words, two words of memory", {
        "x": np.array([[[1.0, 0.0], [0.0, 2.0]]]),
        "memory": np.array([[[2.0, 1.0], [0.0, 1.0]]]),
        "W_q": np.array([[1.0, 1.0], [0.0, 1.0]]),
        "W_k": np.array([[1.0, 0.0], [2.0, 1.0]]),
        "W_v": np.array([[2.0, 0.0], [1.0, 1.0]])})


def _tiny_layer() -> Case:
    return Case("two words, two heads of width 1", {
        "x": np.array([[[1.0, 0.0], [1.0, 2.0]]]),
        "W_q": np.array([[1.0, 1.0], [0.0, 1.0]]),
        "W_k": np.array([[1.0, 0.0], [2.0, 1.0]]),
        "W_v": np.array([[2.0, 0.0], [1.0, 1.0]]),
        "W_o": np.array([[1.0, 3.0], [0.0, 1.0]]), "num_heads": 2},
        {"batch": 1, "num_heads": 2, "seq_len": 2, "head_dim": 1})


register(Exercise(
    id="multi_head_attention", title="The whole layer as a function",
    chapter=CHAPTER, difficulty=3, minutes=20,
    task="Everything so far in one function: project, separate, attend, "
         "combine, W_o.",
    solution=solutions.multi_head_attention, imports=(SOFTMAX,),
    stages=layer_stages(), cases=layer_inputs, mistakes=layer_mistakes(),
    axes=("batch", "seq_len", "embed_dim"), probe=probes.influence("x"),
    tiny=_tiny_layer,
    hints=("What shape has your array after each step?",
           "(batch, num_heads, seq_len, head_dim) from the separation to the "
           "combination; the scores are (batch, num_heads, seq_len, "
           "seq_len).",
           "merged @ W_o at the end; the scale is the root of the width of "
           "ONE head.")))

register(Exercise(
    id="masked_multi_head_attention", title="The whole layer with a mask",
    chapter=CHAPTER, difficulty=3, minutes=12,
    task="The same layer, told where it may look: each sequence comes with "
         "a mask of its own.",
    solution=solutions.masked_multi_head_attention, imports=(SOFTMAX,),
    stages=layer_stages(allowed=lambda s: s.attention_mask),
    cases=layer_inputs_with_mask, mistakes=layer_mistakes(masked="given"),
    axes=("batch", "seq_len", "embed_dim"), styles=MASK_STYLES,
    probe=probes.influence("x"),
    hints=("Which shape have the scores, and does the mask fit them?",
           "(batch, 1, seq_len, seq_len) broadcasts over the heads.",
           "np.where(attention_mask, scores, -np.inf), between scale and "
           "softmax.")))

register(Exercise(
    id="unpack_qkv", title="Unpack a packed projection", chapter=CHAPTER,
    difficulty=2, minutes=8,
    task="Libraries save time by one wide product for queries, keys and "
         "values. To compare with them you must know the layout.",
    solution=solutions.unpack_qkv, stages={"qkv": _unpacked("thd")},
    cases=_packed, mistakes=_unpack_mistakes(), many=3,
    names=("query", "key", "value"),
    axes=("batch", "num_heads", "seq_len", "head_dim"),
    source="https://github.com/tenstorrent/tt-metal/pull/41731",
    tiny=lambda: Case("one token, two heads of width 2", {
        "packed": np.arange(12.0).reshape(1, 1, 12), "num_heads": 2}),
    hints=("Which columns hold the key of head 0?",
           "The last axis is (3, num_heads, head_dim) in that order.",
           "Reshape to five axes; bring the axis of length 3 to the front "
           "and the heads before the positions.")))

register(Exercise(
    id="linear", title="What nn.Linear does", chapter=CHAPTER, difficulty=1,
    minutes=4,
    task="nn.Linear stores its weight the other way round. Copy what it "
         "computes, so that its weights can be loaded into the layer of this "
         "course.",
    solution=solutions.linear,
    stages={"output": lambda s: s.x @ s.weight.T + s.bias},
    cases=_linear_inputs, mistakes=_linear_mistakes(),
    axes=("batch", "out_dim"),
    source="https://github.com/AaltoML/SUQ/issues/2",
    tiny=lambda: Case("one row", {
        "x": np.array([[1.0, 2.0]]),
        "weight": np.array([[1.0, 2.0], [3.0, 4.0]]),
        "bias": np.array([10.0, 20.0])}),
    hints=("Which axis of (out_dim, in_dim) must meet the features of x?",
           "The last one, so the weight is transposed.",
           "x @ weight.T + bias.")))

register(Exercise(
    id="keras_kernel", title="Weights from Keras", chapter=CHAPTER,
    difficulty=2, minutes=6,
    task="keras.layers.MultiHeadAttention keeps a matrix for each head in "
         "one array with three axes. Turn it into the weight of nn.Linear.",
    solution=solutions.keras_kernel,
    stages={"weight": lambda s: s.kernel.reshape(len(s.kernel), -1).T},
    cases=_kernels, mistakes=_kernel_mistakes(),
    axes=("num_heads·head_dim", "embed_dim"),
    tiny=lambda: Case("width 3, two heads of 2", {
        "kernel": np.arange(12.0).reshape(3, 2, 2)}),
    hints=("Which axis of the kernel meets the features of x?",
           "As x @ W it would be the matrix of shape (embed_dim, num_heads * "
           "head_dim); nn.Linear stores the transpose.",
           "kernel.reshape(embed_dim, -1).T.")))

register(Exercise(
    id="cross_attention", title="Who asks whom?", chapter=CHAPTER,
    difficulty=2, minutes=10,
    task="In a decoder the queries come from one sequence and the keys and "
         "values from another.",
    solution=solutions.cross_attention, imports=(SOFTMAX,), stages=CROSS,
    cases=_cross_inputs, mistakes=_cross_mistakes(),
    axes=("batch", "query_len", "head_dim"),
    tiny=_tiny_cross,
    hints=("One row of the result belongs to a token of which sequence?",
           "The decoder asks (queries from x); the encoder answers (keys and "
           "values from memory).",
           "query = x @ W_q; key, value = memory @ W_k, memory @ W_v.")))

register(Exercise(
    id="torch_mha", title="The whole layer in PyTorch", chapter=CHAPTER,
    difficulty=3, minutes=15,
    task="The same layer in PyTorch, causal, with matrices stored as "
         "nn.Linear stores them.",
    solution=modules.deferred("torch_mha"), torch=True,
    imports=("import torch",),
    stages=layer_stages("out_in", _causal), cases=as_tensors(layer_inputs),
    mistakes=layer_mistakes("out_in", "causal"),
    axes=("batch", "seq_len", "embed_dim"), styles=MASK_STYLES,
    probe=probes.influence("x"),
    hints=("How is W used if it is stored as (out, in)?",
           "x @ W.T; view and transpose(1, 2) separate the heads.",
           "masked_fill fills where its mask is True, so give it ~allowed; "
           "call reshape, not view, after the last transpose.")))

register(Exercise(
    id="self_attention_module", title="The whole layer as a module",
    chapter=CHAPTER, difficulty=3, minutes=15,
    task="Write forward for a module whose four maps are there already. The "
         "check copies its own weights into them.",
    solution=modules.deferred("SelfAttention"), torch=True,
    imports=("import torch", "from torch import nn"),
    adapt=modules.as_function,
    stages=layer_stages("out_in", lambda s: s.attention_mask),
    cases=as_tensors(layer_inputs_with_mask),
    mistakes=layer_mistakes("out_in", "given"),
    axes=("batch", "seq_len", "embed_dim"), styles=MASK_STYLES,
    hints=("What shape has self.W_q(x), and where do the heads come in?",
           "view(batch, seq_len, num_heads, -1).transpose(1, 2) for each of "
           "the three.",
           "scores.masked_fill(~attention_mask, float(\"-inf\")) before the "
           "softmax; self.W_o at the end.")))


def _counts() -> tuple[Any, list[tuple[Mistake, Any]]]:
    one, heads = 512 * 512, 8
    def mistake(name: str, label: str, question: str) -> Mistake:
        return Mistake(name, label, "", {}, question=question,
                       explained=CHAPTER)
    return 4 * one, [
        (mistake("count-no-Wo", "three matrices, without W_o",
                 "Which matrix comes after the heads?"), 3 * one),
        (mistake("count-times-heads", "four wide matrices for every head",
                 "How wide is the matrix of ONE head?"), 4 * one * heads),
        (mistake("count-one-head", "the matrices of one head",
                 "How many heads are there?"), 4 * one // heads),
        (mistake("count-with-bias", "the same with biases",
                 "Does this layer have biases?"), 4 * (one + 512)),
        (mistake("count-one-matrix", "one matrix",
                 "How many matrices does the layer have?"), one)]


register(Prediction(
    id="predict_parameters", title="How many numbers?", chapter=CHAPTER,
    difficulty=1, minutes=3,
    task="A layer with embed_dim 512 and 8 heads of width 64, without "
         "biases: how many numbers does it learn?",
    form="number", placeholder="...  # a whole number", digits=0,
    solution=solutions.predict_parameters, outcomes=_counts,
    hints=("Which matrices does the layer have?",
           "W_q, W_k, W_v and W_o; eight heads of width 64 are 512 wide "
           "together.",
           "Four times 512 * 512.")))

register_quiz(CHAPTER, [
    Question(
        "`.view` after `transpose` raises an error in PyTorch. What to do?",
        [Option("Use reshape, or contiguous() first.", True,
                "The numbers are not in the order in memory that view "
                "needs; reshape copies them."),
         Option("Leave the transpose out.", False,
                "That silences the error and mixes positions of one head.",
                mistake="merge-reshape"),
         Option("Use .T instead.", False, "It reverses all axes.",
                mistake="T-reverses-all")]),
    Question(
        "nn.MultiheadAttention gets the mask of this course unchanged. What "
        "happens?",
        [Option("Every query sees exactly what it should not.", True,
                "There True means \"must not attend\".",
                mistake="mask-inverted"),
         Option("An error, for the mask is boolean.", False,
                "Booleans are accepted; only their meaning differs."),
         Option("Nothing, masks mean the same everywhere.", False,
                "Even within PyTorch there are both meanings.")]),
])
