"""What every peer_*.py is asked for: the options that peers.ScriptPeer and startup.py pass."""

import argparse


def parse(description, kv_types):
    """The options, from the script's docstring and the KV types it knows."""
    parser = argparse.ArgumentParser(description=description.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=0)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--generate", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kv", choices=kv_types, default="f16")
    parser.add_argument("--start", action="store_true", help="time the start")
    return parser.parse_args()
