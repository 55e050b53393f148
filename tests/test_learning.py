"""The task of "it", the model that learns it, and what is said of both."""

import importlib.util
import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from course import pronoun
from course.figures import learning
from course.pronoun import paint, paint_alike, split, write
from course.pronoun_model import (
    PronounModel,
    accuracy,
    change_row,
    evenly,
    hide,
    only,
    probe,
    swap,
    switch_off,
    together,
    train,
)
from self_attention import numpy_reference
from tolerances import assert_close, assert_same

ROOT = Path(__file__).resolve().parents[1]
SEEN, HELD_OUT = split()


def some(sentences, count=24, seed=0):
    """A few sentences of every template, painted."""
    random = np.random.RandomState(seed)
    return paint(sentences.take(random.permutation(len(sentences))[:count]),
                 random)


def on(rows, position):
    return rows[np.arange(len(rows)), :, position]


@pytest.fixture
def painted():
    return some(HELD_OUT)


# The sentences.

def test_sentences_say_what_they_are():
    sentences = pronoun.all_sentences()
    assert len(sentences) == 4 * 10 * 10 * 16
    for number in range(0, len(sentences), 37):
        text = sentences.text(number)
        assert text[sentences.it[number]] == "it"
        assert text.count("it") == 1
        assert text[sentences.animal[number]] in pronoun.ANIMALS
        assert text[sentences.place[number]] in pronoun.PLACES
        of_animal = (text[sentences.adjective[number]]
                     in pronoun.ANIMAL_ADJECTIVES)
        assert of_animal == sentences.about_animal[number]
        noun = text[sentences.referent[number]]
        assert (noun in pronoun.ANIMALS) == of_animal
        assert {sentences.referent[number], sentences.other[number]} == {
            sentences.animal[number], sentences.place[number]}


def test_all_sentences_differ_and_no_word_is_two():
    assert len(np.unique(pronoun.all_sentences().words, axis=0)) == 6_400
    assert len(set(pronoun.WORDS)) == len(pronoun.WORDS)


def test_longest_sentence_fits_exactly():
    lengths = (pronoun.all_sentences().words != 0).sum(axis=1)
    assert sorted(set(lengths)) == [11, pronoun.MAX_LEN]


def test_held_out_pairs_never_stand_in_a_training_sentence():
    # Stronger than "are never referent and adjective": the two words never
    # meet at all, since an adjective of animals always speaks of the animal.
    texts = [set(SEEN.text(number)) for number in range(len(SEEN))]
    for pair in pronoun.unseen_pairs():
        assert not any(text.issuperset(pair) for text in texts)


def test_split_loses_nothing_and_repeats_nothing():
    assert (len(SEEN), len(HELD_OUT)) == (4_760, 1_640)
    both = np.concatenate([SEEN.words, HELD_OUT.words])
    assert len(np.unique(both, axis=0)) == 6_400


def test_held_out_sentences_are_those_of_the_unseen_pairs():
    unseen = pronoun.unseen_pairs()
    assert len(unseen) == 41
    assert {("animal", "tired"), ("street", "wide")} <= unseen
    for number in range(len(HELD_OUT)):
        text = HELD_OUT.text(number)
        assert (text[HELD_OUT.referent[number]],
                text[HELD_OUT.adjective[number]]) in unseen


def test_every_word_is_learned_in_other_company():
    words = pronoun.word_ids(pronoun.WORDS[1:])
    assert np.isin(words, SEEN.words).all()
    referents = SEEN.words[np.arange(len(SEEN)), SEEN.referent]
    for noun in pronoun.word_ids(pronoun.ANIMALS + pronoun.PLACES):
        assert (referents == noun).any()


@pytest.mark.parametrize("sentences", [SEEN, HELD_OUT], ids=["seen", "held"])
def test_no_habit_pays(sentences):
    about = sentences.about_animal
    for took in (sentences.animal < sentences.place,
                 np.full(len(about), True),
                 abs(sentences.animal - sentences.it)
                 < abs(sentences.place - sentences.it)):
        assert abs((took == about).mean() - 0.5) < 0.02


def test_paint_is_balanced_and_never_the_same_twice():
    random = np.random.RandomState(0)
    painted = paint(pronoun.all_sentences(), random)
    assert (painted.answer != painted.decoy).all()
    counts = np.bincount(painted.answer, minlength=6)
    assert (abs(counts / 6_400 - 1 / 6) < 0.02).all()
    rows, s = np.arange(6_400), painted.sentences
    assert_same(painted.colours[rows, s.referent], painted.answer + 1)
    assert_same(painted.colours[rows, s.other], painted.decoy + 1)
    assert ((painted.colours != 0).sum(axis=1) == 2).all()


def test_paint_alike_paints_by_kind():
    twins = write([(2, "cow", "lake", "weak"), (3, "cow", "lake", "deep")])
    painted = paint_alike(twins, animal="white", place="black")
    assert [pronoun.COLOURS[n] for n in painted.answer] == ["white", "black"]
    assert [pronoun.COLOURS[n] for n in painted.decoy] == ["black", "white"]


def test_no_sentence_is_fine():
    assert write([]).words.shape == (0, 12)


def test_data_needs_no_torch():
    code = "import sys, course.pronoun; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# The model.

def test_steps_give_what_the_layers_give(painted):
    model = PronounModel(2, 2, seed=3)
    ids = torch.from_numpy(painted.sentences.words)
    x = (model.word(ids) + model.position.weight
         + model.colour(torch.from_numpy(painted.colours)))
    for layer in model.layers:
        x = x + layer(x, (ids != 0)[:, None, None, :])
    rows = torch.arange(len(ids))
    expected = model.read_out(x[rows, painted.sentences.it])
    torch.testing.assert_close(model(painted), expected)


def test_padding_has_no_part(painted):
    model = PronounModel(2, 2)
    expected = model(painted)
    with torch.no_grad():
        model.word.weight[0] += 100
    torch.testing.assert_close(model(painted), expected, rtol=0, atol=0)
    assert (painted.sentences.words == 0).any()


def test_seed_alone_draws_the_weights():
    for draw in range(2):
        torch.manual_seed(draw)
        model = PronounModel(2, 2, seed=5)
        if draw == 0:
            first = {k: v.clone() for k, v in model.state_dict().items()}
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, first[name], rtol=0, atol=0)
    assert not torch.equal(PronounModel(2, 2, seed=6).word.weight,
                           first["word.weight"])


@pytest.mark.parametrize(("layers", "at"), [(1, "adjective"), (1, "it"),
                                            (2, "it")])
def test_pull_is_weight_times_distance_from_the_average(layers, at, painted):
    model = PronounModel(layers, 2, seed=1).double()
    p = probe(model, painted, at=at)
    average = (p.weights * p.grad_weights).sum(-1, keepdims=True)
    assert np.abs(p.grad_scores).max() > 1e-6
    assert_close(p.weights * (p.grad_weights - average), p.grad_scores)
    assert_close(p.grad_scores.sum(-1), np.zeros(p.grad_scores.shape[:2]))


def test_numpy_carries_the_same_gradient_back(painted):
    model = PronounModel(2, 2, seed=1).double()
    run = model.run(painted)
    loss = F.cross_entropy(run.logits, torch.from_numpy(painted.answer))
    mask = (painted.sentences.words != 0)[:, None, None, :]
    for layer in run.layers:
        tensors = [layer.query, layer.key, layer.value, layer.heads]
        *expected, grad_heads = torch.autograd.grad(loss, tensors,
                                                    retain_graph=True)
        arrays = [tensor.detach().numpy() for tensor in tensors[:3]]
        got = numpy_reference.scaled_dot_product_attention_backward(
            *arrays, grad_heads.numpy(), mask)
        for gradient, wanted in zip(got, expected):
            assert_close(gradient, wanted.numpy())


def twins():
    """Sentences that differ in the adjective alone, of animals and places."""
    frames = list(product(range(4), ("animal", "fox"), ("street", "lake"),
                          range(8)))
    return [paint_alike(write([(t, a, p, adjectives[i])
                               for t, a, p, i in frames]), "red", "blue")
            for adjectives in (pronoun.ANIMAL_ADJECTIVES,
                               pronoun.PLACE_ADJECTIVES)]


def ratios(model):
    for painted in twins():
        weights = probe(model, painted).weights
        s = painted.sentences
        yield np.log(on(weights, s.animal)) - np.log(on(weights, s.place))


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_one_layer_cannot_choose_by_the_adjective(heads, seed):
    tired, wide = ratios(PronounModel(1, heads, seed=seed).double())
    assert_close(tired, wide)


def test_two_layers_can():
    tired, wide = ratios(PronounModel(2, 2).double())
    assert np.abs(tired - wide).max() > 1e-3


# Training.

def test_training_is_the_same_every_time():
    losses = [[loss for _, loss in train(PronounModel(1, 1), SEEN, steps=5,
                                         batch=16)] for _ in range(2)]
    assert losses[0] == losses[1]
    assert abs(losses[0][0] - np.log(6)) < 0.5


def test_watching_changes_nothing(painted):
    watched, alone = PronounModel(2, 2), PronounModel(2, 2)
    for _ in train(watched, SEEN, steps=3, batch=16):
        probe(watched, painted)
        accuracy(watched, HELD_OUT.take(np.arange(5)))
    for _ in train(alone, SEEN, steps=3, batch=16):
        pass
    torch.testing.assert_close(watched.word.weight, alone.word.weight,
                               rtol=0, atol=0)


def test_few_steps_teach_the_adjective_to_look():
    model = PronounModel(1, 1)
    for _ in train(model, SEEN, at="adjective", steps=80):
        pass
    assert accuracy(model, HELD_OUT, at="adjective") > 0.9
    rows = probe(model, some(HELD_OUT, 200), at="adjective").weights
    s = some(HELD_OUT, 200).sentences
    assert on(rows, s.referent).mean() > 0.6 > 0.3 > on(rows, s.other).mean()


# Experiments.

@pytest.fixture
def weights(painted):
    with torch.no_grad():
        return PronounModel(2, 2).run(painted).layers[0].weights


def test_edits_touch_their_own_layer_and_row_alone(weights, painted):
    s, before = painted.sentences, weights.clone()
    new = change_row(1, s.it, only(s.animal))
    torch.testing.assert_close(new(0, weights), before, rtol=0, atol=0)
    changed = new(1, weights)
    torch.testing.assert_close(weights, before, rtol=0, atol=0)
    rows = np.arange(len(s))
    differs = (changed != before).any(dim=-1).any(dim=1).numpy()
    assert differs[rows, s.it].all()
    assert differs.sum() == len(s)


def test_switching_off_is_one_head_less(weights):
    off = switch_off(0, 1)
    assert not off(0, weights)[:, 1].any()
    torch.testing.assert_close(off(0, weights)[:, 0], weights[:, 0])
    torch.testing.assert_close(off(1, weights), weights)


def test_changes_do_what_they_say(weights, painted):
    s = painted.sentences
    rows = on(weights.numpy(), s.it)
    row = torch.from_numpy(rows)
    twice = swap(s.animal, s.place)(swap(s.animal, s.place)(row))
    assert_same(twice.numpy(), rows)
    assert_same(on(swap(s.animal, s.place)(row).numpy(), s.animal),
                on(rows, s.place))
    hidden = hide(s.adjective)(row).numpy()
    assert not on(hidden, s.adjective).any()
    assert_close(hidden.sum(-1), np.ones(hidden.shape[:2]), "float32")
    even = evenly(s.words)(row).numpy()
    assert_close(even.sum(-1), np.ones(even.shape[:2]), "float32")
    assert not even[np.broadcast_to((s.words == 0)[:, None], even.shape)].any()
    assert (on(only(s.place)(row).numpy(), s.place) == 1).all()


def test_edits_come_one_after_the_other(weights, painted):
    s = painted.sentences
    edit = together(change_row(0, s.it, only(s.animal)),
                    change_row(0, s.it, swap(s.animal, s.place)))
    assert (on(on(edit(0, weights).numpy(), s.it)[:, :1], s.place) == 1).all()


# What was recorded.

@pytest.fixture(scope="module")
def record():
    return json.loads((ROOT / "chapters" / "data"
                       / "learning_record.json").read_text("utf8"))


def test_record_says_where_it_comes_from(record):
    assert {"python", "numpy", "torch"} <= set(record["versions"])
    assert record["threads"] == 1
    assert record["sentences"] == {"seen": len(SEEN),
                                   "held out": len(HELD_OUT)}


def test_recorded_models_learn_or_are_stuck(record):
    for model in record["models"]:
        shares = model["held out"]
        assert len(shares) == model["seeds"] == len(model["seen"])
        learned = sum(share >= 0.99 for share in shares)
        kind = model["layers"], model["heads"], model["read at"]
        if kind in {(1, 1, "adjective"), (2, 2, "it")}:
            assert len(shares) == 20
            assert learned >= 19
        elif model["layers"] == 1:
            assert max(shares) < 0.6


@pytest.mark.slow
def test_twenty_seeds_learn_again(record):
    place = importlib.util.spec_from_file_location(
        "learning", ROOT / "tools" / "learning.py")
    tool = importlib.util.module_from_spec(place)
    place.loader.exec_module(tool)
    recorded = record["models"][-1]
    shares = [accuracy(tool.trained(2, 2, "it", recorded["steps"], seed),
                       HELD_OUT) for seed in range(recorded["seeds"])]
    assert sum(share >= 0.99 for share in shares) >= 19
    np.testing.assert_allclose(shares, recorded["held out"], atol=0.005)


# The figures.

@pytest.fixture
def _closed():
    yield
    plt.close("all")


@pytest.mark.usefixtures("_closed")
def test_figures_draw_what_they_are_given():
    panel = learning.LinePanel("before", ["a", "b"], 1, [[0.5, 0.5]],
                               {0: "red"})
    fig = learning.word_lines([panel])
    assert isinstance(fig, Figure)
    assert "a (red)" in {text.get_text() for text in fig.axes[0].texts}
    table = np.eye(2, 3)
    fig = learning.score_tables([("x", table), ("y", -table)], ["p", "q"],
                                ["r", "s", "t"], table > 0, split=(1, 1))
    np.testing.assert_array_equal(fig.axes[1].images[0].get_array(), -table)
    fig = learning.learning_lines([0, 1], [("loss", {"it": [2.0, 1.0]})])
    assert fig.axes[0].lines[0].get_ydata()[0] == 2
    for fig in (learning.accuracy_bars({"all": 0.25}, chances={"1/2": 0.5}),
                learning.seed_strips({"all": [0.25]}, chances={"1/2": 0.5})):
        fig.canvas.draw()
