"""Streams an answer and shows how each block came about.

python examples/stream.py "set the bedroom to 19 degrees and call Maya"
"""

import sys

import clover_edge

request = " ".join(sys.argv[1:]) or "wake me up at 6:45 on Friday"
for event in clover_edge.stream([{"role": "user", "content": request}], threshold=0.9):
    if isinstance(event, clover_edge.DraftEvent):
        accepted = event.states.count("accepted")
        print(f"block {event.block}, step {event.step}: {accepted} of {len(event.states)} accepted")
    elif isinstance(event, clover_edge.TextEvent):
        print(event.text)
    else:
        counters = event.result.counters
        print(f"{counters.tokens} tokens in {counters.forward_passes} forwards")
