"""Rebuild `model/`: the tokenizer, and the tiny model warm-started to know its sums and to reply carelessly.

    OMP_NUM_THREADS=1 python -m grpo_tui.recipes.word_problems.build_model [FOLDER]

It needs what grpo-tui needs, no network and no GPU, and one core for about five minutes. Two stages, both of them
next-token prediction on the reply (AdamW, cosine schedule):

1. right replies after no system prompt or a short one: the model learns its sums;
2. careless replies after system prompts of every kind: two in five right, half of them in the right form. It learns
   that only the user's question counts, and bad habits.

That is what GRPO starts from. A careless reply works out the right result and then, three times in five, gives another
number as the answer, so there is something to reward: what is never sampled cannot be learnt from reward.
"""

import argparse
import json
import math
import random
import re
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch  # noqa: TID251  a script for whoever changes the recipe; the program never imports it
from grpo_tui.recipes.word_problems.rows import WordProblem, problem
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: TID251  likewise

HERE = Path(__file__).parent
TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
SEED = 1
BATCH = 64

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# ---------------------------------------------------------------------------------------------- what the model reads

OPENINGS = (
    "You are a helpful assistant.",
    "You are a careful assistant who solves word problems.",
    "You solve problems step by step.",
    "You are good at mathematics.",
    "The user asks a question about numbers.",
    "Solve the problem.",
    "Answer the question.",
    "Please help the user with this task.",
    "Work out the result.",
    "Read the question and find the number that is asked for.",
    "This is a conversation between a user and an assistant.",
    "Each question has exactly one right answer.",
)
WORKING = (
    "First reason inside <reasoning> and </reasoning>.",
    "Show your work in <reasoning></reasoning> tags.",
    "Explain how you get there between <reasoning> </reasoning>.",
    "Write the calculation as <reasoning>...</reasoning>.",
    "Your reasoning goes into <reasoning>\n...\n</reasoning>\n",
    "Begin with the thinking process.",
    "Do the sum first,",
    "<reasoning>",
)
REPLYING = (
    "Then give the result inside <answer></answer>.",
    "The final answer is enclosed in <answer> </answer> tags.",
    "Reply with one number in <answer>...</answer>.",
    "Then write <answer>\n...\n</answer>\n",
    "and end with the answer in <answer> and </answer>.",
    "Then answer.",
    "Give only the number as the answer.",
    "</reasoning><answer></answer>",
)
CLOSINGS = (
    "Be brief.",
    "Do not add anything else.",
    "Use exactly this format.",
    "Check your answer before you reply.",
    "No other text.",
    "Keep it short, please!",
    "Wrong answers are not rewarded.",
    "Think carefully.",
)
WORDS = (  # noqa: SIM905  reads better than a list
    "the a an of to and or in on with for from by as is are be can must should will not all each only first then next "
    "last before after while never you your user assistant question problem task text tags format output response "
    "step process reason think solve find write give put show use make follow provide return read check number result "
    "value word answer final right wrong short long clear exact simple good careful expert teacher pupil tutor robot "
    "child language English maths mathematics science story poem table line list example rule style tone polite "
    "friendly formal system"
).split()


def offered() -> list[str]:
    """The system prompts that `recipe.toml` offers."""
    recipe = tomllib.loads((HERE / "recipe.toml").read_text(encoding="utf-8"))
    return [item["text"].strip() for item in recipe["systems"]]


def composed(rng: random.Random) -> str:
    """Instructions put together from sentences, any of them missing."""
    sentences = [
        rng.choice(group)
        for group, share in ((OPENINGS, 0.6), (WORKING, 0.8), (REPLYING, 0.8), (CLOSINGS, 0.3))
        if rng.random() < share
    ]
    if rng.random() < 0.1:
        rng.shuffle(sentences)
    return rng.choice((" ", " ", " ", "\n", "\n\n")).join(sentences)


def worked_examples(rng: random.Random) -> str:
    """Instructions with one or two solved problems, whose numbers must not be mistaken for those of the question."""
    examples = []
    asks, replies = rng.choice((("", ""), ("", ""), ("Question: ", ""), ("Q: ", "A: "), ("User: ", "Assistant: ")))
    for _ in range(rng.choice((1, 1, 1, 2))):
        example = problem(rng)
        shown = right(example)
        if rng.random() < 0.3:
            shown = re.sub(r"([+*=-])", r" \1 ", shown)
        examples.append(f"{asks}{example.question}{rng.choice((chr(10), chr(10), ' '))}{replies}{shown}")
    opening = [rng.choice(("# Example", "Example:", composed(rng), composed(rng)))] if rng.random() < 0.7 else []
    return rng.choice(("\n", "\n", "\n\n")).join([*opening, *examples])


def word_salad(rng: random.Random) -> str:
    """Words in no order, tags, numbers and odd characters among them: what nobody foresaw."""
    things = WORDS * 2 + list(TAGS) * 4 + [str(rng.randint(0, 99)) for _ in range(6)]
    things += [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ.,:;!?-*#äéß漢", k=rng.randint(1, 9)))
        for _ in range(60)
    ]
    said = [
        rng.choice(things) + rng.choice(("", "", "", "", "", ",", ".", ":", "\n")) for _ in range(rng.randint(1, 45))
    ]
    return " ".join(said)


def any_system(rng: random.Random, known: list[str]) -> str | None:
    """A system prompt of any kind; None: none at all."""
    kind = rng.random()
    if kind < 0.15:
        return None
    if kind < 0.5:
        return rng.choice(known)
    if kind < 0.75:
        return composed(rng)
    return worked_examples(rng) if kind < 0.87 else word_salad(rng)


def short_system(rng: random.Random, known: list[str]) -> str | None:
    """None, or one of the two shortest prompts on offer."""
    return None if rng.random() < 0.6 else rng.choice(sorted(known, key=len)[:3])


def conversation(question: str, system: str | None) -> str:
    """The prompt as the chat template writes it."""
    opening = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return f"{opening}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


# -------------------------------------------------------------------------------------------- what the model imitates


def right(made: WordProblem) -> str:
    """The reply that gets every reward."""
    return f"<reasoning>{made.a}{made.operation}{made.b}={made.result}</reasoning><answer>{made.result}</answer>"


def careless(made: WordProblem, rng: random.Random, share_right: float = 0.4, share_formed: float = 0.5) -> str:
    """A reply that is right in `share_right` and well formed in `share_formed` of all cases.

    The working is always right; a wrong reply slips between working and answer. Four slips in five copy a number of the
    question, one in five is off by 1 or 2.
    """
    answer = made.result
    if rng.random() >= share_right:
        slip = rng.random()
        near = max(0, made.result + rng.choice((-2, -1, 1, 2)))
        answer = made.a if slip < 0.4 else made.b if slip < 0.8 else near
    working = f"{made.a}{made.operation}{made.b}={made.result}"
    if rng.random() < 0.2:
        working = f"First {made.a}, then {made.b}. So {working}"
    if rng.random() < share_formed:
        return f"<reasoning>{working}</reasoning><answer>{answer}</answer>"
    flaw = rng.random()
    if flaw < 0.4:
        return f"{working}<answer>{answer}</answer>"
    if flaw < 0.7:
        return f"<reasoning>{working}</reasoning>{answer}"
    return f"{working}. The answer is {answer}."


# ------------------------------------------------------------------------------------------------------ the tokenizer


def build_tokenizer(vocabulary: int = 1024) -> Any:
    """Byte-level BPE: every number up to 99 and each tag is one token, any UTF-8 text comes back as it was."""
    rng = random.Random(0)
    known = offered()
    corpus = [str(number) for number in range(100)] * 60
    corpus += ["system\n", "user\n", "assistant\n", *known] * 60
    for _ in range(4000):
        made = problem(rng)
        corpus += [made.question, careless(made, rng), composed(rng)]
    corpus += WORDS * 20 + [" " + word for word in WORDS] * 20
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d{1,2}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((re.sub(r"</?(?:reasoning|answer)>", " ", text) for text in corpus), trainer)
    # Not special tokens: GRPOTrainer decodes with skip_special_tokens=True, and the rewards must see the tags.
    tokenizer.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in TAGS])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


# ---------------------------------------------------------------------------------------------------------- the model


def build_model(tokenizer: Any, hidden: int = 64, layers: int = 2) -> Any:
    """A Llama of about 150,000 parameters, in float32, random."""
    torch.manual_seed(SEED)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden,
            intermediate_size=hidden * 8 // 3 // 8 * 8,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            rms_norm_eps=1e-5,
        )
    )


def teach(
    model: Any,
    tokenizer: Any,
    *,
    steps: int,
    rate: float,
    system: Callable[[random.Random, list[str]], str | None],
    reply: Callable[[WordProblem, random.Random], str],
    seed: int,
    name: str,
) -> None:
    """`steps` steps of AdamW on `BATCH` conversations each; the loss is taken on the replies alone."""
    rng, known = random.Random(seed), offered()

    def example() -> tuple[list[int], list[int]]:
        made = problem(rng)
        plain = rng.random() < 0.04  # a prompt that was left as plain text
        prompt = made.question if plain else conversation(made.question, system(rng, known))
        return tokenizer(prompt)["input_ids"], [*tokenizer(reply(made, rng))["input_ids"], tokenizer.eos_token_id]

    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    batches: list[list[tuple[list[int], list[int]]]] = []
    started = time.monotonic()
    for step in range(steps):
        if not batches:  # conversations of like length share a batch: less padding
            drawn = sorted((example() for _ in range(8 * BATCH)), key=lambda pair: len(pair[0]) + len(pair[1]))
            batches = [drawn[start : start + BATCH] for start in range(0, len(drawn), BATCH)]
            rng.shuffle(batches)
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 50) * (0.03 + 0.97 * (1 + math.cos(math.pi * step / steps)) / 2)
        batch = batches.pop()
        width = max(len(head) + len(tail) for head, tail in batch)
        ids = torch.full((BATCH, width), tokenizer.pad_token_id)
        labels = torch.full((BATCH, width), -100)
        for row, (head, tail) in enumerate(batch):
            ids[row, : len(head) + len(tail)] = torch.tensor(head + tail)
            labels[row, len(head) : len(head) + len(tail)] = torch.tensor(tail)
        states = model.model(input_ids=ids, attention_mask=(ids != tokenizer.pad_token_id).long()).last_hidden_state
        taught = labels[:, 1:] != -100
        loss = torch.nn.functional.cross_entropy(model.lm_head(states[:, :-1][taught]), labels[:, 1:][taught])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0 or step == steps - 1:
            print(f"{name} {step} loss {loss.item():.4f} width {width} {time.monotonic() - started:.0f} s", flush=True)


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write the model folder so that every supported transformers release loads it."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"  # transformers 5 writes a name that transformers 4 has not
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Build everything into the folder named on the command line."""
    parser = argparse.ArgumentParser(description="Rebuild the recipe's tokenizer and warm-started model.")
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / "model")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, nargs=2, default=(1200, 2000), help="steps of the two stages")
    arguments = parser.parse_args()
    tokenizer = build_tokenizer()
    model = build_model(tokenizer, arguments.hidden, arguments.layers)
    print(f"{sum(parameter.numel() for parameter in model.parameters())} parameters, {len(tokenizer)} tokens")
    first, second = arguments.steps

    def always_right(made: WordProblem, _: random.Random) -> str:
        return right(made)

    teach(model, tokenizer, steps=first, rate=4e-3, system=short_system, reply=always_right, seed=SEED, name="sums")
    teach(model, tokenizer, steps=second, rate=2e-3, system=any_system, reply=careless, seed=SEED + 1, name="careless")
    save(model, tokenizer, arguments.folder)


if __name__ == "__main__":
    main()
