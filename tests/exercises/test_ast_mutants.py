"""Programs changed by machine: no false pass, no false name, no refusal."""

import ast_mutants
import pytest

#: So many were promised, and judged, in the slow run.
FULL = 2400


def assert_no_verdict_is_false(verdicts):
    assert not verdicts.false_passes, verdicts.false_passes[0]
    assert not verdicts.false_names, verdicts.false_names[0]
    assert not verdicts.refused, verdicts.refused[0]


def test_mutants_are_small_changes_of_right_programs():
    source = "def answer(x, y):\n    return x - y.T / 2"
    mutants = ast_mutants.mutants_of(source, ["x", "y"])
    body = {mutant.splitlines()[-1].strip() for mutant in mutants}
    assert {"return x + y.T / 2", "return y.T / 2 - x", "return x",
            "return x - y / 2", "return x - y.T / 3",
            "return x - x.T / 2"} <= body
    assert len(mutants) == len(set(mutants))


def test_150_mutants():
    verdicts = ast_mutants.judge(ast_mutants.draw(150, seed=1))
    assert_no_verdict_is_false(verdicts)
    assert verdicts.counts["wrong"] > 100
    assert verdicts.counts["right"] > 5


def test_a_false_verdict_would_be_seen(monkeypatch):
    mutants = [("softmax", "answer", "def answer(x):\n    return x")]
    real = ast_mutants.check("softmax", lambda x: x, seed=0)
    for verdict, names, kind in (
            ("passed", [], "false_passes"),
            ("named", [("softmax-over-queries",)], "false_names")):
        real.verdict, real.alternatives = verdict, names
        monkeypatch.setattr(ast_mutants, "check", lambda *a, **b: real)
        assert len(getattr(ast_mutants.judge(mutants), kind)) == 1
    right = [("score_of_pair", "answer",
              "def answer(q, k):\n    return q @ k")]
    real.verdict, real.alternatives = "facts", []
    assert len(ast_mutants.judge(right).refused) == 1


@pytest.mark.slow
def test_all_mutants():
    verdicts = ast_mutants.judge(ast_mutants.draw(FULL))
    assert_no_verdict_is_false(verdicts)
    assert verdicts.counts["wrong"] + verdicts.counts["right"] > 2000
