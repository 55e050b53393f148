"""The exercises themselves: complete, right, and told apart."""

import ast
import subprocess
import sys

import numpy as np
import pytest
import torch
from answers import canonical, load

from course.exercises import check, find, tasks
from course.exercises.compare import same
from course.exercises.hints import ladder
from course.exercises.notebook import slug
from course.exercises.predictions import Prediction
from course.exercises.registry import chapters
from course.exercises.sandbox import to_array
from course.exercises.stages import Case, Exercise
from self_attention import (
    numpy_decoding,
    numpy_reference,
    numpy_tiled,
    parallel,
)

EXERCISES = [task for task in tasks() if isinstance(task, Exercise)]
PREDICTIONS = [task for task in tasks() if isinstance(task, Prediction)]

#: Ids that the checker has had from the beginning; programs rely on them.
OLD_IDS = [
    "softmax", "attention_scores", "scaled_scores", "attention_weights",
    "attention", "causal_mask", "padding_mask", "masked_softmax",
    "masked_attention", "project_qkv", "split_heads", "merge_heads",
    "multi_head_attention", "layer_norm", "positional_encoding", "torch_mha"]

#: Mistakes that give the same numbers for every input: another mistake with
#: one meaning, or one function in two words.
TWINS = [
    {"k-uses-Wq", "q-with-q"}, {"v-uses-Wk", "uses-k-as-v"},
    {"mask-zero-score", "mask-tiny"}, {"mask-inverted", "mask-plus-inf"},
    {"q-with-q", "values-averaged"}, {"cross-key-value-swapped",
                                      "scores-with-v"},
]


def by_id(task):
    return task.id


def solution_of(exercise):
    """The right function of the exercise's arguments."""
    if exercise.adapt is not None:
        return exercise.adapt(exercise.solution)
    return exercise.solution


def solve(exercise, case):
    answer = solution_of(exercise)(*case.arguments.values())
    if exercise.many:
        return tuple(to_array(item, [])[0] for item in answer)
    return to_array(answer, [])[0]


def cases_of(exercise, *seeds):
    for seed in seeds:
        yield from exercise.cases(np.random.default_rng(seed))


def test_there_are_enough_over_all_chapters():
    assert len(EXERCISES) + len(PREDICTIONS) >= 30
    assert set(range(1, 10)) <= set(chapters())
    pairs = sum(len({m.identity for m in e.mistakes}) for e in EXERCISES)
    assert pairs >= 300
    assert sum(bool(e.planted) for e in EXERCISES) >= 5


@pytest.mark.parametrize("name", OLD_IDS)
def test_old_ids_are_known(name):
    assert find(name)


def test_names_and_ids_do_not_clash():
    names = [task.name for task in tasks()] + [slug(task) for task in tasks()]
    assert len(names) == len(set(names)) + sum(
        task.name == slug(task) for task in tasks())


@pytest.mark.parametrize("task", list(tasks()), ids=by_id)
def test_everything_is_said(task):
    assert task.difficulty in (1, 2, 3)
    assert 1 <= task.minutes <= 30
    assert len(task.task) > 40
    assert task.title
    assert task.prompt
    assert len(task.hints) == 3
    assert task.hints[0].endswith("?"), "the first hint is a question"
    assert all(hint.endswith((".", "?")) for hint in task.hints)
    assert ladder(task.id) == list(task.hints)


@pytest.mark.parametrize("exercise", EXERCISES, ids=by_id)
def test_pipeline_is_the_solution(exercise):
    for case in cases_of(exercise, *range(12)):
        assert same(solve(exercise, case), exercise.expected(case))


@pytest.mark.parametrize("exercise", EXERCISES, ids=by_id)
def test_stub_is_not_attempted_and_solution_passes(exercise):
    stub = load(exercise.stub(), exercise.name)
    assert check(exercise.id, stub).verdict == "not attempted"
    right = load(exercise.solution_cell(), exercise.name)
    for seed in range(3):
        result = check(exercise.id, right, seed=seed)
        assert result.passed, result


@pytest.mark.parametrize("exercise", EXERCISES, ids=by_id)
def test_stub_has_the_prompt_of_the_solution(exercise):
    stub = ast.parse(exercise.stub()).body[-1]
    assert ast.get_docstring(stub) == exercise.prompt
    right = ast.parse(exercise.solution_source()).body[0]
    assert stub.name == right.name == exercise.name
    if isinstance(stub, ast.FunctionDef):
        assert ast.dump(stub.args) == ast.dump(right.args)


@pytest.mark.parametrize(
    "exercise", [e for e in EXERCISES if e.starter], ids=by_id)
def test_given_program_is_what_it_is_said_to_be(exercise):
    changed = exercise.stub() + "    # changed\n"
    first = exercise.prompt.splitlines()[0]
    changed = changed.replace(first, first, 1)
    body = exercise.stub().replace('    """\n', '    """\n    _ = 0\n', 1)
    assert body != exercise.stub()
    for seed in range(3):
        result = check(exercise.id, load(body, exercise.name), seed=seed)
        if exercise.planted:
            assert result.name == exercise.planted, result
        else:
            assert result.passed, result


@pytest.mark.parametrize("exercise", EXERCISES, ids=by_id)
def test_every_mistake_is_wrong_and_explained(exercise):
    ids = [mistake.id for mistake in exercise.mistakes]
    assert len(ids) == len(set(ids))
    for mistake in exercise.mistakes:
        assert set(mistake.wrong) <= set(exercise.stages), mistake.id
        assert 1 <= mistake.explained <= 17, mistake.id
        assert mistake.question.endswith(("?", ".")), mistake.id
        wrong, numbers = False, False
        for case in cases_of(exercise, 0, 1, 2):
            outcome = exercise.outcome(case, mistake.wrong)
            right = exercise.expected(case)
            effect = mistake.effect_on(case)
            assert effect.endswith("."), mistake.id
            wrong |= not same(outcome.value, right)
            numbers |= outcome.kind == "value"
        assert wrong, mistake.id
        assert numbers, f"{mistake.id} never gives numbers"


@pytest.mark.parametrize("exercise", EXERCISES, ids=by_id)
def test_mistakes_are_told_apart(exercise):
    cases = list(cases_of(exercise, 1))
    outcomes = {m.id: [exercise.outcome(case, m.wrong) for case in cases]
                for m in exercise.mistakes}
    telling = {name for name, each in outcomes.items()
               if any(outcome.has_numbers for outcome in each)}
    for first, second in ((a, b) for a in telling for b in telling if a < b):
        if all(a.kind == b.kind and (a.kind == "raise"
                                     or same(a.value, b.value))
               for a, b in zip(outcomes[first], outcomes[second])):
            one, two = exercise.mistake(first), exercise.mistake(second)
            assert (one.identity == two.identity
                    or {one.identity, two.identity} in TWINS), (first, second)


def assert_every_mistake_is_named(exercise, seed):
    names = list(next(cases_of(exercise, 0)).arguments)
    for mistake in exercise.mistakes:
        def answer(*values, wrong=mistake.wrong):
            case = Case("", dict(zip(names, values)))
            return exercise.answer(exercise.evaluate(case, wrong))

        result = check(exercise.id, answer, seed=seed)
        found = canonical(exercise.id, result.name)
        if mistake.identity in found.split("|"):
            assert result.verdict in ("named", "either")
        else:  # the numbers are NaN throughout and tell nothing
            assert result.verdict == "facts", (mistake.id, result)
            assert "NaN" in result.text or "infinite" in result.text, (
                mistake.id, result)


@pytest.mark.parametrize("exercise", [e for e in EXERCISES if not e.adapt],
                         ids=by_id)
def test_every_mistake_is_named(exercise):
    assert_every_mistake_is_named(exercise, 3)


@pytest.mark.slow
@pytest.mark.parametrize("exercise", [e for e in EXERCISES if not e.adapt],
                         ids=by_id)
def test_every_mistake_is_named_on_20_seeds(exercise):
    for seed in range(20):
        assert_every_mistake_is_named(exercise, seed)


LIBRARY = {
    "softmax": lambda x: numpy_reference.softmax(x),
    "separate_heads": numpy_reference.separate_heads,
    "combine_heads": numpy_reference.combine_heads,
    "causal_mask": numpy_reference.causal_mask,
    "causal_mask_unequal": numpy_reference.causal_mask,
    "padding_mask": numpy_reference.padding_mask,
    "attention_weights": numpy_reference.attention_weights,
    "attention": numpy_reference.scaled_dot_product_attention,
    "batch_without_loops": numpy_reference.scaled_dot_product_attention,
    "attention_matrix": numpy_reference.scaled_dot_product_attention,
    "masked_attention": numpy_reference.scaled_dot_product_attention,
    "weights_with_heads": numpy_reference.attention_weights,
    "merge_partial_results": numpy_tiled.merge_attention,
    "attend_in_tiles": lambda query, key, value, block:
        numpy_tiled.scaled_dot_product_attention(
            query, key, value, block_size=block),
    "mask_of_positions": numpy_decoding.position_mask,
    "slot_mask": lambda start, new, capacity: numpy_decoding.position_mask(
        np.arange(start, start + new)[None],
        np.where(np.arange(capacity) < start + new, np.arange(capacity),
                 -1)[None])[0, 0],
    "repeat_key_heads": numpy_decoding.repeat_key_value_heads,
    "regroup_packed_rows": lambda packed, processes: parallel.regroup_rows(
        torch.from_numpy(packed), processes).numpy(),
    "weights_with_empty_rows": lambda scores, mask: numpy_reference.softmax(
        np.where(mask, scores, -np.inf)),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_solution_is_what_the_library_computes(name):
    exercise = find(name)
    for case in cases_of(exercise, *range(5)):
        wanted = LIBRARY[name](*case.arguments.values())
        found = solve(exercise, case)
        if not exercise.many:
            wanted, found = (wanted,), (found,)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_layer_is_what_the_library_computes():
    exercise = find("masked_multi_head_attention")
    for case in cases_of(exercise, 0, 1):
        x, W_q, W_k, W_v, W_o, num_heads, mask = case.arguments.values()
        layer = numpy_reference.MultiHeadSelfAttention(x.shape[-1], num_heads)
        layer.load_parameter_arrays(
            {"W_q": W_q, "W_k": W_k, "W_v": W_v, "W_o": W_o})
        np.testing.assert_allclose(layer(x, mask), solve(exercise, case),
                                   rtol=1e-10, atol=1e-12)


def test_shares_of_all_processes_sum_to_the_layer():
    share = find("partial_output").solution
    layer = find("multi_head_attention").solution
    for case in cases_of(find("partial_output"), 0, 1):
        *layer_inputs, num_heads, _, _ = case.arguments.values()
        whole = layer(*layer_inputs, num_heads)
        for processes in range(1, num_heads + 1):
            if num_heads % processes:
                continue
            parts = [share(*layer_inputs, num_heads, rank, processes)
                     for rank in range(processes)]
            np.testing.assert_allclose(sum(parts), whole, rtol=1e-10,
                                       atol=1e-12)


def test_steps_of_the_ring_are_causal_attention():
    step = find("ring_step").solution
    query, key, value = np.random.default_rng(0).normal(size=(3, 4, 5, 7))
    whole = numpy_reference.scaled_dot_product_attention(
        *(a.reshape(-1, 7) for a in (query, key, value)),
        numpy_reference.causal_mask(20)).reshape(query.shape)
    for rank in range(4):
        state = np.zeros((5, 7)), np.full(5, -np.inf)
        for turn in range(4):
            source = (rank - turn) % 4
            state = step(query[rank], key[source], value[source], *state,
                         rank, source)
        np.testing.assert_allclose(state[0], whole[rank], rtol=1e-10,
                                   atol=1e-12)


@pytest.mark.parametrize("prediction", PREDICTIONS, ids=by_id)
def test_prediction(prediction):
    right, wrong = prediction.outcomes()
    given = {}
    exec(prediction.stub(), given)
    assert prediction.judge(given[prediction.name]).verdict == "not attempted"
    exec(prediction.solution_cell(), given)
    assert prediction.judge(given[prediction.name]).passed
    assert prediction.judge(right).passed
    assert prediction.judge("what?").verdict == "facts"
    assert wrong, "at least one wrong answer has a name"
    for mistake, value in wrong:
        result = prediction.judge(value)
        if result.passed:  # a mistake too small to see in these digits
            assert prediction.form == "number"
            assert abs(value - right) < 10.0 ** -prediction.digits
            continue
        assert mistake.identity in {
            known.identity for known, _ in wrong
            if known.id in result.mistakes}


def test_numpy_exercises_never_import_torch():
    code = """
import sys
from course.exercises import check, hint, progress, quiz, tasks
for task in tasks():
    if not getattr(task, "torch", False):
        assert check(task.id, task.solution if hasattr(task, "stages")
                     else task.solution()).passed, task.id
    task.stub(), task.solution_source()
repr(progress()), repr(quiz(5))
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120,
                   env={"COURSE_PROGRESS": "off", "OMP_NUM_THREADS": "1",
                        "PATH": ""})
