"""`Model`: an opened packed folder that turns prompts into text."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Union

from .backends import Provider, check_backend, open_onnxruntime
from .chat import ChatTemplate, Thinking, Turn, read_template
from .chat.chats import Chats
from .drafter import Drafter, open_drafter, refuse_drafter
from .driver import Emit, run_in_thread
from .errors import ArgumentError
from .generation import GenerationOptions
from .loader import PackedFolder, open_core, read_folder
from .preparation import prepare
from .results import Event, GenerationResult
from .sessions.session import MEMORY_LIMIT, SNAPSHOT_EVERY, Session
from .text import TextCodec, special_tokens

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._core import Model as CoreModel

Message = Mapping[str, Any]
Prompt = Union[str, Sequence[int], Sequence[Message]]  # noqa: UP007 - evaluated on Python 3.10


class Model(Chats):
    """A loaded model. `with load(path) as model:` closes it, which unmaps the weights.

    One generation runs at a time; a second one, from another thread, waits for it.
    """

    def __init__(
        self,
        folder: PackedFolder,
        core: CoreModel,
        codec: TextCodec,
        template: ChatTemplate | None,
        drafter: Drafter | None = None,
        providers: tuple[str, ...] = (),
    ) -> None:
        """Use `load`; this takes parts that are checked already."""
        self._folder = folder
        self._core: CoreModel | None = core
        self._codec = codec
        self._template = template
        self._drafter = drafter
        self._providers = providers
        self._busy = threading.Lock()
        self._owner: int | None = None  # the thread that holds _busy

    @property
    def path(self) -> Path:
        """The packed folder."""
        return self._folder.path

    @property
    def _speaker(self) -> Model:
        return self

    @property
    def folder(self) -> PackedFolder:
        """What it says of itself."""
        return self._folder

    @property
    def drafter(self) -> Drafter | None:
        """The drafter beside it."""
        return self._drafter

    @property
    def backend(self) -> str:
        """Who computes the passes: "core" or "onnxruntime"."""
        return "onnxruntime" if self._folder.graphs else "core"

    @property
    def files(self) -> tuple[Path, ...]:
        """Its files of weights."""
        return self._folder.files

    @property
    def spec(self) -> Mapping[str, Any]:
        """The model spec, as the core has it."""
        return self._folder.spec

    @property
    def generation(self) -> Mapping[str, Any]:
        """The checkpoint's decode defaults."""
        return self._folder.generation

    @property
    def codec(self) -> TextCodec:
        """The tokenizer."""
        return self._codec

    @property
    def core(self) -> CoreModel:
        """The compiled model; ArgumentError after close()."""
        if self._core is None:
            raise ArgumentError(f"model: {self.path} is closed")
        return self._core

    @property
    def template(self) -> ChatTemplate | None:
        """The chat template."""
        return self._template

    @property
    def has_chat_template(self) -> bool:
        """Whether chat() and prompts of messages work."""
        return self._template is not None

    def generate(self, prompt: Prompt, **options: Unpack[GenerationOptions]) -> GenerationResult:
        """Text for `prompt`: a string (taken as it is), token ids, or chat messages.

        Options are GenerationConfig's fields; the checkpoint's generation config gives the
        rest. `quality` ("exact", "balanced" or "fast") chooses mode, width and approximations for
        this machine, as `clover-edge tune` does, which takes a while the first time. `mode` is
        "diffusion" unless something else is asked for; a model that cannot denoise blocks decodes
        in mode "ar", with a drafter in mode "speculative" (the same text), and refuses the options
        of the others. Raises ArgumentError naming the option
        or prompt position that is not valid, and ContextLengthError when prompt and answer do not
        fit the context.
        """
        start = self.prepare(prompt, options)
        with self.exclusive():
            return start(None)

    def stream(
        self, prompt: Prompt, **options: Unpack[GenerationOptions]
    ) -> Generator[Event, None, None]:
        """The same generation as events: TextEvent (final text), DraftEvent, then DoneEvent.

        Checks its arguments at once. Closing or dropping the iterator cancels the generation.
        """
        return self.run_stream(self.prepare(prompt, options))

    def run_stream(
        self, start: Callable[[Emit | None], GenerationResult]
    ) -> Generator[Event, None, None]:
        """The events of what `prepare` returned."""
        with self.exclusive():
            yield from run_in_thread(start)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """The model for this thread alone: generations of other threads wait.

        ArgumentError when a stream of this thread is open.
        """
        if not self._busy.acquire(blocking=False):
            if self._owner == threading.get_ident():  # waiting for itself would take forever
                raise ArgumentError("model: a stream of it is still open in this thread")
            self._busy.acquire()
        self._owner = threading.get_ident()
        try:
            yield
        finally:
            self._owner = None
            self._busy.release()

    def chat_prompt(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: Thinking = None,
    ) -> list[int]:
        """The token ids that the chat template makes of `messages`. Errors: chat()."""
        return Turn(self, messages, tools=tools, thinking=thinking).ids

    def session(
        self,
        *,
        capacity: int | None = None,
        snapshot_every: int = SNAPSHOT_EVERY,
        memory_limit: int = MEMORY_LIMIT,
    ) -> Session:
        """A conversation that keeps what it has computed from turn to turn.

        `capacity`: most tokens, prompt and answers together; left out, what the model takes.
        `snapshot_every`: blocks between the points that it can go back to, beside each turn's
        start; 0: none. `memory_limit`: bytes that all of these but the newest may take. Raises
        ArgumentError, OutOfMemoryError.
        """
        return Session(
            self, capacity=capacity, snapshot_every=snapshot_every, memory_limit=memory_limit
        )

    def load_session(self, path: str | Path) -> Session:
        """The session that `Session.save` wrote, for this very model.

        Raises SavedSessionError naming file, field and reason, ContextLengthError,
        OutOfMemoryError.
        """
        from .sessions.saved import load_session

        return load_session(self, Path(path))

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a text, as generate() would take it."""
        return self._codec.encode(text, add_special_tokens=True)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens left out."""
        return self._codec.decode(ids)

    def info(self) -> dict[str, Any]:
        """What is loaded and how it runs; plain values."""
        from .summary import summarize

        core = self.core
        runs = {
            "backend": self.backend,
            "providers": list(self._providers),
            "isa": core.isa,
            "threads": core.threads,
        }
        drafter = None if self._drafter is None else str(self._drafter.path)
        return {**summarize(self._folder), **runs, "drafter": drafter}

    def close(self) -> None:
        """Drops the weights once a running generation has ended. Idempotent."""
        self._core = self._drafter = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._core is None else f"{self._folder.recipe}, {self._core.isa}"
        return f"<clover_edge.Model {self.path} ({state})>"

    def prepare(
        self, prompt: Prompt, options: Mapping[str, Any], session: Session | None = None
    ) -> Callable[[Emit | None], GenerationResult]:
        """Checks everything that can be checked before work starts: the work is to be called by
        whoever holds `exclusive()`. `session`: whose turn it is."""
        return prepare(self, prompt, options, session)


def load(
    path: str | Path,
    *,
    threads: int | None = None,
    isa: str | None = None,
    mmap: bool = True,
    kv: Literal["f32", "f16", "int8"] = "f32",
    drafter: str | Path | None = None,
    backend: Literal["core", "onnxruntime"] = "core",
    providers: Sequence[Provider] | None = None,
) -> Model:
    """Opens a packed folder, as clover-export writes it. Local folders only.

    `threads`: how many to compute with; left out, as many as affinity, cgroup quota and physical
    cores allow. `isa`: forces an instruction set, as CLOVER_ISA does. `mmap`: the weights are
    mapped from their files, which starts at once and lets them exceed memory; False copies them
    into huge pages, which takes seconds and can decode a few percent faster. `kv`: how
    keys and values of committed tokens are kept: int8 takes a quarter of the memory (a scale for
    each token and head). `drafter`: the packed folder of a drafter for this autoregressive model,
    which then decodes in mode "speculative": the same text in fewer passes, where drafts are right.
    `backend`: "onnxruntime" runs an ONNX folder (clover-export --format onnx) through onnxruntime's
    `providers` (their names, or pairs of a name and its options; left out, the CPU's), where this
    package has no kernels for a device. It needs kv "f32" and knows no coreset, skip_rows, cache,
    quality, mode "speculative" and drafter; counters of experts and bytes stay 0.
    Raises ModelFormatError naming file, field and reason, ArgumentError naming what does not fit,
    UnsupportedModelError, UnsupportedDeviceError, OutOfMemoryError.
    """
    if threads is not None and (type(threads) is not int or not 1 <= threads <= 1024):
        raise ArgumentError(f"threads: {threads!r} is not an integer from 1 to 1024")
    if kv not in ("f32", "f16", "int8"):
        raise ArgumentError(f"kv: {kv!r} is none of f32, f16, int8")
    check_backend(backend, providers, drafter, mmap)
    folder = read_folder(path)
    refuse_drafter(folder)
    template = read_template(folder.path, special_tokens(folder.path))
    shown = () if template is None else template.markers
    codec = TextCodec(folder.path / "tokenizer.json", shown)
    used: tuple[str, ...] = ()
    if backend == "core":
        core = open_core(folder, threads=threads or 0, isa=isa, mmap=mmap, kv=kv)
    else:
        core, used = open_onnxruntime(
            folder, providers=providers, threads=threads or 0, isa=isa, kv=kv
        )
    drafts = (
        None
        if drafter is None
        else open_drafter(drafter, folder, core, threads=threads or 0, isa=isa, mmap=mmap, kv=kv)
    )
    if core.read_ahead:
        warnings.warn(
            f"{folder.path}: {core.weight_bytes / 1e9:.1f} GB of weights are more than the free "
            "memory; experts will be read from disk as they are chosen",
            stacklevel=2,
        )
    return Model(folder, core, codec, template, drafts, used)
