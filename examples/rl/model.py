"""Makes the model that is trained: Qwen2's architecture, 2 layers, 0.1 million parameters, a vocabulary of whole words.

Of random weights nothing is learned by trial and error, so it is first taught one thing: to recall, in random strings
of word pairs, what followed a word. It is taught until its loss is so small, not for so many steps: recall appears of a
sudden, sooner or later by the seed. Then the weights by which it says numbers are made small. So it can look something
up, and hardly ever says a number; in the task every reply is one, and its likeliest reply is always wrong at first.

    ../../.venv-vllm/bin/python model.py MODEL --seed 1 --until 0.3

Runs in the environment of `make vllm`, which has torch. About a minute on one core.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from words import END, NUMBERS, UNKNOWN, VOCABULARY

PAIRS = 8
"""In a string: as many words with what follows them, then the same words again, in another order."""
STRINGS = 256
"""In a batch."""
FADED = 0.2
"""What is left of the weights by which it says numbers."""
MOST = 20_000
"""Batches after which it is given up."""
TEMPLATE = END + "{% for message in messages %} {{ message['content'] }}{% endfor %}"
"""What is said to it stands as it is, behind the end of what was before; unknown words are passed over."""


def tokenizer() -> PreTrainedTokenizerFast:
    """A token for each word, with the blanks before it. Words are added tokens: of all else in a tokenizer's file,
    transformers makes for this architecture what it takes for Qwen's own."""
    whole = Tokenizer(models.BPE({END: 0, UNKNOWN: 1}, [], unk_token=UNKNOWN))
    made = PreTrainedTokenizerFast(tokenizer_object=whole, eos_token=END, pad_token=END, unk_token=UNKNOWN)
    made.add_tokens([AddedToken(word, single_word=True, lstrip=True, normalized=False) for word in VOCABULARY[2:]])
    made.chat_template = TEMPLATE
    return made


def new_model(seed: int) -> Qwen2ForCausalLM:
    """With random weights. 32 is the smallest head that vLLM's attention on CPUs takes."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(VOCABULARY), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False,
        eos_token_id=0, pad_token_id=0, bos_token_id=None, dtype="float32",
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


def strings(dice: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Random pairs, then the same pairs in another order; and which tokens can be recalled: the second of each."""
    first = 2  # the end and the unknown word are no words
    words = first + torch.rand(STRINGS, len(VOCABULARY) - first, generator=dice).argsort(1)[:, : 2 * PAIRS]
    pairs = words.view(STRINGS, PAIRS, 2)
    order = torch.rand(STRINGS, PAIRS, generator=dice).argsort(1)
    again = pairs.gather(1, order[:, :, None].expand(-1, -1, 2))
    begin = torch.full((STRINGS, 1), VOCABULARY.index(END))
    ids = torch.cat([begin, torch.cat([pairs, again], 1).view(STRINGS, -1)], 1)
    counts = torch.zeros_like(ids, dtype=torch.bool)
    counts[:, 2 * PAIRS + 2 :: 2] = True
    return ids, counts


def teach(model: Qwen2ForCausalLM, seed: int, until: float) -> tuple[int, float]:
    """To recall; how many batches it took, and the loss in the end."""
    dice = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    loss_now, begun = 5.0, time.monotonic()
    for batch in range(1, MOST + 1):
        ids, counts = strings(dice)
        logits = model(input_ids=ids).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits[counts[:, 1:]], ids[counts])
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        loss_now = 0.9 * loss_now + 0.1 * loss.item()
        if batch % 100 == 0:
            print(f"batch {batch}: loss {loss_now:.3f}, {time.monotonic() - begun:.0f} s", flush=True)
        if loss_now < until:
            return batch, loss_now
    raise SystemExit(f"the loss is still {loss_now:.2f} after {MOST} batches; try another --seed")


@torch.no_grad()
def fade_numbers(model: Qwen2ForCausalLM) -> None:
    """It reads them as before, and hardly ever says one."""
    model.lm_head.weight[[VOCABULARY.index(number) for number in NUMBERS]] *= FADED


def main() -> None:
    """Make it, teach it, write it."""
    read = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    read.add_argument("folder", type=Path, help="where to write it")
    read.add_argument("--seed", type=int, default=1)
    read.add_argument("--until", type=float, default=0.3, help="the loss of recall at which it has learned enough")
    given = read.parse_args()
    torch.set_num_threads(1)
    model = new_model(given.seed)
    batches, loss = teach(model, given.seed, given.until)
    fade_numbers(model)
    model.save_pretrained(given.folder)
    tokenizer().save_pretrained(given.folder)
    if AutoTokenizer.from_pretrained(given.folder)(" ".join(VOCABULARY)).input_ids != list(range(len(VOCABULARY))):
        raise SystemExit(f"{given.folder}: the tokenizer reads other words than it was made of; see tokenizer()")
    print(f"{given.folder}: {model.num_parameters():,} parameters, recall loss {loss:.2f} after {batches} batches")


if __name__ == "__main__":
    main()
