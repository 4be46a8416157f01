"""The tokenizer of a GGUF file as Hugging Face files: byte-level BPE (``tokenizer.ggml.model``
"gpt2") with the pre-tokenizer that ``tokenizer.ggml.pre`` names, or SentencePiece's BPE ("llama").
"""

from __future__ import annotations

import json
from typing import Any

from ...errors import CheckpointError, UnsupportedModelError
from ..fields import Fields

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _words(letters: str, digits: str) -> str:
    """The split of Llama 3 and Qwen, which differ in runs of digits, and in marks as letters."""
    other = rf" ?[^\s{letters}\p{{N}}]+[\r\n]*"
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|{digits}|{other}|{_SPACES}"


# Patterns applied one after the other, every piece then split by the next one.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_SPLITS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "qwen2": (_words(r"\p{L}", r"\p{N}"),),
    "qwen35": (_words(r"\p{L}\p{M}", r"\p{N}"),),
    "llama-bpe": (_words(r"\p{L}", r"\p{N}{1,3}"),),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
}
_NFC = ("qwen2", "qwen35")  # their tokenizers normalise, which a GGUF file does not say
_IDS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
    "mask_token": "mask_token_id",
}


class GgufTokenizer:
    """Tokens, merges and special ids of a GGUF file."""

    def __init__(self, fields: Fields) -> None:
        """``fields``: the file's keys. Raises UnsupportedModelError for another kind of tokenizer
        or pre-tokenizer, CheckpointError for tokens that do not make one."""
        self._path, self._all = fields.path, fields
        own = {k.removeprefix(_OWN): v for k, v in fields.values.items() if k.startswith(_OWN)}
        self._own = Fields(fields.path, own)
        self._tokens, self._kinds = self._list("tokens", str), self._list("token_type", int)
        kinds = self._kinds[: len(self._tokens)]
        while len(kinds) == len(self._tokens) and kinds and kinds[-1] == _UNUSED:
            kinds.pop()  # rows behind the last real token, which converters give made-up names
            self._tokens.pop()

    @property
    def present(self) -> bool:
        return bool(self._tokens)

    def files(self) -> dict[str, bytes]:
        """tokenizer.json, tokenizer_config.json, generation_config.json and the chat template, as
        far as the file says; nothing where it has no tokens."""
        if not self.present:
            return {}
        kind = self._own.get("model")
        if kind not in _MODELS:
            raise self._unsupported("model", kind, _MODELS)
        special = {name: self._token(key) for name, key in _IDS.items()}
        config = {name: token for name, token in special.items() if token is not None}
        stops = [self._own.get(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id")]
        eos = list(dict.fromkeys(stop for stop in stops if stop is not None))
        out = {
            "tokenizer.json": self._tokenizer(special, spm=kind == "llama"),
            "tokenizer_config.json": _json(
                {"tokenizer_class": "PreTrainedTokenizerFast", **config}
            ),
            "generation_config.json": _json({"eos_token_id": eos} if eos else {}),
        }
        template = self._all.get("tokenizer.chat_template")
        if isinstance(template, str):
            out["chat_template.jinja"] = template.encode()
        return out

    @property
    def mask_token_id(self) -> int | None:
        found = self._own.get("mask_token_id")
        return found if type(found) is int else None

    def _tokenizer(self, special: dict[str, str | None], *, spm: bool) -> bytes:
        from tokenizers import AddedToken, processors

        vocab = {token: i for i, token in enumerate(self._tokens)}
        if len(vocab) != len(self._tokens):
            twice = next(t for i, t in enumerate(self._tokens) if vocab[t] != i)
            raise self._refuse("tokens", f"{twice!r} is there twice")
        tokenizer = (self._sentence_pieces if spm else self._byte_level)(vocab, special)
        for i, kind in enumerate(self._kinds[: len(self._tokens)]):
            if kind in (_CONTROL, _USER_DEFINED):
                added = AddedToken(self._tokens[i], special=kind == _CONTROL, normalized=False)
                tokenizer.add_tokens([added])
        bos = special["bos_token"]
        if bos is not None and self._own.get("add_bos_token", spm):
            pair = (bos, vocab[bos])
            tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{bos} $A", special_tokens=[pair]
            )
        return str(tokenizer.to_str()).encode()

    def _byte_level(self, vocab: dict[str, int], special: dict[str, str | None]) -> Any:
        from tokenizers import Tokenizer, decoders, models, normalizers

        pre = str(self._own.get("pre", "default"))
        if pre not in _SPLITS:
            raise self._unsupported("pre", pre, tuple(_SPLITS))
        try:
            model = models.BPE(vocab=vocab, merges=self._merges(), ignore_merges=pre == "llama-bpe")
        except Exception as problem:  # the library raises no type of its own
            raise self._refuse("merges", str(problem)) from problem
        tokenizer = Tokenizer(model)
        if pre in _NFC:
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = _pre_tokenizer(_SPLITS[pre])
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    def _sentence_pieces(self, vocab: dict[str, int], special: dict[str, str | None]) -> Any:
        """Pieces are joined best score first, as far as there is a piece for the whole; what has
        none is spelled in bytes. A space is "▁"."""
        from tokenizers import Tokenizer, decoders, models, normalizers

        model = models.BPE(
            vocab=vocab,
            merges=_joins(vocab, self._scores()),
            unk_token=special["unk_token"],
            fuse_unk=True,
            byte_fallback=True,
        )
        tokenizer = Tokenizer(model)
        spaces: list[Any] = [normalizers.Replace(" ", "▁")]
        strip: list[Any] = []
        if self._own.get("add_space_prefix", True):
            spaces.insert(0, normalizers.Prepend("▁"))
            strip = [decoders.Strip(" ", 1, 0)]
        tokenizer.normalizer = normalizers.Sequence(spaces)
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
        )
        return tokenizer

    def _scores(self) -> list[float]:
        scores = self._list("scores", float)[: len(self._tokens)]
        if len(scores) != len(self._tokens):
            raise self._refuse("scores", f"{len(scores)} for {len(self._tokens)} tokens")
        return scores

    def _merges(self) -> list[tuple[str, str]]:
        pairs = []
        for merge in self._list("merges", str):
            first, space, second = merge.partition(" ")
            if not (first and space and second):
                raise self._refuse("merges", f"{merge!r} is no pair of tokens")
            pairs.append((first, second))
        return pairs

    def _token(self, key: str) -> str | None:
        number = self._own.get(key)
        if number is None:
            return None
        if type(number) is not int or not 0 <= number < len(self._tokens):
            raise self._refuse(key, f"{number!r} is no id below {len(self._tokens)}")
        return str(self._tokens[number])

    def _list(self, key: str, kind: type) -> list[Any]:
        value = self._own.get(key, [])
        if not isinstance(value, list) or any(type(item) is not kind for item in value):
            raise self._refuse(key, f"is no list of {kind.__name__}")
        return list(value)

    def _refuse(self, key: str, reason: str) -> CheckpointError:
        return CheckpointError(str(self._path), _OWN + key, reason)

    def _unsupported(self, key: str, value: Any, known: tuple[str, ...]) -> UnsupportedModelError:
        listed = ", ".join(known)
        return UnsupportedModelError(
            f"{self._path}: {_OWN}{key}: {value!r} is not read; known: {listed}"
        )


_OWN = "tokenizer.ggml."
_MODELS = ("gpt2", "llama")


def _joins(vocab: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every pair of pieces that makes a piece, the best-scored piece first."""
    pairs = [
        (-scores[i], i, cut, piece)
        for piece, i in vocab.items()
        for cut in range(1, len(piece))
        if piece[:cut] in vocab and piece[cut:] in vocab
    ]
    return [(piece[:cut], piece[cut:]) for _, _, cut, piece in sorted(pairs)]


def _pre_tokenizer(patterns: tuple[str, ...]) -> Any:
    from tokenizers import Regex, pre_tokenizers

    steps: list[Any] = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in patterns
    ]
    return pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
