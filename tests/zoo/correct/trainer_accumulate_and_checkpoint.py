"""Train a language model on short sequences with the Trainer of transformers: accumulation, warm-up, checkpoints.

zoo: correct
needs: transformers
launcher: real
"""

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Counting(Dataset):
    """Sequences that count upwards from a random digit, with steps of one to three."""

    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        start, step = torch.randint(0, 10, (size, 1), generator=g), torch.randint(1, 4, (size, 1), generator=g)
        self.ids = (start + step * torch.arange(12)) % 10
        self.lengths = torch.randint(6, 13, (size,), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i, : self.lengths[i]]}


def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True, padding_value=10)
    return {"input_ids": ids, "attention_mask": (ids != 10).long(), "labels": ids.masked_fill(ids == 10, -100)}


def main():
    set_seed(7)
    config = GPT2Config(
        vocab_size=11, n_positions=12, n_embd=32, n_layer=2, n_head=2, bos_token_id=10, eos_token_id=10, use_cache=False
    )
    args = TrainingArguments(
        output_dir="counting", num_train_epochs=4, per_device_train_batch_size=8, gradient_accumulation_steps=2,
        learning_rate=5e-3, lr_scheduler_type="cosine", warmup_steps=4, weight_decay=0.1, max_grad_norm=1.0,
        save_strategy="steps", save_steps=20, logging_steps=10, eval_strategy="epoch", report_to=[], use_cpu=True,
        disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=args,
        data_collator=collate,
        train_dataset=Counting(320, 1),
        eval_dataset=Counting(64, 2),
    )
    trainer.train()
    trainer.save_model("counting/last")


if __name__ == "__main__":
    main()
