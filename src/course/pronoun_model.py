"""A model small enough to be trained in the page, for the task of "it".

It has embeddings, one or more layers of attention with a residual, and a
read-out: no normalisation and no feed-forward network, so that attention is
all there is to learn with. The layer is that of ``self_attention``.

Needs PyTorch; nothing else in ``course`` imports it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course.pronoun import COLOURS, MAX_LEN, WORDS, Painted, Sentences, paint
from self_attention.torch_eager import (
    MultiHeadSelfAttention,
    combine_heads,
    softmax,
)

__all__ = ["LayerRun", "Probe", "PronounModel", "Run", "accuracy",
           "change_row", "evenly", "hide", "only", "probe", "swap",
           "switch_off", "together", "train"]

#: Takes the number of a layer, from 0, and its weights
#: ``(count, num_heads, 12, 12)``; gives the weights to use instead.
Edit = Callable[[int, Tensor], Tensor]
#: Takes one row of weights for each sentence, gives the rows to use instead.
Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LayerRun:
    """What one layer computed.

    Attributes:
        query, key, value: ``(count, num_heads, 12, head_dim)``.
        scores: ``(count, num_heads, 12, 12)``, scaled, not yet masked.
        weights: Of the same shape; as edited, if they were.
        heads: ``(count, num_heads, 12, head_dim)``, weights times values.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scores: Tensor
    weights: Tensor
    heads: Tensor


@dataclass(frozen=True)
class Run:
    """What a model computed on its way to an answer.

    Attributes:
        logits: ``(count, 6)``, one number for each colour.
        layers: What each layer computed, the first one first.
    """

    logits: Tensor
    layers: list[LayerRun]


@dataclass(frozen=True)
class Probe:
    """One row of a layer in each sentence, with its gradients.

    Attributes:
        loss: Mean loss of the sentences.
        scores, weights: ``(count, num_heads, 12)``, the row itself.
        grad_scores, grad_weights: Of the same shape, the gradients of each
            sentence's own loss.
    """

    loss: float
    scores: np.ndarray
    weights: np.ndarray
    grad_scores: np.ndarray
    grad_weights: np.ndarray


class PronounModel(nn.Module):
    """Embeddings, layers of attention with a residual, and a read-out."""

    def __init__(self, num_layers: int, num_heads: int, *,
                 embed_dim: int = 32, seed: int = 0) -> None:
        """Draw the weights.

        Args:
            num_layers: Layers of attention.
            num_heads: Heads of each layer.
            embed_dim: Width of an embedding.
            seed: The same seed gives the same weights in every version of
                PyTorch, because NumPy's ``RandomState`` draws them.
        """
        super().__init__()
        self.word = nn.Embedding(len(WORDS), embed_dim)
        self.position = nn.Embedding(MAX_LEN, embed_dim)
        self.colour = nn.Embedding(1 + len(COLOURS), embed_dim)
        self.layers = nn.ModuleList(
            MultiHeadSelfAttention(embed_dim, num_heads)
            for _ in range(num_layers))
        self.read_out = nn.Linear(embed_dim, len(COLOURS), bias=False)
        random = np.random.RandomState(seed)
        with torch.no_grad():
            for name, weight in self.named_parameters():
                is_matrix = name.startswith(("layers", "read_out"))
                size = 1 / math.sqrt(3 * embed_dim) if is_matrix else 0.5
                draw = size * random.standard_normal(tuple(weight.shape))
                weight.copy_(torch.from_numpy(draw))

    def forward(self, painted: Painted, at: str = "it",
                edit: Edit | None = None) -> Tensor:
        """Give one number for each colour, the largest for the best guess.

        Args:
            painted: Sentences with colours.
            at: Which word's row is read: "it", or "adjective".
            edit: Changes the weights of a layer, for experiments.
        """
        return self.run(painted, at, edit).logits

    def run(self, painted: Painted, at: str = "it",
            edit: Edit | None = None) -> Run:
        """Answer, and keep what was computed on the way.

        Args:
            painted: Sentences with colours.
            at: Which word's row is read: "it", or "adjective".
            edit: Changes the weights of a layer, for experiments.
        """
        words = torch.from_numpy(painted.sentences.words)
        mask = (words != 0)[:, None, None, :]
        x = (self.word(words) + self.position.weight
             + self.colour(torch.from_numpy(painted.colours)))
        layers = []
        for number, layer in enumerate(self.layers):
            query, key, value = layer.project(x)
            scores = query @ key.mT / math.sqrt(layer.head_dim)
            weights = softmax(scores.masked_fill(~mask, -torch.inf))
            if edit is not None:
                weights = edit(number, weights)
            heads = weights @ value
            x = x + layer.W_o(combine_heads(heads))
            layers.append(LayerRun(query, key, value, scores, weights, heads))
        logits = self.read_out(row(x, getattr(painted.sentences, at)))
        return Run(logits, layers)


def row(x: Tensor, position: np.ndarray) -> Tensor:
    """Take from each sentence the row at its own position.

    Args:
        x: ``(count, 12, ...)``.
        position: ``(count,)``.
    """
    return x[torch.arange(len(x)), torch.from_numpy(position)]


def train(model: PronounModel, sentences: Sentences, *, at: str = "it",
          steps: int = 400, seed: int = 0, batch: int = 256,
          rate: float = 5e-3) -> Iterator[tuple[int, float]]:
    """Train a model, one step at a time.

    Args:
        model: The model; its weights change.
        sentences: What batches are drawn from.
        at: Which word's row is read: "it", or "adjective".
        steps: Number of steps.
        seed: Draws the batches and their colours.
        batch: Sentences of one step.
        rate: Largest learning rate; it rises in 20 steps and then falls.

    Yields:
        The number of the step, from 0, and the loss of its batch, before the
        weights change.
    """
    random = np.random.RandomState(1000 + seed)
    optimiser = torch.optim.Adam(model.parameters())
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * _shape(step, steps)
        drawn = random.randint(0, len(sentences), batch)
        painted = paint(sentences.take(drawn), random)
        loss = F.cross_entropy(model(painted, at),
                               torch.from_numpy(painted.answer))
        optimiser.zero_grad()
        loss.backward()
        yield step, loss.item()
        optimiser.step()


def _shape(step: int, steps: int) -> float:
    """Rise from 0 to 1 in 20 steps, and fall to 0.05 along a cosine."""
    rise = min(1.0, (step + 1) / 20)
    return rise * (0.525 + 0.475 * math.cos(math.pi * step / steps))


def accuracy(model: PronounModel, sentences: Sentences, *, at: str = "it",
             edit: Edit | None = None, seed: int = 7) -> float:
    """Give the share of sentences that a model answers rightly.

    Args:
        model: The model.
        sentences: The sentences, each painted once at random.
        at: Which word's row is read.
        edit: Changes the weights of a layer.
        seed: Draws the colours.
    """
    painted = paint(sentences, np.random.RandomState(seed))
    with torch.no_grad():
        guess = model(painted, at, edit).argmax(dim=-1).numpy()
    return float((guess == painted.answer).mean())


def probe(model: PronounModel, painted: Painted, *, at: str = "it",
          layer: int = -1) -> Probe:
    """Look at the row of one word while the model answers.

    Args:
        model: The model; nothing in it changes.
        painted: Sentences with colours.
        at: Whose row, and which word's row is read: "it" or "adjective".
        layer: Number of the layer; the last one by default.
    """
    run = model.run(painted, at)
    seen = run.layers[layer]
    answer = torch.from_numpy(painted.answer)
    loss = F.cross_entropy(run.logits, answer, reduction="sum")
    gradients = torch.autograd.grad(loss, [seen.scores, seen.weights])
    position = getattr(painted.sentences, at)
    rows = [row(tensor.detach().transpose(1, 2), position).numpy()
            for tensor in (seen.scores, seen.weights, *gradients)]
    return Probe(loss.item() / len(position), *rows)


# Experiments: edits for ``PronounModel.run``, and changes of rows for them.

def switch_off(layer: int, head: int) -> Edit:
    """Let one head add nothing: all its weights are zero."""

    def edit(number: int, weights: Tensor) -> Tensor:
        if number != layer:
            return weights
        weights = weights.clone()
        weights[:, head] = 0
        return weights

    return edit


def change_row(layer: int, at: np.ndarray, change: Change) -> Edit:
    """Change one row of the weights, in every head.

    Args:
        layer: Number of the layer, from 0.
        at: ``(count,)``, which row of each sentence.
        change: Takes the rows ``(count, num_heads, 12)`` and gives new ones.
    """

    def edit(number: int, weights: Tensor) -> Tensor:
        if number != layer:
            return weights
        weights = weights.clone()
        rows, position = torch.arange(len(at)), torch.from_numpy(at)
        weights[rows, :, position] = change(weights[rows, :, position])
        return weights

    return edit


def together(*edits: Edit) -> Edit:
    """Make several edits, one after the other."""

    def edit(number: int, weights: Tensor) -> Tensor:
        for one in edits:
            weights = one(number, weights)
        return weights

    return edit


def swap(first: np.ndarray, second: np.ndarray) -> Change:
    """Exchange the weights of two words; each is given by its positions."""

    def change(rows: Tensor) -> Tensor:
        new, count = rows.clone(), np.arange(len(first))
        new[count, :, first] = rows[count, :, second]
        new[count, :, second] = rows[count, :, first]
        return new

    return change


def hide(word: np.ndarray) -> Change:
    """Take its weight from a word and share it among the others."""

    def change(rows: Tensor) -> Tensor:
        new = rows.clone()
        new[np.arange(len(word)), :, word] = 0
        return new / new.sum(dim=-1, keepdim=True)

    return change


def only(word: np.ndarray) -> Change:
    """Give all the weight to one word."""

    def change(rows: Tensor) -> Tensor:
        new = torch.zeros_like(rows)
        new[np.arange(len(word)), :, word] = 1
        return new

    return change


def evenly(words: np.ndarray) -> Change:
    """Give each word the same weight, and padding none.

    Args:
        words: ``(count, 12)``, numbers of words, 0 for padding.
    """
    real = torch.from_numpy(words != 0)[:, None]
    return lambda rows: (real / real.sum(dim=-1, keepdim=True)).to(
        rows.dtype).expand(rows.shape)
