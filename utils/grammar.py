"""The seeded grammar that writes the course's data set: short reviews with a label each.

A review is built from clauses about one aspect ("the battery is not reliable"), and its label
follows from their structure: what is negated, which side of a contrast counts, whether a fear came
true. So the words alone do not decide; their order does. All of it is synthetic.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

POSITIVE, NEGATIVE = 1, 0


def _words(text: str, separator: str | None = None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(separator))


# What can be said of everything, most frequent first: a word's share falls with its rank.
ADJECTIVES = {
    POSITIVE: _words(
        "good great lovely pleasant superb delightful impressive excellent splendid charming "
        "marvellous outstanding first-rate exquisite admirable flawless sublime peerless stellar"
    ),
    NEGATIVE: _words(
        "bad poor awful dreadful disappointing unpleasant terrible mediocre dismal shoddy woeful "
        "lamentable abysmal atrocious deplorable ghastly wretched abominable execrable"
    ),
}
NOUNS = {
    POSITIVE: _words("success delight triumph pleasure relief gem masterpiece godsend"),
    NEGATIVE: _words("disappointment mess nuisance failure letdown disaster mistake fiasco"),
}
VERBS = {
    POSITIVE: _words("makes me smile; exceeds my hopes; keeps its promise; wins me over", ";"),
    NEGATIVE: _words("lets me down; drives me mad; breaks its promise; spoils it all", ";"),
}


@dataclass(frozen=True)
class Topic:
    """Aspects that are judged in the same words; words with index 1 are positive, 0 negative."""

    aspects: tuple[str, ...]
    adjectives: tuple[tuple[str, ...], tuple[str, ...]]
    verbs: tuple[tuple[str, ...], tuple[str, ...]]


def _topic(aspects: str, negative: str, positive: str, verbs: str) -> Topic:
    bad, good = _words(verbs, "|")
    return Topic(
        _words(aspects),
        (_words(negative), _words(positive)),
        (_words(bad, ";"), _words(good, ";")),
    )


TOPICS = (
    _topic(
        "handle lid strap hinge zipper case stand frame desk chair tent saddle ladder shelf",
        "weak flimsy wobbly fragile clumsy crooked brittle rickety lopsided threadbare slapdash",
        "solid sturdy comfortable durable handy robust well-made dependable hard-wearing rugged",
        "falls apart; wears out too soon; breaks within days | holds up well; lasts for years; "
        "survives every journey",
    ),
    _topic(
        "battery motor charger sensor printer pump blender toaster kettle heater brake fan",
        "slow unreliable noisy weak sluggish shaky erratic leaky temperamental defective",
        "fast reliable quiet efficient strong steady responsive economical tireless unfailing",
        "breaks down every week; stops without warning; needs constant repair | works every time; "
        "does its job; runs for days",
    ),
    _topic(
        "screen camera display lamp projector photo print cover poster view",
        "dull blurry dim pale grainy gloomy murky washed-out garish smudged",
        "sharp bright clear vivid crisp colourful radiant luminous true-to-life dazzling",
        "strains my eyes; flickers at night; loses every detail | shows every detail; catches the "
        "eye; looks better every day",
    ),
    _topic(
        "soup bread coffee breakfast menu cake salad curry pie tea",
        "stale bland cold bitter soggy greasy watery burnt insipid rancid",
        "fresh tasty warm crisp rich delicious fragrant juicy mouth-watering wholesome",
        "upsets my stomach; tastes of nothing; leaves me hungry | tastes of home; melts on the "
        "tongue; leaves me wanting more",
    ),
    _topic(
        "staff service host waiter guide driver teacher receptionist nurse support",
        "rude slow careless impatient unhelpful gruff absent-minded surly indifferent haughty",
        "friendly helpful kind attentive polite patient welcoming considerate obliging gracious",
        "keeps us waiting; ignores every question; makes excuses | answers every question; goes "
        "out of the way for us; remembers our names",
    ),
    _topic(
        "plot dialogue soundtrack acting ending story script opening novel sequel",
        "boring predictable tedious confusing shallow clumsy muddled far-fetched dreary turgid",
        "gripping clever moving original witty convincing touching inventive spellbinding poignant",
        "puts me to sleep; goes in circles; insults the audience | keeps me guessing; stays with "
        "me; rewards a second look",
    ),
    _topic(
        "room bathroom balcony lobby garden bed kitchen terrace pool campsite",
        "dirty cramped dark damp shabby draughty grubby musty cluttered squalid",
        "clean spacious cosy tidy airy spotless comfortable inviting immaculate serene",
        "smells of smoke; lacks every comfort; needs repair | feels like home; offers every "
        "comfort; invites you to stay",
    ),
    _topic(
        "website app manual update checkout form map course search setup",
        "slow confusing awkward vague clunky incomplete cluttered cumbersome cryptic convoluted",
        "clear useful simple quick intuitive thorough practical straightforward lucid foolproof",
        "wastes my time; crashes every day; hides what matters | saves me time; explains every "
        "step; finds what I need",
    ),
)
DEGREES = ("very", "really", "quite", "rather", "truly", "remarkably", "fairly", "so")
OPENINGS = (
    "honestly",
    "after a month",
    "for the price",
    "to my mind",
    "on the whole",
    "as far as I can tell",
    "in the end",
    "this time",
    "once again",
    "all things considered",
)
ENDINGS = (
    "at least for me",
    "as my neighbour predicted",
    "from the first day",
    "I must say",
    "in my experience",
    "and I am not alone in that",
)
PEOPLE = ("my sister", "my neighbour", "the seller", "the brochure", "a friend", "another reviewer")
NEGATIONS = (
    "the {aspect} is not {adjective}",
    "the {aspect} is never {adjective}",
    "the {aspect} is hardly {adjective}",
    "the {aspect} is anything but {adjective}",
    "nobody would call the {aspect} {adjective}",
)
# The side that counts: "last" is the clause at {b}, "first" the one at {a}.
CONTRASTS = (
    ("{a}, but {b}", "last"),
    ("although {a}, {b}", "last"),
    ("granted, {a}, yet {b}", "last"),
    ("{a}, even though {b}", "first"),
)
JOINED = ("{a}, and {b}", "{a}; besides, {b}", "{a}, just as {b}", "{a}, and what is more, {b}")
# What was said of the aspect (POSITIVE, NEGATIVE, or None for either), and whether it proved right.
EXPECTATIONS = (
    ("{person} promised that {clause}, and so it is", POSITIVE, True),
    ("{person} promised that {clause}, which is not the case", POSITIVE, False),
    ("I had hoped that {clause}, and I was mistaken", POSITIVE, False),
    ("I had hoped that {clause}, and I got what I wanted", POSITIVE, True),
    ("{person} warned me that {clause}, and so it is", NEGATIVE, True),
    ("{person} warned me that {clause}, which is not the case", NEGATIVE, False),
    ("I was afraid that {clause}, but I was mistaken", NEGATIVE, False),
    ("{person} claims that {clause}, and I agree", None, True),
    ("{person} claims that {clause}, and I do not agree", None, False),
    ("it is a myth that {clause}", None, False),
    ("it is true that {clause}", None, True),
)
KINDS = {"plain": 40, "negated": 22, "contrast": 16, "joined": 12, "expectation": 10}


@dataclass(frozen=True)
class Review:
    """A review with the label of its meaning, before noise, and the structure it was built with."""

    sentence: str
    label: int
    kind: str


def _by_rank(chance: random.Random, words: Sequence[str]) -> str:
    """Draw a word with a weight of 1 / rank: Zipf's law."""
    return chance.choices(words, [1 / rank for rank in range(1, len(words) + 1)])[0]


def _adjective(chance: random.Random, label: int, topic: Topic) -> str:
    if chance.random() < 0.6:
        return _by_rank(chance, ADJECTIVES[label])
    return _by_rank(chance, topic.adjectives[label])


def _plain_clause(chance: random.Random, label: int, topic: Topic, aspect: str) -> str:
    form = chance.choices(("adjective", "verb", "noun"), (6, 2, 1))[0]
    if form == "noun":
        return f"the {aspect} is a {_by_rank(chance, NOUNS[label])}"
    if form == "verb":
        general = chance.random() < 0.3
        return f"the {aspect} {chance.choice(VERBS[label] if general else topic.verbs[label])}"
    adjective = _adjective(chance, label, topic)
    if adjective in topic.adjectives[label] and chance.random() < 0.4:
        adjective = f"{chance.choice(DEGREES)} {adjective}"
    return f"the {aspect} is {adjective}"


def _negated_clause(chance: random.Random, label: int, topic: Topic, aspect: str) -> str:
    adjective = _adjective(chance, 1 - label, topic)
    return chance.choice(NEGATIONS).format(aspect=aspect, adjective=adjective)


def _clause(chance: random.Random, label: int, topic: Topic, aspect: str) -> str:
    write = _negated_clause if chance.random() < 0.25 else _plain_clause
    return write(chance, label, topic, aspect)


def write_review(chance: random.Random, label: int) -> Review:
    """Return one review that means `label`, drawn from `chance`."""
    kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
    topic = chance.choice(TOPICS)
    one, other = chance.sample(topic.aspects, 2)
    if kind == "plain":
        text = _plain_clause(chance, label, topic, one)
    elif kind == "negated":
        text = _negated_clause(chance, label, topic, one)
    elif kind == "joined":
        a, b = (_clause(chance, label, topic, aspect) for aspect in (one, other))
        text = chance.choice(JOINED).format(a=a, b=b)
    elif kind == "contrast":
        form, counts = chance.choice(CONTRASTS)
        labels = (label, 1 - label) if counts == "first" else (1 - label, label)
        pair = zip(labels, (one, other), strict=True)
        a, b = (_clause(chance, meaning, topic, aspect) for meaning, aspect in pair)
        text = form.format(a=a, b=b)
    else:
        meant = {True: label, False: 1 - label}
        fitting = [
            (form, meant[true]) for form, said, true in EXPECTATIONS if said in (None, meant[true])
        ]
        form, said = chance.choice(fitting)
        clause = _plain_clause(chance, said, topic, one)
        text = form.format(person=chance.choice(PEOPLE), clause=clause)
    if chance.random() < 0.25:
        text = f"{chance.choice(OPENINGS)}, {text}"
    if chance.random() < 0.15:
        text = f"{text}, {chance.choice(ENDINGS)}"
    return Review(f"{text[0].upper()}{text[1:]}.", label, kind)


def write_reviews(count: int, seed: int, positive: float = 2 / 3) -> list[Review]:
    """Return `count` different reviews, in random order, a share `positive` of them positive."""
    chance = random.Random(seed)
    reviews: dict[str, Review] = {}
    while len(reviews) < count:
        label = POSITIVE if chance.random() < positive else NEGATIVE
        review = write_review(chance, label)
        reviews.setdefault(review.sentence.lower(), review)
    return list(reviews.values())
