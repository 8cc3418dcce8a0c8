"""One prompt, one answer, by a direct pass of a model's own code: what servers are compared with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoProcessor, GenerationConfig

from deskroll.errors import InputError, TrainerError
from deskroll.models.weights.checkpoint import CheckpointKind
from deskroll.train.base import TrainSequence
from deskroll.train.grpo.policy import Policy, choose_device, load_adapter, load_model, read_folder
from deskroll.train.grpo.rows import make_rows
from deskroll.train.grpo.settings import GrpoSettings
from deskroll.train.wire import Ask
from deskroll.types import Completion

_LONGEST = 256
"""Tokens of an answer, where nobody says how many."""


def answer(question: Ask) -> Completion:
    """Load the model that is named, and ask it."""
    if question.sampling.stop:
        raise InputError("stop is not known where a model is asked without a server; leave it out")
    folder = Path(question.folder)
    base = _base_of(folder) if read_folder(folder).kind is CheckpointKind.ADAPTER else folder
    device, dtype = choose_device(GrpoSettings(dtype="float32"))
    model = load_model(base, dtype, device)
    if base != folder:
        model = load_adapter(model, folder)
    processor = AutoProcessor.from_pretrained(base)
    tokenizer = getattr(processor, "tokenizer", processor)
    prompt = _prompt(processor, question)
    with torch.inference_mode():
        said = _generate(model, prompt, tokenizer, question)
        logprobs = _logprobs(Policy(model, base, dtype), prompt["input_ids"][0].tolist(), said, question)
    return Completion(
        text=tokenizer.decode(said, skip_special_tokens=True),
        finish_reason="stop" if said and said[-1] in _ends(model, tokenizer) else "length",
        prompt_tokens=prompt["input_ids"].shape[1],
        completion_tokens=len(said),
        prompt_token_ids=tuple(prompt["input_ids"][0].tolist()),
        token_ids=tuple(said),
        logprobs=tuple(logprobs),
        model=str(folder),
        sampling=question.sampling,
        seed=question.sampling.seed,
        cost_usd=0.0,
    )


def _base_of(adapter: Path) -> Path:
    try:
        named = json.loads((adapter / "adapter_config.json").read_text()).get("base_model_name_or_path")
    except (OSError, ValueError) as error:
        raise TrainerError(f"{adapter} holds an adapter, and its adapter_config.json cannot be read: {error}") from None
    if not named or not Path(named).is_dir():
        raise TrainerError(f"{adapter} holds an adapter to {named}, which is not a folder here")
    return Path(named)


def _prompt(processor: Any, question: Ask) -> Any:
    content: Any = question.text
    if question.images:
        content = [{"type": "text", "text": question.text}, *({"type": "image"} for _ in question.images)]
    text = question.text
    if processor.chat_template:
        messages = [{"role": "user", "content": content}]
        text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    if not question.images:
        return processor(text=text, return_tensors="pt", add_special_tokens=not processor.chat_template)
    images = [Image.open(each).convert("RGB") for each in question.images]
    return processor(text=text, images=images, return_tensors="pt")


def _generate(model: Any, prompt: Any, tokenizer: Any, question: Ask) -> list[int]:
    sampling = question.sampling
    if sampling.seed is not None:
        torch.manual_seed(sampling.seed)
    heat = 1.0 if sampling.temperature is None else sampling.temperature
    how: dict[str, Any] = {"do_sample": False}
    if heat:
        how = {"do_sample": True, "temperature": heat, "top_p": sampling.top_p or 1.0, "top_k": sampling.top_k or 0}
    config = GenerationConfig(
        **how, max_new_tokens=sampling.max_tokens or _LONGEST, eos_token_id=_ends(model, tokenizer),
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    given = {name: each.to(model.device) for name, each in prompt.items() if name != "token_type_ids"}
    found: list[int] = model.generate(**given, generation_config=config)[0, prompt["input_ids"].shape[1] :].tolist()
    return found


def _ends(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end an answer."""
    named = model.generation_config.eos_token_id
    ends = [named] if isinstance(named, int) else named or [tokenizer.eos_token_id]
    return [each for each in ends if each is not None]


def _logprobs(policy: Policy, prompt: list[int], said: list[int], question: Ask) -> list[float]:
    """At the temperature that was sampled with; of the likeliest tokens, at 1."""
    if not said:
        return []
    sequence = TrainSequence(
        name="the answer", token_ids=prompt + said, logprobs=[0.0] * (len(prompt) + len(said)),
        weights=[0.0] * len(prompt) + [1.0] * len(said), advantage=0.0,
        temperature=question.sampling.temperature or 1.0, images=question.images,
    )  # fmt: skip
    rows = make_rows([sequence], policy.device)
    found: list[float] = policy.distributions(rows).gather(1, rows.token[:, None])[:, 0].tolist()
    return found
