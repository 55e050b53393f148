"""A small task about "it": which of two things does the word stand for?

"The animal didn't cross the street because it was too tired": a tired thing
is an animal, a wide thing is a street. Both nouns are painted in a random
colour, and the task is to name the colour of "it". Nobody says which noun
"it" stands for, and the words alone do not give the colour away, so whoever
answers must fetch the colour from the right noun.

Some pairs of a noun and its adjective never occur in the training sentences,
among them (animal, tired) and (street, wide).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy import ndarray

__all__ = ["ANIMALS", "ANIMAL_ADJECTIVES", "COLOURS", "MAX_LEN", "PLACES",
           "PLACE_ADJECTIVES", "TEMPLATES", "WORDS", "Painted", "Sentences",
           "all_sentences", "paint", "paint_alike", "split", "unseen_pairs",
           "word_ids", "write"]

ANIMALS = ("animal", "cat", "dog", "horse", "cow", "sheep", "fox", "wolf",
           "mouse", "bear")
PLACES = ("street", "road", "river", "bridge", "field", "lake", "tunnel",
          "path", "square", "beach")
#: What only an animal can be too much of to cross, and what only a place can.
ANIMAL_ADJECTIVES = ("tired", "scared", "hungry", "sick", "sleepy", "lazy",
                     "nervous", "weak")
PLACE_ADJECTIVES = ("wide", "deep", "narrow", "long", "steep", "dark", "busy",
                    "slippery")
TEMPLATES = (
    "the {animal} didn't cross the {place} because it was too {adjective}",
    "the {place} wasn't crossed by the {animal} because it was too "
    "{adjective}",
    "because it was too {adjective} the {animal} didn't cross the {place}",
    "because it was too {adjective} the {place} wasn't crossed by the "
    "{animal}",
)
COLOURS = ("red", "green", "blue", "yellow", "black", "white")

PADDING = "<pad>"
_FRAME = sorted({word for template in TEMPLATES for word in template.split()
                 if "{" not in word})
#: Every word that a model of this task knows; its place is its number.
WORDS = (PADDING, *_FRAME, *ANIMALS, *PLACES, *ANIMAL_ADJECTIVES,
         *PLACE_ADJECTIVES)
_IDS = {word: number for number, word in enumerate(WORDS)}
MAX_LEN = 12  # words of the longest template

#: Template, animal, place and adjective of one sentence.
Choice = tuple[int, str, str, str]


@dataclass(frozen=True)
class Sentences:
    """Sentences as numbers, and where in each the words of interest stand.

    Attributes:
        words: ``(count, 12)``, numbers of words, 0 for padding at the end.
        it, animal, place, adjective: ``(count,)``, positions.
        about_animal: ``(count,)``, True where "it" is the animal.
    """

    words: ndarray
    it: ndarray
    animal: ndarray
    place: ndarray
    adjective: ndarray
    about_animal: ndarray

    @property
    def referent(self) -> ndarray:
        """Position of the noun that "it" stands for."""
        return np.where(self.about_animal, self.animal, self.place)

    @property
    def other(self) -> ndarray:
        """Position of the noun that "it" does not stand for."""
        return np.where(self.about_animal, self.place, self.animal)

    def __len__(self) -> int:
        return len(self.words)

    def take(self, rows: ndarray) -> "Sentences":
        """Give the sentences of the given numbers, in that order."""
        return Sentences(*(field[rows] for field in vars(self).values()))

    def text(self, number: int) -> list[str]:
        """Give one sentence as words, without its padding."""
        return [WORDS[word] for word in self.words[number] if word]


@dataclass(frozen=True)
class Painted:
    """Sentences whose two nouns have a colour.

    Attributes:
        sentences: The sentences.
        colours: ``(count, 12)``, 0 for no colour, else 1 + its place in
            ``COLOURS``.
        answer: ``(count,)``, the colour of the noun that "it" stands for, as
            its place in ``COLOURS``.
        decoy: ``(count,)``, the colour of the other noun; never the same.
    """

    sentences: Sentences
    colours: ndarray
    answer: ndarray
    decoy: ndarray


def write(choices: Iterable[Choice]) -> Sentences:
    """Make sentences from templates and words.

    Args:
        choices: For each sentence the number of its template, its animal,
            its place and its adjective.
    """
    rows = []
    for template, animal, place, adjective in choices:
        text = TEMPLATES[template].format(animal=animal, place=place,
                                          adjective=adjective).split()
        padding = [PADDING] * (MAX_LEN - len(text))
        rows.append([*word_ids(text + padding),
                     *map(text.index, ("it", animal, place, adjective)),
                     adjective in ANIMAL_ADJECTIVES])
    table = np.array(rows, dtype=np.int64).reshape(-1, MAX_LEN + 5)
    return Sentences(table[:, :MAX_LEN], *table[:, MAX_LEN:-1].T,
                     table[:, -1].astype(bool))


def word_ids(words: Iterable[str]) -> ndarray:
    """Give the number of each word."""
    return np.array([_IDS[word] for word in words], dtype=np.int64)


def all_sentences() -> Sentences:
    """Write all 6,400 sentences of the task."""
    return write(_all_choices())


def unseen_pairs() -> frozenset[tuple[str, str]]:
    """Give the pairs (noun, adjective) that training never shows.

    Returns:
        41 of the 160 pairs that belong together: a random quarter, and in
        any case (animal, tired) and (street, wide).
    """
    pairs = [*product(ANIMALS, ANIMAL_ADJECTIVES),
             *product(PLACES, PLACE_ADJECTIVES)]
    order = np.random.RandomState(0).permutation(len(pairs))
    chosen = {pairs[number] for number in order[:len(pairs) // 4]}
    return frozenset(chosen | {("animal", "tired"), ("street", "wide")})


def split() -> tuple[Sentences, Sentences]:
    """Separate the sentences into those for training and those for testing.

    Returns:
        4,760 sentences to train with, and the 1,640 whose adjective and
        referent are an unseen pair.
    """
    unseen = unseen_pairs()
    kept, held_out = [], []
    for choice in _all_choices():
        _, animal, place, adjective = choice
        noun = animal if adjective in ANIMAL_ADJECTIVES else place
        (held_out if (noun, adjective) in unseen else kept).append(choice)
    return write(kept), write(held_out)


def paint(sentences: Sentences, random: np.random.RandomState) -> Painted:
    """Give both nouns of each sentence a random colour, never the same.

    Args:
        sentences: The sentences.
        random: Draws the colours: first all those of the animals.
    """
    count = len(sentences)
    animal = random.randint(0, len(COLOURS), count)
    step = random.randint(1, len(COLOURS), count)
    return _painted(sentences, animal, (animal + step) % len(COLOURS))


def paint_alike(sentences: Sentences, animal: str, place: str) -> Painted:
    """Give every animal one colour and every place another.

    Args:
        sentences: The sentences.
        animal: Name of the animals' colour.
        place: Name of the places' colour.
    """
    count = len(sentences)
    return _painted(sentences, np.full(count, COLOURS.index(animal)),
                    np.full(count, COLOURS.index(place)))


def _painted(sentences: Sentences, animal: ndarray, place: ndarray) -> Painted:
    colours = np.zeros_like(sentences.words)
    rows = np.arange(len(sentences))
    colours[rows, sentences.animal] = 1 + animal
    colours[rows, sentences.place] = 1 + place
    about = sentences.about_animal
    return Painted(sentences, colours, np.where(about, animal, place),
                   np.where(about, place, animal))


def _all_choices() -> Iterable[Choice]:
    return product(range(len(TEMPLATES)), ANIMALS, PLACES,
                   ANIMAL_ADJECTIVES + PLACE_ADJECTIVES)
