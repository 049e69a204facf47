"""Requests of ten kinds, whose answers differ in length by a factor of hundreds, in mixed order: two workloads.

chat: as a person asks, and the answer runs until the model ends it, which small models often do late or never.
app: as a program asks that has a use for the answer: with two examples of what it wants, and where it wants a line, it
reads a line. Some kinds have answers of a form that the request settles.

Passages are paragraphs of the test texts (tools/fetch_models.sh texts). The same seed makes the same requests.
"""

import random
import re

TOPICS = """a bicycle; the water cycle; a steam engine; how bread is made; photosynthesis; the moon's phases; a telephone;
the human heart; how rivers form; an electric motor; vaccination; the internet; how glass is made; a sailing boat;
earthquakes; how birds fly; a compass; the printing press; how cheese is made; tides""".replace("\n", " ").split("; ")
THINGS = """fruits; colours; European cities; musical instruments; animals that live in the sea; tools in a workshop;
things to take on a hike; vegetables; kinds of weather; sports; inventions of the last century; countries in Africa;
programming languages; kinds of furniture; things that float; metals; planets; breakfast foods; reasons to exercise;
ways to save energy""".replace("\n", " ").split("; ")
TASKS = """reverses a string; adds two numbers; counts the vowels of a word; finds the largest number in a list;
checks whether a number is prime; computes a factorial; sorts a list of words by length; removes duplicates from a list;
converts Celsius to Fahrenheit; reads a file and counts its lines; merges two sorted lists; checks for a palindrome;
computes the average of a list; finds the first repeated character; prints a multiplication table;
splits a sentence into words; squares every number of a list; rolls two dice; flattens a nested list;
computes the greatest common divisor""".replace("\n", " ").split("; ")
FACTS = """What is the capital of France?; How many legs does a spider have?; What colour is the sky?; Who wrote Hamlet?;
What is seven times eight?; What is the largest planet?; In which country is Kyoto?; What do bees make?;
What is the boiling point of water?; How many days has a week?; What is the opposite of hot?; Which animal barks?;
What is the chemical symbol of gold?; What language is spoken in Brazil?; How many months are in a year?;
What is the capital of Japan?; What is the square root of 81?; Which ocean lies west of Europe?;
What is frozen water called?; How many continents are there?""".replace("\n", " ").split("; ")

CATS = "Cats sleep for most of the day. They hunt at dawn and at dusk, when small animals are about."
BREAD = "Flour, water, salt and yeast are all that bread needs. The dough must rest before it is baked."

# Of each kind: the instruction, and two examples that show what an answer looks like.
KINDS = {
    "word": ("In one word, what is this passage about?", [(CATS, "Cats"), (BREAD, "Bread")]),
    "yesno": ("Answer with yes or no only: does this passage mention {word}?", [(CATS, "Yes"), (BREAD, "No")]),
    "title": ("Write a short title for this passage.", [(CATS, "The Hours of the Cat"), (BREAD, "What Bread Needs")]),
    "sentence": ("Summarize this passage in one sentence.",
                 [(CATS, "Cats rest by day and hunt when the light is low and their prey is awake."),
                  (BREAD, "Bread is a simple thing of four ingredients that needs time before it goes into the oven.")]),
    "rewrite": ("Rewrite this passage in simpler words.",
                [(CATS, "Cats like to sleep a lot. They look for food early and late. That is when mice come out."),
                 (BREAD, "You need flour, water, salt and yeast to make bread. Mix them. Let it rest. Then bake it.")]),
    "quote": ("Repeat this passage word for word.", [(CATS, CATS), (BREAD, BREAD)]),
    "list": ("List {n} {thing}, one on each line.",
             [({"n": "three", "thing": "pets"}, "1. Cat\n2. Dog\n3. Hamster"),
              ({"n": "four", "thing": "drinks"}, "1. Water\n2. Tea\n3. Milk\n4. Coffee")]),
    "fact": ("{fact}", [({"fact": "What is the capital of Italy?"}, "Rome"),
                        ({"fact": "How many legs has a dog?"}, "Four")]),
    "code": ("Write a Python function that {task}.",
             [({"task": "doubles a number"}, "def double(x):\n    return 2 * x"),
              ({"task": "greets a person"}, "def greet(name):\n    message = 'Hello, ' + name\n    print(message)")]),
    "explain": ("Explain in detail, in several paragraphs, {topic}.",
                [({"topic": "a kite"},
                  "A kite is a light frame covered with paper or cloth. It flies because the wind pushes against it while "
                  "a string holds it at an angle. The air is turned downwards, and so the kite is lifted.\nThe tail keeps "
                  "it steady. Without a tail a flat kite would spin and fall. Some kites are bent backwards, and need "
                  "none.\nPeople have flown kites for more than two thousand years, first in China, to measure distances, "
                  "to send signals and to fish. Today they are mostly toys, but large ones can pull boats.")]),
}
NUMBERS = {3: "three", 5: "five", 7: "seven", 10: "ten"}


def times_table(n):
    return "\n".join(f"{n} x {i} = {n * i}" for i in range(1, 13))


def counted(n):
    return ", ".join(str(i) for i in range(1, n + 1))


APP_KINDS = {
    **{kind: KINDS[kind] for kind in ("word", "yesno", "title", "sentence", "quote", "fact", "code", "explain")},
    "table": ("Write the multiplication table of {number}, from {number} x 1 to {number} x 12, one on each line.",
              [({"number": "2"}, times_table(2)), ({"number": "11"}, times_table(11))]),
    "count": ("Count from 1 to {top}, all numbers separated by commas.",
              [({"top": "40"}, counted(40)), ({"top": "50"}, counted(50))]),
}
WORKLOADS = {"chat": KINDS, "app": APP_KINDS}
LINE = ("word", "yesno", "title", "sentence", "quote", "fact", "count")  # one line is what the program reads
WITH_PASSAGE = ("word", "yesno", "title", "sentence", "rewrite", "quote")
NEXT = "\n\nQuestion:"  # with which a model goes on that has seen examples


def stop_string(workload, kind):
    """What ends an answer to a request that came with examples."""
    return "\n" if workload == "app" and kind in LINE else NEXT


def passages(texts, rng, n):
    """n paragraphs of prose, 35 to 110 words each."""
    found = []
    for text in texts:
        for paragraph in re.split(r"\n\s*\n", text):
            words = paragraph.split()
            letters = sum(c.isalpha() or c.isspace() for c in paragraph)
            if 35 <= len(words) <= 110 and letters > 0.93 * len(paragraph) and words[-1].endswith("."):
                found.append(" ".join(words))
    rng.shuffle(found)
    return found[:n]


def fill(instruction, subject, values):
    """The request's text: the passage, if there is one, then what to do."""
    text = instruction.format(**values)
    return text if subject is None else f"{subject}\n{text}"


def examples(workload, kind):
    instruction, pairs = WORKLOADS[workload][kind]
    for subject, answer in pairs:
        if kind in WITH_PASSAGE:
            word = "mice" if subject is BREAD else "dusk"
            yield fill(instruction, subject, {"word": word}), answer
        else:
            yield fill(instruction, None, subject), answer


def requests(workload, texts, n_each, seed=1):
    """n_each requests of each kind in mixed order: {"kind", "text", "seed"}."""
    rng = random.Random(seed)
    prose = passages(texts, rng, n_each * len(WITH_PASSAGE))
    out = []
    for kind, (instruction, _) in WORKLOADS[workload].items():
        for i in range(n_each):
            passage = prose.pop() if kind in WITH_PASSAGE else None
            word = rng.choice((passage or "x").split()).strip(".,()").lower()
            number = NUMBERS[rng.choice(list(NUMBERS))]
            values = {"word": word, "n": number, "thing": THINGS[i % len(THINGS)], "task": TASKS[i % len(TASKS)],
                      "fact": FACTS[i % len(FACTS)], "topic": TOPICS[i % len(TOPICS)],
                      "number": 3 + i % 17, "top": 40 + 5 * (i % 9)}
            out.append({"kind": kind, "text": fill(instruction, passage, values)})
    rng.shuffle(out)
    return [{**request, "seed": i + 1} for i, request in enumerate(out)]


def few_shot(workload, request):
    """Examples of the request's kind, then the request."""
    shots = "".join(f"Question: {question}\nAnswer: {answer}\n\n"
                    for question, answer in examples(workload, request["kind"]))
    return f"{shots}Question: {request['text']}\nAnswer:"
