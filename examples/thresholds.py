"""What the acceptance threshold buys: forwards and text of one answer at several thresholds.

python examples/thresholds.py "set the bedroom to 19 degrees and call Maya"
"""

import sys

import clover_edge

request = " ".join(sys.argv[1:]) or "set the bedroom to 19 degrees and call Maya"
messages = [{"role": "user", "content": request}]
careful = clover_edge.generate(messages, threshold=1.0)  # one token a forward
print(careful.text)
print("threshold  forwards  tokens/forward  same text")
for threshold in (1.0, 0.97, 0.9, 0.7, 0.5):
    result = clover_edge.generate(messages, threshold=threshold)
    counters = result.counters
    same = "yes" if result.text == careful.text else "no"
    print(f"{threshold:<11}{counters.forward_passes:<10}{counters.tokens_per_forward:<16.2f}{same}")
autoregressive = clover_edge.generate(messages, mode="ar")
print(f"autoregressive: {autoregressive.counters.forward_passes} forwards")
