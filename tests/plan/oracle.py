"""What a GRPO run allocates, traced without a GPU: the yardstick of the closed form in `grpo_tui.plan.memory`.

The real modules of transformers, the real adapters of PEFT and TRL's own output head run under PyTorch's
FakeTensorMode: every operator yields tensors of the right shape, type and life, with no storage behind them. A dispatch
mode keeps the ledger of the storages that are alive. Peaks grow by the same bytes with each layer, so that two shallow
models say what a deep one takes.

Made for transformers 5.24, PEFT 0.21 and TRL 1.16; older TRL is traced by its head alone (`HEADS`). Not traced: what an
operator allocates inside itself, the allocator, CUDA, experts chosen by the data, bitsandbytes (stood in for by a layer
that allocates what its documentation says), several processes, and Gemma-2, which transformers refuses with sdpa.
"""

# ruff: noqa: TID251 - torch is what this is about; tests import it when they run

import contextlib
import gc
import math
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import peft
import torch
import transformers
import trl.kernels.chunked_logprob as tiles
from peft.tuners.lora.layer import LoraLayer
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.cache_utils import DynamicCache
from trl.trainer.utils import entropy_from_logits, selective_log_softmax

ROUNDED_TO = 512
"""CUDA's allocator hands out multiples of this many bytes."""

Bytes = dict[str, int]


class Ledger(TorchDispatchMode):
    """Bytes of the storages that are alive, and the most that ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._enter(leaf.untyped_storage())
        self.peak = max(self.peak, self.now)
        return result

    def _enter(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = 0
            weakref.finalize(storage, self._leave, key)
        size = -(-storage.nbytes() // ROUNDED_TO) * ROUNDED_TO
        self.now += size - self._sizes[key]
        self._sizes[key] = size

    def _leave(self, key: int) -> None:
        self.now -= self._sizes.pop(key)

    @contextlib.contextmanager
    def phase(self, found: Bytes, name: str) -> Iterator[None]:
        """Put the peak of what happens inside under `name`, in bytes above nothing."""
        gc.collect()
        self.peak = self.now
        yield
        gc.collect()
        found[name] = self.peak


class _FourBit(torch.autograd.Function):
    """A matrix product with packed weights: they are unpacked for the product, and again for its gradient."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        ctx.shape = rows, columns
        return values @ values.new_empty(rows, columns).t()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        (gradient,) = gradients
        return gradient @ gradient.new_empty(*ctx.shape), None, None


class FourBitLinear(nn.Module):
    """Stands for a linear layer of bitsandbytes: 4-bit values, a byte of scale for 64 of them, four for 256 scales."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.out_features, self.in_features = plain.out_features, plain.in_features
        count = plain.weight.numel()
        blocks = math.ceil(count / 64)
        self.packed = nn.Parameter(torch.empty(math.ceil(count / 2), dtype=torch.uint8), requires_grad=False)
        self.scales = nn.Parameter(torch.empty(blocks, dtype=torch.uint8), requires_grad=False)
        self.scales_of_scales = nn.Parameter(torch.empty(math.ceil(blocks / 256)), requires_grad=False)
        self.bias = plain.bias

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        product = _FourBit.apply(values.to(torch.bfloat16), self.out_features, self.in_features)
        if self.bias is not None:
            product = product + self.bias
        return product.to(values.dtype)


# --------------------------------------------------------------------------------------------------------- the heads


def _tiled(hidden: torch.Tensor, weight: torch.Tensor, ids: torch.Tensor, entropy: bool) -> torch.Tensor:
    """TRL 1.15 and newer: tiles of logits, folded by a kernel that allocates nothing; every completion token counts."""
    chosen = hidden.reshape(-1, hidden.size(-1)).clone()  # TRL takes them by a mask, which copies them
    wanted = ("log_probs", "entropy") if entropy else ("log_probs",)
    found = tiles.ChunkedLogProbFunction.apply(chosen, weight, None, ids.reshape(-1), 1.0, 32768, None, 1.0, wanted)
    return found[0]  # type: ignore[no-any-return]


class _Kernel(torch.autograd.Function):
    """The kernel of TRL 1.14: four figures a row forward, and the gradient of the logits backward."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor) -> torch.Tensor:
        rows = [logits.new_empty(logits.shape[:-1], dtype=torch.float32) for _ in range(4)]
        ctx.save_for_backward(logits, *rows[2:])
        return rows[0]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return torch.empty_like(ctx.saved_tensors[0], memory_format=torch.contiguous_format)


def _logits(hidden: torch.Tensor, weight: torch.Tensor, upcast: bool) -> torch.Tensor:
    """The logits of the completion and of one token more, in float32 as accelerate hands on what an autocast model
    returns; without the last token."""
    logits = nn.functional.linear(hidden, weight)
    logits = logits.float() if upcast else logits
    return logits[:, :-1]


def _old(divide: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def head(logits: torch.Tensor, ids: torch.Tensor, entropy: bool) -> torch.Tensor:
        logits = divide(logits)
        found: torch.Tensor = selective_log_softmax(logits, ids)
        if entropy:
            with torch.no_grad():
                entropy_from_logits(logits)
        return found

    return head


def _fine_tuning(logits: torch.Tensor, ids: torch.Tensor, entropy: bool) -> torch.Tensor:
    """The loss of plain fine-tuning as transformers made it up to 4.44: of a copy of the shifted float32 logits."""
    shifted = logits.contiguous().view(-1, logits.size(-1))
    return -nn.functional.cross_entropy(shifted, ids[:, -logits.size(1) :].reshape(-1))


def _kept(logits: torch.Tensor, ids: torch.Tensor, entropy: bool) -> torch.Tensor:
    """The loss of plain fine-tuning since transformers 4.46, by a loop that holds the model's output until its end."""
    wide = logits.float()
    loss = nn.functional.cross_entropy(wide.transpose(1, 2), ids[:, -logits.size(1) :])
    loss.output = logits  # type: ignore[attr-defined]  # as long as the loss lives
    return loss


HEADS: Mapping[str, Callable[..., torch.Tensor]] = {
    "in place": _old(lambda logits: logits.div_(1.0)),
    "divided": _old(lambda logits: logits / 1.0),
    "kernel": lambda logits, ids, entropy: _Kernel.apply(logits),
    "fine-tuning": _fine_tuning,
    "kept": _kept,
}
"""How TRL made log-probabilities of logits before 1.15: up to 1.9, from 1.10 to 1.13, and in 1.14; and what published
runs of fine-tuning did."""


# ----------------------------------------------------------------------------------------------------------- the run


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is traced: a micro-step of `batch` sequences, after `generated` sequences were generated."""

    method: str = "lora"
    batch: int = 4
    prompt: int = 256
    completion: int = 512
    generated: int = 0
    """Sequences that are generated at a time; 0: generation is not traced."""

    checkpointing: bool = True
    dtype: torch.dtype = torch.bfloat16
    rank: int = 16
    targets: str | tuple[str, ...] = "all-linear"
    padded: bool = True
    """Whether the attention takes a mask; without one it is causal by itself, as flash attention is."""

    autocast: bool = True
    head: str = "tiles"
    """`tiles`, or one of `HEADS`."""

    optimizer: bool = True
    kbit: bool = False
    """Whatever is not packed is in float32, as `prepare_model_for_kbit_training` of PEFT makes it. TRL does not."""

    accumulated: bool = True
    """Gradients stay between micro-steps; without it they appear in the backward pass."""


def kinds_of(figures: Mapping[str, Any]) -> list[str]:
    """The kind of attention of each layer."""
    config = _config(figures, {})
    return list(getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers)


def _config(figures: Mapping[str, Any], changed: Mapping[str, Any]) -> transformers.PreTrainedConfig:
    return transformers.AutoConfig.for_model(**{**figures, "pad_token_id": None, **changed})


def trace(figures: Mapping[str, Any], job: Job) -> Bytes:
    """Bytes of the model that `figures`, the content of its `config.json`, describe.

    `load`: weights and adapters; `static`: with gradients and states; `generate`, `score` and `train`: peaks.
    """
    kinds = Counter(kinds_of(figures))
    few = list(kinds) if len(kinds) > 1 else list(kinds) * 2
    base = run(figures, few, job)
    found = dict(base)
    for kind, count in kinds.items():
        more = run(figures, [*few, kind], job)
        for name in base:
            found[name] += (count - few.count(kind)) * (more[name] - base[name])
    if job.generated:
        found["generate"] = max(found.pop("read"), found.pop("draw"))
    return found


@contextlib.contextmanager
def faked() -> Iterator[Ledger]:
    """Nothing inside allocates; the ledger says what would have been."""

    def nothing(*args: Any, **kwargs: Any) -> None: ...

    gc.collect()
    gc.freeze()  # the libraries' own objects: they are not looked at again and again
    with (
        warnings.catch_warnings(),
        mock.patch.multiple(tiles, _forward_tile=nothing, _backward_tile=nothing, _addmm_fp32=nothing),
        FakeTensorMode(allow_non_fake_inputs=True),
        Ledger() as ledger,
    ):
        warnings.simplefilter("ignore")
        try:
            yield ledger
        finally:
            gc.unfreeze()


def _model(config: transformers.PreTrainedConfig, job: Job) -> nn.Module:
    """The model with its adapters, on the meta device, where nothing is initialised."""
    with torch.device("meta"):
        model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=job.dtype, attn_implementation="sdpa")
        if job.method != "full":
            targets = job.targets if isinstance(job.targets, str) else list(job.targets)
            adapter = peft.LoraConfig(r=job.rank, target_modules=targets, task_type="CAUSAL_LM")
            model = peft.get_peft_model(model, adapter)
        if job.method == "qlora":
            for module in list(model.modules()):
                if isinstance(module, LoraLayer):
                    module.base_layer = FourBitLinear(module.base_layer)
                else:
                    _pack(module, model.get_output_embeddings())
    return model  # type: ignore[no-any-return]


def _materialise(model: nn.Module, job: Job) -> None:
    """Put a fake tensor on the CPU in the place of each meta tensor; weights that are tied stay so."""
    made: dict[torch.Tensor, torch.Tensor] = {}
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, meta in tensors.items():
                if meta is None:
                    continue
                if meta not in made:
                    fake = torch.empty(meta.shape, dtype=_dtype(meta, job))
                    made[meta] = nn.Parameter(fake, meta.requires_grad) if isinstance(meta, nn.Parameter) else fake
                tensors[name] = made[meta]


def _dtype(meta: torch.Tensor, job: Job) -> torch.dtype:
    """The type of a parameter or a buffer in the run."""
    if job.kbit:
        return torch.float32 if meta.is_floating_point() else meta.dtype
    # TRL casts the adapters of a 4-bit model to bfloat16.
    return torch.bfloat16 if job.method == "qlora" and meta.requires_grad else meta.dtype


def _pack(module: nn.Module, head: nn.Module) -> None:
    """Pack the linear children that have no adapter."""
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear and child is not head and not isinstance(module, (LoraLayer, nn.ModuleDict)):
            setattr(module, name, FourBitLinear(child))


def run(figures: Mapping[str, Any], kinds: list[str], job: Job) -> Bytes:
    """The bytes of a model with layers of these kinds and no others."""
    mixed = {"layer_types": kinds} if len(set(kinds_of(figures))) > 1 else {}
    config = _config(figures, {"num_hidden_layers": len(kinds), **mixed})
    found: Bytes = {}
    model: Any = _model(config, job)
    with faked() as ledger:
        _materialise(model, job)
        gc.collect()
        found["load"] = ledger.now
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        states = [(torch.zeros_like(each), torch.zeros_like(each)) for each in trained] if job.optimizer else []
        if job.generated:
            model.eval()
            with ledger.phase(found, "read"), torch.no_grad(), _autocast(job):
                _read(model, job)
            with ledger.phase(found, "draw"), torch.no_grad(), _autocast(job):
                _draw(model, config, job)
        model.train()
        with ledger.phase(found, "score"), torch.no_grad(), _autocast(job):
            _log_probabilities(model, job, entropy=False)
        if job.accumulated:
            for parameter in trained:
                parameter.grad = torch.zeros_like(parameter)
        gc.collect()
        found["static"] = ledger.now
        if job.checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            if job.method != "full":
                model.enable_input_require_grads()
        with ledger.phase(found, "train"):
            with _autocast(job):
                chosen = _log_probabilities(model, job, entropy=True)
            loss = -torch.exp(chosen - chosen.detach()).mean()
            loss.backward()
            del loss, chosen
        del model, trained, states
    gc.collect()
    return found


def _autocast(job: Job) -> torch.autocast:
    """What the trainer enters around each forward pass; the copies of the weights that it makes go when it is left."""
    return torch.autocast("cpu", torch.bfloat16, enabled=job.autocast)


def _log_probabilities(model: Any, job: Job, *, entropy: bool) -> torch.Tensor:
    """One forward pass as the trainer makes it, up to the log-probability of each completion token."""
    ids = torch.zeros(job.batch, job.prompt + job.completion, dtype=torch.long)
    mask = torch.ones_like(ids) if job.padded else None
    hidden = _plain(model, job).base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
    weight = model.get_output_embeddings().weight
    wanted = ids[:, job.prompt :]
    if job.head == "tiles":
        hidden = hidden[:, job.prompt - 1 : -1]
        return _tiled(hidden, weight, wanted, entropy)
    logits = _logits(hidden[:, -(job.completion + 1) :], weight, job.autocast)
    del hidden
    return HEADS[job.head](logits, wanted, entropy)


def _read(model: Any, job: Job) -> None:
    """The prompts are read."""
    ids = torch.zeros(job.generated, job.prompt, dtype=torch.long)
    logits = _plain(model, job)(
        input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=True, logits_to_keep=1
    ).logits
    _sample(logits)


def _plain(model: Any, job: Job) -> Any:
    """The model without PEFT's wrapping, its adapters in it."""
    return model.get_base_model() if job.method != "full" else model


def _draw(model: Any, config: transformers.PreTrainedConfig, job: Job) -> None:
    """The last token of the longest completion is made; since the prompts the cache has only grown."""
    before = job.prompt + job.completion - 1
    cache = DynamicCache(config=config)
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for layer in range(config.num_hidden_layers):
        sliding = (getattr(config, "layer_types", None) or ["full_attention"] * (layer + 1))[layer] != "full_attention"
        kept = min(before, config.sliding_window - 1) if sliding else before
        values = [torch.empty(job.generated, heads, kept, size, dtype=torch.bfloat16) for _ in range(2)]
        cache.update(*values, layer)
        del values
    gc.collect()
    last = torch.zeros(job.generated, 1, dtype=torch.long)
    mask = torch.ones(job.generated, before + 1, dtype=torch.long)
    logits = _plain(model, job)(
        input_ids=last, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1,
        position_ids=torch.full((job.generated, 1), before),
    ).logits  # fmt: skip
    _sample(logits)


def _sample(logits: torch.Tensor) -> None:
    """Temperature and a draw, as `generate` makes them (the default of GRPO: no top-k, no top-p)."""
    scores = logits[:, -1].to(copy=True, dtype=torch.float32)
    scores = scores / 0.9
    chances = nn.functional.softmax(scores, dim=-1)
    torch.multinomial(chances, num_samples=1)
