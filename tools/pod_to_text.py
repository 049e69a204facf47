#!/usr/bin/env python3
"""Plain text from Perl's POD, without Perl: pod_to_text.py FILE.pod... > OUT.txt

Keeps paragraphs, headings and verbatim blocks, unwraps formatting codes (C<x>, L<text|target>). Not
a full POD parser: it makes long English text to measure language models on, the same everywhere.
"""
import re
import sys

CODE = re.compile(
    r"([A-Z])(?:<<<< (.*?) >>>>|<<< (.*?) >>>|<< (.*?) >>|<([^<>]*)>)".replace(" ", r"\s+"),
    re.DOTALL,
)
ENTITIES = {"lt": "\1", "gt": "\2", "verbar": "|", "sol": "/", "amp": "&", "quot": '"'}
PRINTED_COMMANDS = ("head1", "head2", "head3", "head4", "item")


def unwrap(code):
    """The text of one formatting code; < and > in it become \\1 and \\2, which open no code."""
    letter, text = code[1], next(group for group in code.groups()[1:] if group is not None)
    if letter in "XZ":
        return ""
    text = text.split("|", 1)[0] if letter == "L" else text
    return text.replace("<", "\1").replace(">", "\2")


def plain(paragraph):
    """A paragraph without formatting codes."""
    paragraph = re.sub(r"E<(\w+)>", lambda code: ENTITIES.get(code[1], ""), paragraph)
    previous = None
    while previous != paragraph:  # innermost codes first
        previous, paragraph = paragraph, CODE.sub(unwrap, paragraph)
    return paragraph.replace("\1", "<").replace("\2", ">").strip()


def paragraphs(source):
    """The paragraphs of POD text to print, commands stripped."""
    hidden = False  # between =begin and =end
    for paragraph in re.split(r"\n[ \t]*\n+", source):
        command = re.match(r"=([a-z]+\d?)\s*(.*)", paragraph, re.DOTALL)
        if command:
            hidden = command[1] == "begin" or (hidden and command[1] != "end")
            text = plain(command[2]) if command[1] in PRINTED_COMMANDS else ""
        else:
            text = paragraph.rstrip() if paragraph[:1] in (" ", "\t") else plain(paragraph)
        if not hidden and text not in ("", "*"):
            yield text


def main():
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8", errors="replace") as file:
            for paragraph in paragraphs(file.read()):
                sys.stdout.write(paragraph + "\n\n")


if __name__ == "__main__":
    main()
