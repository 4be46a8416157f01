"""Constrained output: JSON schemas, regular expressions, grammars and forced tool calls.

Needs the `grammar` extra (llguidance), which is imported with the first response_format. The core
knows no grammar: it asks a rule what may come next (csrc/decode/constraint.h, `rule.GrammarRule`).
"""
