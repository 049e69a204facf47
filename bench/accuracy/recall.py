#!/usr/bin/env python3
"""Long-range recall: what the exact cache can still tell of a long document, can a compressed one tell too?

usage: recall.py MODEL.gguf TEXT [--layouts balanced@31M,3.5] [--before] [--characters 23000]

Facts in many forms ("The access code of the northern gate is 48213.") are planted in a document of about
6,000 tokens, all before the window that stays exact. Then come the questions, one a line: a fact is asked
for in other words, or its sentence is begun; and passages of the document are begun, to be gone on with by
copying, where each line but the first is a question. Each is followed by its right answer, so that every
question finds the same context under every layout, and each is one more question on the same compressed
context. An answer is right if every token of it is the most likely one, which is when greedy decoding gives
it. Of the questions that the exact cache answers, this counts those that a layout loses, and the answers'
log-probabilities under both. --before puts the questions before the document as well.

balanced@31M is quality balanced with 31 MiB of RAM for the KV. Activations are int8, as the model runs. For
tokenisers that make a newline a token of its own.
"""

import argparse
import array
import dataclasses
import json
import math
import os
import pathlib
import random
import tempfile
import threading

import evaluation

PLACES = "gate vault bridge tower harbour archive mill chapel garden library".split()
SIDES = "northern southern eastern western".split()
FORMS = (  # how a fact stands in the document, and its question; {0} is a place, {1} the answer
    ("The access code of the {0} is {1}.", "What is the access code of the {0}? Answer: {1}"),
    ("Whoever opens the {0} must dial {1}.", "What must one dial to open the {0}? Answer: {1}"),
    (
        "The keeper of the {0} wrote down the number {1}.",
        "Which number did the keeper of the {0} write down? Answer: {1}",
    ),
    ("In the register, the {0} has the entry {1}.", "Which entry has the {0} in the register? Answer: {1}"),
    ("The number of bricks in the {0} is {1}.", "How many bricks are in the {0}? Answer: {1}"),
)
NUMBER_TOKENS = 6  # at the end of a line: a space and five digits
COPIED_LINES, COPIED = 4, (2, 8)  # of a passage; which tokens of each line but the first are an answer
SINK_CHARACTERS, WINDOW_CHARACTERS = 600, 2400  # surely outside of the pages that stay exact
ROW_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Question:
    kind: str  # fact: asked in other words; begun: its sentence begins; copy: a line of a passage
    line: str
    first: int  # token of the answer
    end: int


def make_facts(rng, count):
    """(sentence, kind, line that asks for it); every place once, so that no two facts can be confused."""
    places = [f"{side} {place}" for side in SIDES for place in PLACES]
    rng.shuffle(places)
    for i, place in enumerate(places[:count]):
        sentence, question = FORMS[i % len(FORMS)]
        answer = rng.randrange(10000, 99999)
        sentence = sentence.format(place, answer)
        asked = ("fact", question.format(place, answer)) if i % 4 == 0 else ("begun", sentence.rstrip("."))
        yield sentence, *asked


def plant(paragraphs, sentences):
    """The document: sentences spread evenly over its paragraphs, up to the window."""
    text = "\n\n".join(paragraphs)
    first, last = SINK_CHARACTERS, len(text) - WINDOW_CHARACTERS
    places = [first + (last - first) * i // len(sentences) for i in range(len(sentences))]
    for place, sentence in sorted(zip(places, sentences), reverse=True):
        at = text.index("\n\n", place)
        text = f"{text[:at]}\n\n{sentence}{text[at:]}"
    return text


def passages_to_copy(rng, document, count):
    """Runs of COPIED_LINES lines of the document that occur once and aren't in its exact pages."""
    lines = document[SINK_CHARACTERS:-WINDOW_CHARACTERS].split("\n")[1:-1]
    starts = [
        i
        for i in range(0, len(lines) - COPIED_LINES, COPIED_LINES + 1)
        if all(len(line) > 50 and line == line.strip() for line in lines[i : i + COPIED_LINES])
        and document.count(lines[i]) == 1
    ]
    chosen = rng.sample(starts, min(count, len(starts)))
    return [lines[i : i + COPIED_LINES] for i in chosen]


def make_task(args):
    """The document, and the lines that follow: (kind, line)."""
    rng = random.Random(args.seed)
    text = pathlib.Path(args.text).read_text(encoding="utf-8")
    facts = list(make_facts(rng, args.facts))
    paragraphs = text[: args.characters].split("\n\n")
    document = plant(paragraphs, [sentence for sentence, _, _ in facts])
    tasks = [
        [("cue", first), *(("copy", line) for line in rest)]
        for first, *rest in passages_to_copy(rng, document, args.copies)
    ]
    tasks += [[(kind, line)] for _, kind, line in facts]
    rng.shuffle(tasks)
    lines = [line for task in tasks for line in task]
    if args.before:
        asked = [
            line.split(" Answer:")[0] if kind == "fact" else line[:-6]
            for kind, line in lines
            if kind in ("fact", "begun")
        ]
        document = "Read this with these questions in mind:\n" + "\n".join(asked) + "\n\n" + document
    return document, lines


def tokens_of(args, text):
    """The tokeniser's ids, by way of an evaluation that is as short as can be."""
    with tempfile.TemporaryDirectory() as folder:
        ids = pathlib.Path(folder) / "ids.json"
        options = ["-m", args.model, "-f", "-", "--prefix", 0, "--tokens", 2, "--kv", "exact"]
        evaluation.tierkv(args, "eval", *options, "--dump-tokens", ids, stdin=text)
        return json.loads(ids.read_text(encoding="utf-8"))


def answer_spans(args, document, lines):
    """(ids of everything, the document's length in tokens, [(first, last)] of each line's answer)."""
    ids = tokens_of(args, document + "\n" + "\n".join(line for _, line in lines) + "\n")
    newline = tokens_of(args, "A\n1")[1]
    ends = [i for i, token in enumerate(ids) if token == newline][-len(lines) - 1 :]
    questions = []
    for (kind, line), start, end in zip(lines, ends, ends[1:]):
        if kind == "copy":
            questions.append(Question(kind, line, start + 1 + COPIED[0], start + 1 + COPIED[1]))
        elif kind != "cue":
            questions.append(Question(kind, line, end - NUMBER_TOKENS, end))
    return ids, ends[0] + 1, questions


def read_rows(path, first, wanted, n_vocab, rows):
    """Fills rows {position: (argmax, log-sum-exp, logits)} from a pipe whose first row predicts `first`."""
    size = n_vocab * ROW_BYTES
    with open(path, "rb", buffering=1 << 20) as pipe:
        position = first
        while len(data := pipe.read(size)) == size:
            if position in wanted:
                values = array.array("f", data)
                top = max(values)
                total = math.fsum(map(math.exp, (value - top for value in values)))
                rows[position] = (values.index(top), top + math.log(total), values)
            position += 1


def logits_at(args, text, ids, prefix, layout, wanted):
    """What a layout predicts at these positions, and the evaluation's figures."""
    exact = layout == "exact"
    with tempfile.TemporaryDirectory() as folder:
        pipe, file = os.path.join(folder, "logits"), os.path.join(folder, "text")
        pathlib.Path(file).write_text(text, encoding="utf-8")
        os.mkfifo(pipe)
        rows = {}
        first = 1 if exact else prefix + 1
        reader = threading.Thread(target=read_rows, args=(pipe, first, wanted, args.vocab, rows), daemon=True)
        reader.start()
        layout, _, kv_ram = layout.partition("@")
        more = ["--kv-ram", kv_ram] if kv_ram else []
        figures = evaluation.evaluate(
            args,
            file,
            layout,
            prefix,
            len(ids) - prefix,
            *more,
            "--activations",
            "int8",
            "--dump-logits",
            pipe,
        )
        reader.join()
    return rows, figures


def score(rows, ids, questions):
    """[(right, log-probability a token of the answer)]."""
    for question in questions:
        span = range(question.first, question.end)
        nats = sum(rows[i][2][ids[i]] - rows[i][1] for i in span)
        yield all(rows[i][0] == ids[i] for i in span), nats / len(span)


def compare(questions, exact, found):
    """Which of the questions that the exact cache answers are answered still."""
    known = [i for i, (right, _) in enumerate(exact) if right]
    kept = [i for i in known if found[i][0]]
    loss = [exact[i][1] - found[i][1] for i in known]
    half = len(questions) // 2
    return {
        "asked": len(questions),
        "known": len(known),
        "kept": len(kept),
        "gained": sum(now and not before for (now, _), (before, _) in zip(found, exact)),
        "known_facts": sum(questions[i].kind != "copy" for i in known),
        "kept_facts": sum(questions[i].kind != "copy" for i in kept),
        "known_late": sum(i >= half for i in known),
        "kept_late": sum(i >= half for i in kept),
        "worst_loss": max(loss, default=0),
        "mean_loss": sum(loss) / max(1, len(loss)),
        "lost": [questions[i].line for i in known if i not in kept],
        "nats": [[round(before[1], 4), round(now[1], 4)] for before, now in zip(exact, found)],
    }


def measure(args, out):
    document, lines = make_task(args)
    text = document + "\n" + "\n".join(line for _, line in lines) + "\n"
    ids, prefix, questions = answer_spans(args, document, lines)
    wanted = {i for question in questions for i in range(question.first, question.end)}
    case = {"text": pathlib.Path(args.text).stem, "before": args.before, "seed": args.seed}
    exact = None
    for layout in ["exact", *args.layouts.split(",")]:
        rows, figures = logits_at(args, text, ids, prefix, layout, wanted)
        found = list(score(rows, ids, questions))
        exact = exact or found
        compared = compare(questions, exact, found)
        ratio = evaluation.resident_ratio(figures)
        out.add(
            {
                **case,
                "layout": layout,
                "document_tokens": prefix,
                **compared,
                "resident_ratio": ratio,
                **figures,
            }
        )
        print(
            f"{layout}: {compared['kept']} of {compared['known']} kept, {len(questions)} asked; "
            f"KV in RAM {ratio:.2f} times smaller than in float16",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--layouts", default="balanced@31M")
    parser.add_argument("--before", action="store_true", help="the questions stand before the document, too")
    parser.add_argument("--characters", type=int, default=23000, help="of the text")
    parser.add_argument("--facts", type=int, default=14)
    parser.add_argument("--copies", type=int, default=14)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocab", type=int, default=49152, help="tokens of the model's vocabulary")
    evaluation.add_options(parser)
    args = parser.parse_args()
    measure(args, evaluation.new_results("recall", args, profile=evaluation.profile_name(args)))


if __name__ == "__main__":
    main()
