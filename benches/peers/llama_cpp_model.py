"""llama.cpp through llama-cpp-python's low-level functions: prompts, tokens, and block steps."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .codes import needs

EXTRA = "peers"
_UBATCH = 512  # as llama-bench has it


@cache
def _silence() -> Any:
    """A log that says nothing; llama.cpp calls it for as long as the process lives."""
    import llama_cpp

    return llama_cpp.llama_log_callback(lambda level, text, data: None)


class Model:
    """A GGUF in memory and one sequence of at most `context` tokens. A context manager."""

    def __init__(
        self, path: str | Path, threads: int, context: int, *, repack: bool, flash: bool = False
    ) -> None:
        """Raises Missing."""
        with needs(EXTRA):
            import llama_cpp
        self._lib = lib = llama_cpp
        lib.llama_log_set(_silence(), ctypes.c_void_p(0))
        lib.llama_backend_init()
        options = lib.llama_model_default_params()
        options.use_extra_bufts, options.n_gpu_layers = repack, 0
        self._model = lib.llama_model_load_from_file(str(path).encode(), options)
        if not self._model:
            raise RuntimeError(f"{path}: llama.cpp cannot load it")
        settings = lib.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = context, context, _UBATCH
        settings.n_threads = settings.n_threads_batch = threads
        settings.flash_attn_type = int(flash)
        self._context = lib.llama_init_from_model(self._model, settings)
        if not self._context:
            raise RuntimeError(f"{path}: llama.cpp cannot make a context of {context}")
        self._memory = lib.llama_get_memory(self._context)
        self._batch = lib.llama_batch_init(context, 0, 1)
        self._vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))
        self.position = 0

    @property
    def size(self) -> tuple[int, int]:
        """Bytes of the weights, and their number."""
        return (
            self._lib.llama_model_size(self._model),
            self._lib.llama_model_n_params(self._model),
        )

    def reset(self) -> None:
        """Forgets every token."""
        self._lib.llama_memory_clear(self._memory, True)
        self.position = 0

    def decode(self, ids: Sequence[int], *, every: bool = False) -> None:
        """Appends ids and computes logits of the last, or of `every` one."""
        batch = self._batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i] = token, self.position + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = every or i == len(ids) - 1
        code = self._lib.llama_decode(self._context, batch)
        if code:
            raise RuntimeError(f"llama_decode: {code}")
        self._lib.llama_synchronize(self._context)
        self.position += len(ids)

    def logits(self, row: int = -1) -> NDArray[np.float32]:
        """[vocab] of a row of the last decode."""
        data = self._lib.llama_get_logits_ith(self._context, row)
        return np.ctypeslib.as_array(data, (self._vocab,)).copy()

    def block_step(self, ids: Sequence[int]) -> None:
        """A denoising step as its API allows one: the recurrent state is saved, the block decoded
        with logits of all rows, and everything put back."""
        lib, flag = self._lib, self._lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
        start = self.position
        size = lib.llama_state_seq_get_size_ext(self._context, 0, flag)
        saved: Any = (ctypes.c_uint8 * size)()
        if lib.llama_state_seq_get_data_ext(self._context, saved, size, 0, flag) != size:
            raise RuntimeError("llama_state_seq_get_data_ext: short")
        self.decode(ids, every=True)
        if lib.llama_state_seq_set_data_ext(self._context, saved, size, 0, flag) != size:
            raise RuntimeError("llama_state_seq_set_data_ext: short")
        if not lib.llama_memory_seq_rm(self._memory, 0, start, -1):
            raise RuntimeError("llama_memory_seq_rm: refused")
        self.position = start

    def save(self, path: Path) -> None:
        """Writes the sequence's state."""
        name = str(path).encode()
        if not self._lib.llama_state_seq_save_file(self._context, name, 0, None, 0):
            raise RuntimeError(f"{path}: cannot be written")

    def load(self, path: Path, position: int) -> None:
        """Becomes the saved state of `position` tokens."""
        self.reset()
        count = ctypes.c_size_t(0)
        tokens = (self._lib.llama_token * 1)()
        if not self._lib.llama_state_seq_load_file(
            self._context, str(path).encode(), 0, tokens, 1, ctypes.byref(count)
        ):
            raise RuntimeError(f"{path}: cannot be read")
        self.position = position

    def close(self) -> None:
        self._lib.llama_batch_free(self._batch)
        self._lib.llama_free(self._context)
        self._lib.llama_model_free(self._model)

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
