"""Answers as learners write them: right, wrong, and of every bad kind."""

import threading
import time

import numpy as np
import pytest
from answers import canonical, load
from bad_answers import BAD
from right_answers import RIGHT
from wrong_answers import WRONG

from course.exercises import check, find


def named(entry):
    return entry[0]


def test_there_are_enough_right_answers():
    assert len(RIGHT) >= 60


@pytest.mark.parametrize("number", range(len(RIGHT)))
def test_right_answer_passes(number):
    exercise, source = RIGHT[number]
    answer = load(source)
    for _ in range(6):  # fresh inputs each time
        result = check(exercise, answer)
        assert result.passed, result


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(RIGHT)))
def test_right_answer_passes_on_100_seeds(number):
    exercise, source = RIGHT[number]
    answer = load(source)
    for seed in range(100):
        result = check(exercise, answer, seed=seed)
        assert result.passed, result


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_answer_is_named(number):
    exercise, wanted, source = WRONG[number]
    answer = load(source)
    for seed in range(3):
        result = check(exercise, answer, seed=seed)
        assert not result.passed
        assert canonical(exercise, result.name) == canonical(
            exercise, wanted), result
        assert result.text.startswith("✗ ")
        assert result.html.startswith("<div")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_answer_is_named_on_20_seeds(number):
    exercise, wanted, source = WRONG[number]
    answer = load(source)
    for seed in range(20):
        result = check(exercise, answer, seed=seed)
        assert canonical(exercise, result.name) == canonical(
            exercise, wanted), result


@pytest.mark.parametrize("number", range(len(BAD)))
def test_checker_survives(number):
    exercise, wanted, source = BAD[number]
    result = check(exercise, load(source), seed=1, time_limit=0.4)
    assert result.name == wanted, result
    assert result.text
    assert result.html


def test_time_limit_outside_of_the_main_thread():
    answer = load("""
def answer(x):
    while True:
        try:
            x = x + 0
        except:
            pass
""")
    results = []
    thread = threading.Thread(target=lambda: results.append(
        check("softmax", answer, time_limit=0.3)))
    started = time.perf_counter()
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert results[0].verdict == "timed out"
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("main", [True, False])
def test_an_import_is_not_cut_off(main, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    name = f"slow_module_{main}".lower()
    (tmp_path / f"{name}.py").write_text(
        "import time\nfor _ in range(60):\n    time.sleep(0.01)\nhalf = 0.5\n")
    answer = load(f"""
def answer(query, key):
    from {name} import half
    return query @ key.swapaxes(-2, -1) / key.shape[-1] ** half
""")
    results = []

    def run():
        results.append(check("scaled_scores", answer, time_limit=0.3))

    if main:
        run()
    else:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(20)
    assert results[0].passed, results[0]


def test_unwritten_memory_cannot_be_right():
    answer = load("""
def answer(seq_len, width):
    a = np.arange(seq_len)[:, None]
    a = a / 10000 ** (np.arange(0, width, 2) / width)
    codes = np.empty((seq_len, width))
    codes[:, 1::2] = np.cos(a)
    return codes
""")
    for _ in range(30):
        assert not check("positional_encoding", answer).passed


def test_a_check_is_quick():
    answers = [(exercise, load(source)) for exercise, _, source in WRONG]
    for exercise, answer in answers[:-1:8]:
        check(exercise, answer)  # imports and caches
    times = []
    for exercise, answer in answers:
        # Of the processor, not of the clock: other programs do not count.
        started = time.process_time()
        check(exercise, answer, seed=1)
        times.append(time.process_time() - started)
    assert np.percentile(times, 95) < 0.1
    assert max(times) < 0.3, WRONG[int(np.argmax(times))]


def test_same_seed_gives_the_same_words():
    exercise, _, source = WRONG[10]
    answer = load(source)
    first = check(exercise, answer, seed=5)
    second = check(exercise, answer, seed=5)
    assert first.text == second.text
    assert first.html == second.html
    assert check(exercise, answer).seed != check(exercise, answer).seed
    assert "seed=5" in first.text


def test_half_precision_is_accepted_with_a_note():
    answer = load("""
def answer(query, key):
    s = query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-1])
    return s.astype(np.float16)
""")
    result = check("scaled_scores", answer, seed=0)
    assert result.passed
    assert any("float16" in note for note in result.notes)


def test_two_mistakes_and_the_first_wrong_stage():
    answer = load("""
def answer(query, key, value):
    scores = query @ key.swapaxes(1, 2)
    scaled = scores / key.shape[-1]
    e = np.exp(scaled)
    weights = e / e.sum(1, keepdims=True)
    return weights @ value
""")
    result = check("attention", answer, seed=0)
    assert result.verdict == "named"
    assert set(result.mistakes) == {"scale-by-d", "softmax-over-queries"}
    assert result.first_wrong == "scaled"
    assert "line 3" in result.text


def test_three_mistakes_are_followed_line_by_line():
    answer = load("""
def answer(query, key, value):
    scores = query @ key.swapaxes(1, 2)
    scaled = scores / key.shape[-1]
    e = np.exp(scaled)
    weights = e / e.sum(1, keepdims=True)
    return weights @ key
""")
    result = check("attention", answer, seed=0)
    assert result.verdict == "facts"
    assert result.traced == ("scale-by-d", "softmax-over-queries",
                             "uses-k-as-v")


def test_an_unused_argument_is_told():
    answer = load("""
def answer(query, key, value):
    return np.tanh(query @ query.swapaxes(1, 2)) @ value[:, :query.shape[1]]
""")
    result = check("attention", answer, seed=0)
    assert result.verdict == "facts"
    assert "`key`" in result.text


def test_a_constant_factor_is_told():
    answer = load("""
def answer(query, key):
    return 3 * query @ key.swapaxes(1, 2)
""")
    assert "3 times the right one" in check("attention_scores", answer).text


def test_the_right_value_in_the_middle_is_told():
    answer = load("""
def answer(query, key):
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-1])
    return np.sort(scores, axis=-1)
""")
    result = check("scaled_scores", answer, seed=0)
    assert "occurs in your run" in result.text


def test_none_on_some_inputs_is_not_called_random():
    result = check("ring_step", load("""
def answer(query, key, value, output, log_sum, rank, source):
    return (output, log_sum) if source <= rank else None
"""), seed=0)
    assert "None on the input “a later slice”" in result.text
    assert "random" not in result.text


def test_swapped_parts_of_a_tuple_are_told():
    result = check("rows_of_program", load("""
def answer(program_id, block, length):
    rows = program_id * block + np.arange(block)
    return rows < length, rows
"""), seed=0)
    assert "where `rows` must stand is `real`" in result.text
    assert "where `real` must stand is `rows`" in result.text


def test_numbers_that_agree_by_chance_are_not_called_swapped():
    costs = """
def answer(n, width, heads, itemsize):
    return {}, 2 * heads * n * itemsize
"""
    result = check("attention_costs", load(costs.format(
        "4 * n * n * width, width * n * n * itemsize")), seed=0)
    assert "must stand is" not in result.text
    result = check("attention_costs", load(costs.format(
        "heads * n * n * itemsize, 4 * n * n * width")), seed=0)
    assert "where `stored` must stand is `operations`" in result.text


def test_a_mask_of_numbers_to_add_is_told():
    right = """
def answer(start, new, capacity):
    seen = np.arange(capacity) <= start + np.arange(new)[:, None]
    return np.where(seen, 0.0, -np.inf)
"""
    result = check("slot_mask", load(right), seed=0)
    assert "booleans are asked for" in result.text
    assert "Its pattern is right." in result.text
    assert "opposite" not in result.text
    wrong = check("slot_mask", load(right.replace("<=", ">")), seed=0)
    assert "pattern is right" not in wrong.text


def test_whole_numbers_are_no_fault_where_they_are_asked_for():
    result = check("all_reduce_bytes", load("""
def answer(seq_len, embed_dim, itemsize, processes):
    return seq_len * embed_dim * itemsize * processes
"""), seed=0)
    assert not result.passed
    assert "fractions" not in result.text
    cut_off = check("scaled_scores", load("""
def answer(query, key):
    return (query @ key.swapaxes(1, 2)).astype(int)
"""), seed=0)
    assert "fractions are cut off" in cut_off.text


def test_scores_of_all_keys_are_remarked_on():
    whole = check("attend_in_tiles", load("""
def answer(query, key, value, block):
    scores = query @ key.T / np.sqrt(key.shape[1])
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers @ value / powers.sum(1, keepdims=True)
"""), seed=0)
    assert whole.passed
    assert any("Line 2 holds the scores of all keys, (4, 7)" in note
               for note in whole.notes)
    tiled = check("attend_in_tiles", find("attend_in_tiles").solution, seed=0)
    assert tiled.passed
    assert not tiled.notes


@pytest.mark.parametrize(("exercise", "given", "unit"), [
    ("predict_cache_bytes", 131_072, "bytes"),
    ("predict_cache_bytes", 131, "kB (1,000 bytes)"),
    ("predict_stored_scores", 537, "MB (10⁶ bytes)"),
    ("predict_all_reduce", 117, "MB (10⁶ bytes)"),
    ("predict_all_reduce", 114_688, "KiB")])
def test_the_right_amount_in_another_unit_is_told(exercise, given, unit):
    result = check(exercise, given)
    assert not result.passed
    assert f"is the answer in {unit}; asked for" in result.text


def test_a_misspelt_name_is_guessed():
    with pytest.raises(LookupError, match="Is 'scores_of_key_tile' meant"):
        check("scores_of_key_tiles", 1)


def test_a_long_error_shows_that_it_was_cut():
    result = check("softmax", load(f"""
def answer(x):
    raise ValueError("{'very ' * 60}long")
"""), seed=0)
    assert "…" in result.title
    assert len(result.title) < 220


def test_a_word_where_a_number_is_asked_for():
    result = check("cache_bytes", load("def answer(*sizes):\n"
                                       "    return 'many'"), seed=0)
    assert "A number is asked for." in result.text
