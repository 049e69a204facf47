#!/usr/bin/env python3
"""Draws a terminal's text as SVG: ./demo 2>&1 | tools/terminal_svg.py './demo' > docs/demo.svg"""
import html
import sys
import textwrap

COLUMNS, WIDTH, HEIGHT, MARGIN = 108, 7.8, 18, 16
COLOURS = (("Tier-0", "#7ee787"), ("Tier-1", "#79c0ff"), ("Tier-2", "#d2a8ff"))


def main():
    lines = [f"$ {sys.argv[1]}"]
    for line in sys.stdin.read().rstrip().splitlines():
        lines += textwrap.wrap(line, COLUMNS, drop_whitespace=False) or [""]
    width, height = COLUMNS * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
          f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">')
    print(f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>')
    for i, line in enumerate(lines):
        colour = next((c for word, c in COLOURS if word in line), "#e6edf3")
        print(f'<text x="{MARGIN}" y="{MARGIN + HEIGHT * (i + 0.75):.0f}" fill="{colour}" '
              f'xml:space="preserve">{html.escape(line)}</text>')
    print("</svg>")


if __name__ == "__main__":
    main()
