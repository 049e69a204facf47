#!/usr/bin/env python3
"""Writes tests/data/chat_templates.json: chat templates and what Jinja2 makes of them.

    python3 tools/make_template_golden.py [--gguf MODEL.gguf]... > tests/data/chat_templates.json

Jinja2 is set up as Hugging Face's apply_chat_template sets it up. Templates of the given models are
added when they are short. Needs Jinja2, and gguf for --gguf. Dates: strftime_now(F) gives "<<F>>"
here; the test puts today's date in its place.
"""

import argparse
import copy
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from template_cases import FAMILIES, SNIPPETS  # noqa: E402

LONGEST_MODEL_TEMPLATE = 1500  # bytes


class Generation(jinja2.ext.Extension):
    """{% generation %}: its body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda pattern: f"<<{pattern}>>"
    return env


SYSTEM = {"role": "system", "content": "Be brief."}
CONVERSATIONS = {
    "one": [{"role": "user", "content": "Hi there"}],
    "system": [SYSTEM, {"role": "user", "content": "  What is 2+2? \n"}],
    "turns": [SYSTEM, {"role": "user", "content": "Hi"},
              {"role": "assistant", "content": " Hello!\n"},
              {"role": "user", "content": "Größe von 東京? <b>\"x\" & 'y'</b> \\ 🙂"}],
    "thinking": [{"role": "user", "content": "Q1"},
                 {"role": "assistant", "content": "<think>\nhm\n</think>\n\nA1"},
                 {"role": "user", "content": "Q2"}],
    "tool": [{"role": "user", "content": "weather?"},
             {"role": "tool", "content": "{\"t\": 21}"}],
    "wrong_order": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    "none": [],
}


def case(env, name, template, messages, add_generation_prompt):
    out = {"name": name, "template": template, "messages": messages,
           "add_generation_prompt": add_generation_prompt, "bos": "<s>", "eos": "</s>"}
    try:
        out["expected"] = env.from_string(template).render(
            messages=copy.deepcopy(messages), tools=None, documents=None, bos_token="<s>", eos_token="</s>",
            add_generation_prompt=add_generation_prompt)
    except Exception as error:  # whatever Jinja2 or Python makes of a faulty template
        out["error"] = True
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    return out


def model_template(path):
    import gguf
    field = gguf.GGUFReader(path).fields.get("tokenizer.chat_template")
    return None if field is None else field.contents()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", action="append", default=[])
    env = environment()
    families = dict(FAMILIES)
    for path in parser.parse_args().gguf:
        template = model_template(path)
        if template is not None and len(template) <= LONGEST_MODEL_TEMPLATE:
            families[pathlib.Path(path).name] = template
    cases = []
    for name, template in families.items():
        for conversation, messages in CONVERSATIONS.items():
            for prompt in (False, True) if conversation == "turns" else (True,):
                cases.append(case(env, f"{name}/{conversation}/{prompt}", template, messages, prompt))
    for number, snippet in enumerate(SNIPPETS):
        cases.append(case(env, f"snippet {number}", snippet, CONVERSATIONS["turns"], True))
    json.dump(cases, sys.stdout, ensure_ascii=False, indent=0)
    print()


if __name__ == "__main__":
    main()
